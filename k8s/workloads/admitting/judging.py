"""Will the operator let this object in? Judged from outside the operator, by what the API server says.

The questions and their order are those of the operator (``case``): is the object its own, is it suspended again and
again, does all that it makes ever fit, does it fit now, and who waits in front of it. ``judged`` asks them; ``explain``
prints the answer. What only the operator knows is left out: the room that it has reserved, or keeps for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.facts.parts import MEMBERS_MAX
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.gangs import why_never
from backoff_ctrl.k8s.kube.answers.fields import FieldError, annotations_of, mapping, mappings, metadata_of, text
from backoff_ctrl.k8s.kube.charges.admission_rules import Item
from backoff_ctrl.k8s.kube.charges.device_claims import UNKNOWN, templates_named
from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.cluster.election import read_record
from backoff_ctrl.k8s.kube.paths import path_to
from backoff_ctrl.k8s.status.documents import blocker_item
from backoff_ctrl.k8s.status.explaining import Ask, AskServer, classes_of, devices_of
from backoff_ctrl.k8s.status.shapes import LetIn

from .again import SuspendedAgain, time_of
from .asking import as_elastic, counts_of, elastic_of, made_before, parts_made, whole_gang
from .jobs import WaitingJob
from .kinds import (
    KINDS,
    QUEUE_NAME,
    STAY_SUSPENDED,
    WAIT,
    AdmissibleKind,
    Left,
    Subject,
    asks,
    left_waiting,
    subject_of,
)
from .life import Seen, seen_of
from .priorities import Priorities, priority_allowed, priority_asked

OPERATOR: Final = "backoff-ctrl-operator"
"""The Lease by which operators elect their leader, unless ``--lease`` or the name of a chart's release differs."""
OF_THE_CHART: Final = "app.kubernetes.io/name=backoff-ctrl,app.kubernetes.io/component=operator"
SKEW: Final = 30.0
"""Seconds by which the clocks of two machines may differ."""
AGE_STEP: Final = Policy().age_step
FITS: Final = frozenset({"now", "unknown"})
"""What the engine says of pods that fit: no quota that it knows is in their way."""
NO_LEADER: Final = "no operator runs in this cluster: start one (backoff-ctrl operator, or the chart's value operator)"
NO_LEASES: Final = "whether an operator runs is not known: this account may not list Leases"
NO_LINE: Final = "who waits there is not known: this account may not list Jobs"
OVERTAKES: Final = "it fits, and may pass those that wait for more room, unless room is kept for one of them"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else decides in a namespace, as it was read. ``line``: what waits suspended there; None: not known."""

    quotas: Sequence[Mapping[str, Any]]
    limits: Sequence[Item]
    line: Sequence[WaitingJob] | None
    kinds: Sequence[AdmissibleKind] = KINDS


def kind_of_manifest(manifest: Mapping[str, Any], kinds: Sequence[AdmissibleKind] = KINDS) -> AdmissibleKind | None:
    """Return the kind of a manifest, in any version; None: no operator lets it in."""
    named = text(manifest.get("apiVersion")).rpartition("/")[0], text(manifest.get("kind"))
    return next((kind for kind in kinds if (kind.group, kind.kind) == named), None)


def judged(
    manifest: Mapping[str, Any], namespace: str, around: Surroundings, outlook: Ask, ask: AskServer, now: datetime
) -> LetIn | None:
    """Return whether the operator lets a manifest in; None: it does not wait suspended.

    ``outlook`` says what the quotas of the namespace have room for; ``ask`` sends a question to the API server. An
    object of that name counts instead of the manifest if it is stored already and waits.
    """
    kind = kind_of_manifest(manifest, around.kinds)
    if kind is None:
        return None
    return _Judge(kind, namespace, around, outlook, ask, now).of(manifest)


class _Judge:
    """Asks the questions about one object."""

    def __init__(
        self, kind: AdmissibleKind, namespace: str, around: Surroundings, outlook: Ask, ask: AskServer, now: datetime
    ) -> None:
        self._kind = kind
        self._namespace = namespace
        self._around = around
        self._outlook = outlook
        self._ask = ask
        self._now = now

    def of(self, manifest: Mapping[str, Any]) -> LetIn | None:
        kind, stored = self._kind, self._stored(manifest)
        body = manifest if stored is None else stored
        status, namespace = self._ask("GET", path_to("/api/v1", "namespaces", name=self._namespace), None)
        waiting_in = {self._namespace} if status == 200 and asks(namespace) else ()
        body = {**body, "metadata": {**metadata_of(body), "namespace": self._namespace}}
        subject = subject_of(kind, body)
        asked = subject.asks or bool(waiting_in)
        if not subject.is_suspended and stored is not None:
            runs = f"it runs already; to apply a manifest with {kind.suspend}: true would suspend it"
            return LetIn("now", [runs]) if kind.is_suspended(manifest) else None
        if not subject.is_suspended and not asked:
            return None
        left = left_waiting(subject, kinds=self._around.kinds, waiting_in=waiting_in)
        if left is Left.UNASKED and status != 200:
            return LetIn("unknown", [f"whether its namespace has the label {WAIT} is not known: it can't be read"])
        if left is not None:
            return LetIn("left", [self._why_left(left, subject)])
        found = self._in_line(subject, is_stored=stored is not None)
        if not subject.is_suspended:
            found.why.append(
                f"it is not suspended: the webhook (backoff-ctrl inject --for jobs) sets {kind.suspend} when it is "
                "created; without the webhook it runs at once"
            )
        return found

    def _stored(self, manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the object of that name if there is one that has not ended."""
        kind, name = self._kind, text(metadata_of(manifest).get("name"))
        if not name:
            return None
        status, found = self._ask("GET", path_to(kind.path, kind.plural, namespace=self._namespace, name=name), None)
        return None if status != 200 or seen_of(subject_of(kind, found), None) is Seen.ENDED else found

    def _why_left(self, left: Left, subject: Subject) -> str:
        kind, owner = self._kind, subject.owner
        stays = "it stays suspended until somebody resumes it"
        above = "what made it" if owner is None else f"{owner.kind} {owner.name}"
        return {
            Left.UNASKED: f'neither it nor its namespace has the label {WAIT}: "true", so {stays}',
            Left.RESERVED: subject.why_it_stays(left),
            Left.PART: f"{above} is let in as a whole, and this is a part of it: explain that instead",
            Left.KUEUE: f"it has the label {QUEUE_NAME}, so Kueue lets it in",
            Left.ELSEWHERE: f"{kind.managed_by} names another controller than {kind.manager}, so {stays}",
            Left.UNFIT: kind.may_not_be_suspended(subject.body),
            Left.HELD: f'its annotation {STAY_SUSPENDED}: "true" keeps it suspended; without that it waits in line',
        }[left]

    def _in_line(self, subject: Subject, *, is_stored: bool) -> LetIn:
        """Return whether what is the operator's is let in."""
        kind, body, why = self._kind, subject.body, []
        again = SuspendedAgain.of(subject)
        if again is not None and again.generation is not None and not again.has_changed(subject):
            why.append(again.sentence(kind))
            if again.is_loop:
                return LetIn("never", why)
        if kind.made_through and not is_stored:
            return LetIn(
                "unknown", [f"only its controller says what a {kind.kind} makes: ask again once it is created"]
            )
        try:
            parts, counts, never = self._needs(body, is_stored=is_stored)
        except (FieldError, GangError) as error:
            return LetIn("now", [*why, f"it is let in without waiting, since it can't be weighed: {error}"])
        if never:
            return LetIn("never", [*why, never])
        found = self._outlook([(part.demand, count) for part, count in zip(parts, counts, strict=True) if count])
        priority, ignored = self._priority(body, parts)
        why += [ignored] if ignored else []
        behind, line, leads = self._ahead_of(body, priority), self._around.line, self._leads()
        why += [NO_LINE] if line is None else []
        why += [NO_LEADER] if leads is False else [NO_LEASES] if leads is None else []
        if found.prospect in FITS:
            why += [OVERTAKES] if behind else []
            return LetIn("wait" if leads is False else "now", why, [], behind)
        place = next((each.waits_for.get("place") for each in line or () if _is(each, body)), None)
        return LetIn("wait", why, list(map(blocker_item, found.blockers)), behind, place)

    def _needs(self, body: Mapping[str, Any], *, is_stored: bool) -> tuple[Sequence[Part], Sequence[int], str]:
        """Return what it makes once it is resumed, and why that never fits; empty: it does.

        Raises ``FieldError``, and ``GangError`` where a number is not known.
        """
        kind, elastic = self._kind, elastic_of(subject_of(self._kind, body))
        body = body if elastic is None else as_elastic(kind, body, elastic.least)
        made = parts_made(kind, body, self._around.limits)
        classes = classes_of(self._ask)(body, kind.resource, made)
        devices = devices_of(self._namespace, self._ask)(made) if templates_named(made) else UNKNOWN
        made = parts_made(kind, body, self._around.limits, devices, classes)
        whole = whole_gang(kind, body, made)
        if said := why_never(whole, self._outlook([(whole.parts, 1)])):
            return made, (), said
        before = made_before(kind, body) if is_stored else frozenset()
        parts = [part for part in made if (part.kind, part.made_by) not in before]
        counts = counts_of(kind, body, parts)
        most = max(counts, default=0)
        said = f"it asks for {most} pods of one kind, and {MEMBERS_MAX} are let in together at most"
        return parts, counts, said if most > MEMBERS_MAX else ""

    def _ahead_of(self, body: Mapping[str, Any], priority: int) -> list[str]:
        """Return what goes before it in the line of its namespace, the first first."""
        own = self._rank(body, priority)
        ranked = []
        for each in self._around.line or ():
            if _is(each, body):
                continue
            try:
                parts: Sequence[Part] = parts_made(each.kind, each.body, self._around.limits)
            except (FieldError, GangError):
                parts = ()
            rank = self._rank(each.body, self._priority(each.body, parts)[0])
            if rank >= own:
                ranked.append((-rank, each.created, each.label))
        return [label for *_, label in sorted(ranked)]

    def _priority(self, body: Mapping[str, Any], parts: Sequence[Part]) -> tuple[int, str]:
        wanted, wrong = priority_asked(annotations_of(body))
        return (self._classes.of(parts), wrong) if wanted is None else priority_allowed(wanted, self._around.quotas)

    @cached_property
    def _classes(self) -> Priorities:
        """The PriorityClasses, as far as this account may list them."""
        status, listed = self._ask("GET", path_to("/apis/scheduling.k8s.io/v1", "priorityclasses"), None)
        found = Priorities()
        for each in mappings(listed.get("items")) if status == 200 else ():
            found.changed(each, gone=False)
        return found

    def _rank(self, body: Mapping[str, Any], priority: int) -> float:
        """Return its priority with what it has gained by waiting, as the line of the engine has it by default."""
        created = time_of(metadata_of(body).get("creationTimestamp"))
        waited = 0.0 if created is None else max(0.0, (self._now - created).total_seconds())
        return priority + waited / AGE_STEP

    def _leads(self) -> bool | None:
        """Return whether an operator leads; None: this account may not list Leases."""
        path, known = path_to("/apis/coordination.k8s.io/v1", "leases"), False
        for chosen in ({"fieldSelector": f"metadata.name={OPERATOR}"}, {"labelSelector": OF_THE_CHART}):
            status, listed = self._ask("GET", f"{path}?{urlencode(chosen)}", None)
            known = known or status == 200
            if status == 200 and any(map(self._is_held, mappings(listed.get("items")))):
                return True
        return False if known else None

    def _is_held(self, lease: Mapping[str, Any]) -> bool:
        record, renewed = read_record(lease), time_of(mapping(lease.get("spec")).get("renewTime"))
        if not record.holder or renewed is None:
            return False
        return (self._now - renewed).total_seconds() < record.duration + SKEW


def _is(job: WaitingJob, body: Mapping[str, Any]) -> bool:
    uid = metadata_of(body).get("uid")
    return bool(uid) and metadata_of(job.body).get("uid") == uid
