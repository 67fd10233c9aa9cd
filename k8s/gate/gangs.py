"""Several creates that are admitted as one: what is asked for, how it waits for room, how its members are drawn.

``gang_of`` checks a gang before anything waits. ``gang_life`` takes it through the line: as one, limited in time, and
cancelled like a create. ``AdmittedGang`` then creates its members, one by one, from what is reserved for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from uuid import uuid4

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.parts import MEMBERS_MAX, Parts, is_count
from backoff_ctrl.engine.gangs.gang import Draw, Gang, Grant, Reservation
from backoff_ctrl.engine.look.outlook import Outlook
from backoff_ctrl.engine.tickets import Refusal
from backoff_ctrl.k8s.gate.creates.actions import Call, ListQuotas
from backoff_ctrl.k8s.gate.creates.creation import Creation, OptionError
from backoff_ctrl.k8s.gate.creates.wait import Wait, wait_of
from backoff_ctrl.k8s.kube.answers.answer import Answer, GateClosed, WaitedTooLong
from backoff_ctrl.k8s.kube.answers.fields import FieldError, metadata_of
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.parts import Part, parts_of
from backoff_ctrl.k8s.kube.charges.resources import resource_of

from .any_gate import AnyGate
from .expected_pods import ExpectedGang, with_label
from .ledger import Ledger
from .life import raised_by_us
from .unfinished import Signal, Turn, Unfinished

Makes: TypeAlias = Callable[[Mapping[str, Any], str], Iterable[Part]]
GangLife: TypeAlias = Generator[Turn | Call, Any, None]

_PART: Final = re.compile(r"\b(?P<how>by|a member of) part (?P<number>\d+)")


class GangRefused(Exception):  # noqa: N818 - the engine's word for it
    """A gang was not admitted, and no member of it was created; the message says why, with the part and the amount.

    ``reason`` is the engine's word: ``never-fits``, ``quotas-unreadable``, ``too-many-waiting``, ``given-back``;
    ``detail`` is its sentence.
    """

    def __init__(self, said: str, reason: str = "", detail: str = "") -> None:
        super().__init__(said, reason)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class GangAsked:
    """A gang: its parts, and how it waits. ``limit``: seconds without a draw after which what is undrawn is given back.

    ``creation`` says where it goes, and with which priority and time limit it waits; its body names the gang.
    ``templates`` are the sections from which others make pods, by the resource that is created for that: the pods get
    the gang's label there. ``pods_made`` are the numbers of those parts, from 0.
    """

    creation: Creation
    parts: Parts
    limit: float | None = None
    standing: bool = False
    templates: Mapping[str, frozenset[str]] = field(default_factory=dict)
    pods_made: frozenset[int] = frozenset()
    titles: tuple[str, ...] = ()
    """What people know each part by."""
    made_from: Mapping[str, Any] | None = None
    """The stored object that others make the members from, if this gang does not create it."""
    keeps: bool = False
    label: str = ""
    """The value of ``GANG_LABEL`` in what others make of it; empty: a new one."""

    def in_words(self, detail: str) -> str:
        """Name the parts that an explanation counts: ``by part 2`` becomes ``for the pods of Job train``."""
        return _PART.sub(lambda found: self._titled(found[0], found["how"], int(found["number"])), detail)

    def _titled(self, said: str, how: str, number: int) -> str:
        if not 0 < number <= len(self.titles):
            return said
        title = self.titles[number - 1]
        return f"for {title}" if how == "by" else f"one of {title}" if title.startswith("the ") else title

    @property
    def count(self) -> int:
        return sum(count for _, count in self.parts.parts)


class _Members:
    """Collects members; those of equal charge are one part."""

    def __init__(self, namespace: str, resource: str, makes: Makes) -> None:
        self.namespace = namespace
        self.resource = resource
        self._makes = makes
        self.counts: dict[tuple[str, bool], tuple[Demand, int]] = {}  # by demand, and whether others make them
        self.titles: dict[tuple[str, bool], str] = {}
        self.templates: dict[str, frozenset[str]] = {}

    def add(self, number: int, manifest: Mapping[str, Any], count: int) -> None:
        if not isinstance(manifest, dict):
            raise GangError(
                f"part {number} is not a manifest but {type(manifest).__name__}: a gang is a list of objects"
            )
        other = metadata_of(manifest).get("namespace")
        if other not in (None, "", self.namespace):
            raise GangError(
                f"part {number} is of namespace {other}, the gang of {self.namespace}: quotas hold for one each"
            )
        try:
            resource = resource_of(manifest) if manifest.get("kind") and manifest.get("apiVersion") else self.resource
            title = _title(manifest, resource)
            self._put(footprint(manifest, resource=resource), count, title, made=False)
            made = [part for part in self._makes(manifest, resource) if not part.suspended]
        except (FieldError, AttributeError) as error:
            raise GangError(f"part {number} can't be read: {error}") from error
        for part in made:
            if part.count is None:
                raise GangError(f"part {number}: only the cluster knows how many {part.kind}s a {part.made_by} makes")
            self._put(part.demand, count * part.count, f"the {part.kind}s of {title}", made=part.kind == "Pod")
        sections = frozenset(part.template for part in made if part.template)
        if sections:
            self.templates[resource] = self.templates.get(resource, frozenset()) | sections

    def _put(self, demand: Demand, count: int, title: str, *, made: bool) -> None:
        known = self.counts.get((demand.key, made))
        if known is not None and is_count(count):
            count += known[1]
        self.counts[demand.key, made] = (demand, count)
        self.titles.setdefault((demand.key, made), title)


def _makes(manifest: Mapping[str, Any], resource: str) -> Iterable[Part]:
    return parts_of(manifest, resource=resource)


def _title(manifest: Mapping[str, Any], resource: str) -> str:
    """Return what people know an object by: the first of equal ones stands for all."""
    metadata = metadata_of(manifest)
    name = metadata.get("name") or metadata.get("generateName") or ""
    return f"{manifest.get('kind') or resource} {name}".strip()


def _is_limit(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def gang_of(  # noqa: PLR0913 - each is an option of its own
    namespace: str,
    members: Iterable[tuple[Mapping[str, Any], int]],
    *,
    resource: str = "pods",
    name: str = "",
    server: str = "",
    credential: str = "",
    priority: int = 0,
    timeout: float | None = None,
    limit: float | None = None,
    standing: bool = False,
    made_from: Mapping[str, Any] | None = None,
    makes: Makes = _makes,
    keeps: bool = False,
    label: str = "",
) -> GangAsked:
    """Describe a gang by (manifest, number of them). Members of equal charge are one part.

    What a manifest's controller makes of it (the pods of a Job) belongs to the gang. ``resource`` is that of manifests
    without a kind. ``name`` is what people know the gang by. ``standing``: what lives of it already lacks these
    members, after a restart: it does not wait. ``made_from``: the object, as it is stored, that others make the members
    from; they are known by it, and what is reserved for them outlasts the gang's block. ``makes`` says
    what is made of a manifest, where the caller knows more than we do. ``keeps``: it keeps its room until it is given
    back (``AdmittedGang``), and has no limit. ``label``: the gang's label in what lives already of it. Raises
    ``OptionError`` for an option that is wrong, and ``GangError``, which is a ``ValueError``, for members that can't be
    read, are of several namespaces, or make no gang.
    """
    if limit is not None and not _is_limit(limit):
        raise OptionError(f"limit must be a number of seconds above 0, not {limit!r}")
    if limit is not None and keeps:
        raise OptionError("a gang that keeps its room lasts until it is given back: leave out the limit")
    found = _Members(namespace, resource, makes)
    for number, (manifest, count) in enumerate(members, 1):
        if not is_count(count):
            raise GangError(f"part {number} has 1 to {MEMBERS_MAX} members, as a whole number, not {count!r}")
        found.add(number, manifest, count)
    parts = Parts(found.counts.values())
    body = {"metadata": {"name": name or f"gang-of-{sum(count for _, count in parts.parts)}"}}
    creation = Creation(server, credential, namespace, resource, body, priority, timeout)
    made = frozenset(number for number, (_, is_made) in enumerate(found.counts) if is_made or made_from is not None)
    return GangAsked(
        creation, parts, limit, standing, found.templates, made, tuple(found.titles.values()), made_from, keeps, label
    )


def as_one(manifest: Mapping[str, Any], parts: tuple[Part, ...], *, resource: str) -> GangAsked:
    """Describe an object and all that is made of it as one, which a Task reserves and a Job that waits needs.

    Raises ``GangError``.
    """
    namespace = str(metadata_of(manifest).get("namespace") or "")
    return gang_of(namespace, [(manifest, 1)], resource=resource, makes=lambda _manifest, _resource: parts)


def why_never(asked: GangAsked, found: Outlook) -> str:
    """Return why a gang never fits, in the words of its refusal; empty: it does, or that is not known."""
    return asked.in_words(found.why_never) if found.prospect == "never" else ""


class AdmittedGang:
    """Room for a whole gang: create its members with ``create``, then leave the ``with`` block.

    ``gate`` is the gate that it waited at. Without ``gang`` no room is reserved: the gate does not enforce, or failed;
    its members are then created like any others.

    A gang that ``keeps`` its room lasts until ``give_back``, or the end of the object that it is made from. When a
    member ends, its room is reserved again, as far as the gang wants so many: ``wanted`` at first, ``resize`` less of
    them. ``absorb`` takes another gang in, ``adopt`` a member that lived before.
    """

    def __init__(
        self, gate: Any, ledger: Ledger, asked: GangAsked, gang: Gang | None, engine: Controller | None
    ) -> None:
        """``engine`` is the one that admitted it: after an internal error there is a new one, which knows no gang."""
        self.gate = gate
        self.asked = asked
        self.namespace = asked.creation.namespace
        self.label = asked.label or uuid4().hex[:16]  # the value of ``GANG_LABEL`` in what others make of it
        self.gang = gang
        self.engine = engine
        self._ledger = ledger
        if gang is not None and engine is not None and asked.pods_made:
            ledger.gangs.expect(ExpectedGang(self.label, gang, engine, asked.templates, asked.pods_made))

    @property
    def name(self) -> str:
        """What people know it by."""
        return self.asked.creation.name

    @property
    def whole(self) -> bool:
        """Whether the whole was found to fit. False: quotas can't be read, or no room is reserved."""
        return self.gang is not None and self.gang.whole

    @property
    def drawn(self) -> int:
        """The number of members that were sent and not refused; those that live, of a gang that keeps its room."""
        return 0 if self.gang is None else self.gang.drawn

    @property
    def undrawn(self) -> int:
        """The number of members that may still be created from what is reserved."""
        return 0 if self.gang is None or self.gang.end is not None else self.gang.left

    @property
    def given_back(self) -> int:
        """The number of members that were given back: its limit has passed, or its block was left."""
        return self.gang.left if self.gang is not None and self.gang.end in ("limit", "given-back") else 0

    @property
    def over(self) -> bool:
        """Whether its reservation is over: all were drawn, it was given back, or its limit has passed."""
        return self.gang is None or self.gang.end is not None

    def create(self, creation: Creation, transport: Any) -> Any:
        """Create a member as ``gate.create`` does (await it on an ``AsyncGate``). What is no member waits in line."""
        return self.gate.create(replace(creation, gang=self), transport)

    def appeared(self, uid: str, manifest: Mapping[str, Any], resource: str = "pods") -> bool:
        """Note a member that another client created, by its uid and its manifest as stored; say whether it counts."""
        if self.gang is None or self.engine is None:
            return False
        return self._ledger.gangs.appeared(self.gang, self.engine, uid, manifest, resource)

    def adopt(self, uid: str, manifest: Mapping[str, Any], resource: str = "pods") -> bool:
        """Note a member that lived before this gang, and is charged already; say whether it is new.

        It takes the place of an undrawn one, and its room is not held again. The gang keeps its room.
        """
        if self.gang is None or self.engine is None:
            return False
        return self._ledger.gangs.adopt(self.label, self.gang, self.engine, uid, manifest, resource)

    def charged(self, uid: str, demand: Demand, resource: str, *, lived: bool) -> bool:
        """Note an object beside its pods that another client made for this gang; say whether it counts.

        ``lived``: before this gang, as ``adopt`` says. Its end is reported by ``ledger.gangs.member_ended``.
        """
        if self.gang is None or self.engine is None:
            return False
        return self._ledger.gangs.charged(self.gang, self.engine, uid, demand, resource, lived=lived)

    def resize(self, counts: Sequence[int]) -> None:
        """Have at most so many members at a time, by part, from now on. The gang keeps its room.

        What is undrawn beyond is given back in one step, what lives beyond when it ends. A count above that of now
        has no effect. Raises ``GangError`` for counts that are not one per part.
        """
        if self.gang is not None and self.engine is not None:
            self._ledger.gangs.resize(self.gang, self.engine, counts)

    def absorb(self, other: AdmittedGang) -> None:
        """Take over another gang of such parts, which is over then; no other create gets any of its room in between.

        Raises ``GangError`` if either is over, or the parts differ.
        """
        if self.gang is not None and other.gang is not None and self.engine is not None:
            self._ledger.gangs.absorb(self.label, self.gang, other.label, other.gang, self.engine)

    def stored(self, manifest: Mapping[str, Any], resource: str) -> None:
        """Note an object that was created for this gang, as it is stored: its pods may be known by who owns them."""
        if resource != "pods" and self.asked.pods_made and not self.over:
            self._ledger.gangs.gang_stored(self.label, self.namespace, manifest, resource)

    def labelled(self, resource: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return what is created with the gang's label where others make pods from it."""
        for path in self.asked.templates.get(resource, ()):
            body = with_label(body, path.split("."), self.label)
        return body

    def leave(self, *, failed: bool) -> None:
        """Give back what is undrawn, unless others are still to make it of what was created."""
        if failed or not self.asked.pods_made or not (self.drawn or self.asked.made_from):
            self.give_back()

    def give_back(self) -> None:
        """Give back what is undrawn. Twice is no error."""
        if self.gang is not None and self.engine is not None and not self.over:
            self._ledger.gangs.give_back(self.gang, self.engine)

    def member(self, engine: Controller, _: float, number: str, demand: Demand, flow: str) -> Draw | None:
        """Describe a create of this demand as a draw; None: it is no member, or all are drawn. The lock is held."""
        gang = self.gang
        if gang is None or engine is not self.engine:
            return None
        for part, shape in enumerate(gang.shapes):
            if shape.demand.key == demand.key and (gang.end in ("given-back", "limit") or gang.may_draw(part)):
                return Draw(number, gang, part, flow)
        return None


class GangWait(Unfinished):
    """One gang on its way into the line, until it is admitted, refused or gone: then it has a ``gang`` or an ``error``.

    No object carries its ``create_id``: lists of what waits know it by that.
    """

    __slots__ = ("_id", "asked", "gang", "ledger")
    follows = False  # it has no key, and so waits for no other create of that key
    sends = 0

    def __init__(self, gate: AnyGate, asked: GangAsked) -> None:
        self.ledger = gate.ledger
        super().__init__(asked.creation, gate, self.ledger.now())
        self.asked = asked
        self.gang: AdmittedGang | None = None
        self._id = str(uuid4())

    @property
    def create_id(self) -> str:
        return self._id

    @property
    def over(self) -> bool:
        return self.gang is not None or self.error is not None

    @property
    def seconds(self) -> float:
        return self.ledger.now() - self.began

    @property
    def label(self) -> str:
        return f"gang {self.creation.namespace}/{self.creation.name} ({self.asked.count} {self.creation.resource})"

    @property
    def waits(self) -> bool:
        return not self.over

    def wait(self) -> Wait:
        creation = self.creation
        return wait_of(
            (creation.namespace, f"gang of {self.asked.count} {creation.resource}", creation.name),
            None if self.request is None else self.ledger.explain(self.request),
            waited=self.seconds,
            priority=creation.priority,
            server=creation.server,
        )

    def describe(self) -> str:
        return f"{self.label}: waiting in line, {self.seconds:.1f} s after it began ({self.wait().why})"

    def cancel(self, error: BaseException) -> None:
        self.gate = None
        self.ledger.line.stop([(self, error)])

    @contextmanager
    def held_gang(self) -> Iterator[AdmittedGang]:
        """Hold the admitted gang for a block, or raise the error. What the block leaves undrawn is given back."""
        if self.gang is None:
            raise self.error or GateClosed(f"{self.label} ended without an answer")
        failed = True
        try:
            yield self.gang
            failed = False
        finally:
            self.gang.leave(failed=failed)


def gang_life(wait: GangWait, gate: AnyGate, *, may_read: bool) -> GangLife:
    """Take a gang through the line. ``may_read``: the quotas of its namespace can be read, where no watch reports them.

    After an error of ours, and where the gate does not enforce, no room is reserved and no create waits.
    """
    ledger, reads = wait.ledger, False
    try:
        while not wait.over:
            try:
                reads = False
                turn = wait.turn or _join(wait, gate, may_read)
                if turn is None:
                    wait.gang = AdmittedGang(gate, ledger, wait.asked, None, None)
                    continue
                if turn.value is None:
                    yield turn
                reads = turn.value is Signal.READ
                if reads:
                    yield from _read(wait)
                else:
                    _take(wait, gate)
            except Exception as error:  # noqa: BLE001 - fails open; and a read that fails is asked for again
                if not reads or raised_by_us(error):
                    ledger.failed_open(error)
                if not reads:
                    wait.gang = AdmittedGang(gate, ledger, wait.asked, None, None)
    finally:
        if not wait.over:  # its caller has gone
            wait.error = wait.stopped or GateClosed(f"{wait.label} ended without an answer")
            wait.gate = None
        ledger.line.end(wait, None, at_once=False)


def _join(wait: GangWait, gate: AnyGate, may_read: bool) -> Turn | None:
    ledger, creation, asked = wait.ledger, wait.creation, wait.asked
    if gate.mode(creation.namespace) != "enforce":
        return None
    line = ledger.line
    line.track(wait)
    request = Reservation(
        line.number(),
        creation.namespace,
        asked.parts,
        creation.priority,
        ledger.answers.flow(creation),
        limit=asked.limit,
        keeps=asked.keeps,
    )
    turn = Turn(wait.until, may_read=may_read)
    line.reserve(wait, request, turn, standing=asked.standing)
    if turn.value is None:
        ledger.engine.attempt(ledger.notices.waits, wait)
        ledger.exit_check.begin()
    return turn


def _read(wait: GangWait) -> Generator[Call, Any, None]:
    """Read the quotas of the namespace for all gangs there, and report how that ended."""
    ledger, namespace, sent = wait.ledger, wait.creation.namespace, wait.ledger.now()
    readable = None
    try:
        answer: Answer = yield ListQuotas()
        if answer.ok:
            ledger.read(namespace, answer, sent)
            readable = True
        elif ledger.may_not_read(namespace, answer):
            readable = False
    finally:
        ledger.looked(namespace, readable=readable)


def _take(wait: GangWait, gate: AnyGate) -> None:
    ledger, turn = wait.ledger, wait.turn
    why = wait.wait() if turn is not None and turn.pending else None
    value = ledger.line.take(wait)
    if wait.stopped is not None:
        wait.error = wait.stopped
    elif isinstance(value, Grant):
        assert turn is not None
        turn.settled = True
        wait.gang = gang = AdmittedGang(gate, ledger, wait.asked, value.gang, turn.engine)
        if wait.asked.made_from is not None:
            gang.stored(wait.asked.made_from, "")
    elif isinstance(value, Refusal):
        detail = wait.asked.in_words(value.detail)
        wait.error = GangRefused(f"{wait.label} was refused: {detail}", value.reason, detail)
    elif value is Signal.OPENED:
        wait.gang = AdmittedGang(gate, ledger, wait.asked, None, None)
    else:
        wait.error = WaitedTooLong(wait.gave_up(why), None, why)
