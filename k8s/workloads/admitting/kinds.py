"""The kinds that can be let in, as data: Jobs, JobSets, Ray's, Kubeflow's and Spark's; which objects are left alone.

Pure: the webhook that suspends at CREATE and the operator that lets in ask the same functions.

Sources: ``pkg/apis/batch/v1`` of k8s.io/api v0.36 (Job); ``pkg/webhooks/jobset_webhook.go`` of sigs.k8s.io/jobset
(what may change while a JobSet is suspended); ``ray-operator/controllers/ray/utils/validation.go`` of KubeRay
(``ValidateRayJobSpec``); ``pkg/apis/kubeflow.org/v1`` of the training operator;
``pkg/controller/mpi_job_controller.go`` of the MPI operator (it makes the launcher's Job while its MPIJob is
suspended, and only resumes it later); ``pkg/apis/trainer/v1alpha1`` and ``pkg/runtime/framework/plugins/jobset`` of
Kubeflow's Trainer (it makes a TrainJob's JobSet, suspended as that is, before anything runs);
``internal/controller/sparkapplication/controller.go`` of the Spark operator (since v2.4); and
``pkg/controller/jobs`` of Kueue, which suspends the same kinds by the same fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeAlias

from backoff_ctrl.k8s.gate.creates.creation import Owner, owner_named
from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID, GANG_LABEL, WAIT_LABEL
from backoff_ctrl.k8s.kube.answers.fields import (
    annotations_of,
    labels_of,
    mapping,
    mapping_in,
    mappings,
    metadata_of,
    text,
)
from backoff_ctrl.k8s.kube.answers.statuses import number
from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.operators import states as operator_states
from backoff_ctrl.k8s.kube.operators.states import Stands, field_of, has_ended, that_are, written
from backoff_ctrl.k8s.kube.paths import group_path
from backoff_ctrl.k8s.kube.watching.objects import WatchedKind

from .stages import parts_at_peak

WAIT: Final = WAIT_LABEL
SUSPENDED_BY: Final = "backoff-ctrl.dev/suspended-by"
"""The annotation of an object that was suspended at its creation, so that it waits; its value is ``webhook``."""
WEBHOOK: Final = "webhook"
ADMITTED: Final = "backoff-ctrl.dev/admitted"
"""The annotation of an object that was let in: its uid, when, and with what. It does not count on a copy."""
STAY_SUSPENDED: Final = "backoff-ctrl.dev/stay-suspended"
"""The annotation by which its user keeps an object suspended; its value is ``true``."""
RELEASED_BY: Final = "backoff-ctrl.dev/released-by"
"""The annotation of an object that a user let in without reserved room: who."""
WAITS_FOR: Final = "backoff-ctrl.dev/waits-for"
"""The annotation that says what a suspended object waits for."""
MIN_PARALLELISM: Final = "backoff-ctrl.dev/min-parallelism"
"""The annotation of a Job that may begin with fewer pods than its parallelism, but with at least so many."""
PARALLELISM: Final = "backoff-ctrl.dev/parallelism"
"""The annotation with the parallelism that such a Job asked for, while it has less."""
PRIORITY: Final = "backoff-ctrl.dev/priority"
"""The annotation with an object's priority in line, where its PriorityClass is not to decide."""
TASK: Final = ("backoff-ctrl.dev", "Task")
"""The group and the kind of what our own account creates objects for, their room being reserved."""
QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
"""The label of an object that Kueue lets in."""
OURS: Final = (ADMITTED, SUSPENDED_BY, RELEASED_BY, WAITS_FOR)
"""What only we write on an object: on a new one it is a copy of what was written on another."""
TRUE: Final = "true"
WAITING_NAMESPACES: Final = WatchedKind(
    "/api/v1", "namespaces", frozenset({"Namespace"}), namespaced=False, labels=f"{WAIT}={TRUE}"
)
"""The namespaces whose label asks for waiting."""
DIGITS_MAX: Final = 10
NAME_MAX: Final = 512
"""Characters of a name, a uid or an API version in a reference to an owner. Names have 253 at most."""

Makes: TypeAlias = Callable[[Mapping[str, Any]], tuple[Part, ...]]
"""Says what one resumed object makes, where ``charges/parts`` does not know the kind. Raises ``FieldError``."""


@dataclass(frozen=True, slots=True)
class Need:
    """What an object must have so that it may be suspended: the field at ``path`` is set (``given``), or is not."""

    path: str
    given: bool
    sentence: str
    """What else happens, and what to do."""


@dataclass(frozen=True, slots=True)
class AdmissibleKind:
    """A kind of objects that make no pods while they are suspended.

    Paths are names of fields joined by dots. ``resource`` is ``jobs.batch``, as in quotas; ``_over`` are its states in
    which it makes no more pods.
    """

    api_version: str
    kind: str
    plural: str
    suspend: str = "spec.suspend"
    managed_by: str = ""
    """The field that names the controller in charge; empty: the kind has none."""
    manager: str = ""
    """The value that names the kind's own controller."""
    parallelism: str = ""
    """The field with the number of pods at a time, where that may change while it runs; empty: it may not."""
    states: Mapping[str, Stands] = field(default_factory=dict, hash=False)
    """What each state means: a word in the field ``state``, or without that the type of a condition that is True."""
    state: str = ""
    ended: Callable[[Mapping[str, Any]], bool] | None = None
    """Says whether one has ended, where a description of its operator does."""
    labelled: bool = True
    """Whether labels that its pod templates get while it is suspended reach all its pods."""
    needs: tuple[Need, ...] = ()
    makes: Makes | None = None
    made_through: str = ""
    """The resource of an object of the same name that its controller makes while it is suspended, and that says which
    pods come of it; empty: it says so itself."""

    group: str = field(init=False, compare=False)
    resource: str = field(init=False, compare=False)
    _over: frozenset[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        group = self.api_version.rpartition("/")[0]
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "resource", f"{self.plural}.{group}" if group else self.plural)
        object.__setattr__(self, "_over", that_are(self.states, Stands.ENDED, Stands.ENDING))

    @property
    def path(self) -> str:
        """The path of its API group at the server."""
        return group_path(self.api_version)

    def is_suspended(self, body: Mapping[str, Any]) -> bool:
        return field_at(body, self.suspend) is True

    def has_ended(self, body: Mapping[str, Any]) -> bool:
        if self.ended is not None:
            return self.ended(body)
        if self.state:
            return text(field_at(body, self.state)) in self._over
        conditions = mapping_in(body, "status").get("conditions")
        if not conditions:
            return False
        true = (each.get("type") for each in mappings(conditions) if each.get("status") == "True")
        return any(each in self._over for each in true)

    def may_not_be_suspended(self, body: Mapping[str, Any]) -> str:
        """Return why an object may not be suspended, with what to do; empty: it may."""
        return next((need.sentence for need in self.needs if bool(field_at(body, need.path)) is not need.given), "")


@dataclass(frozen=True, slots=True)
class Subject:
    """One object that can be let in, with what decides about it at each step: read once."""

    kind: AdmissibleKind
    body: dict[str, Any]
    namespace: str
    name: str
    uid: str
    version: str
    created: str
    generation: int
    """The number of its spec: each change raises it. 0: the server does not count the changes of its kind."""
    labels: Mapping[str, Any]
    annotations: Mapping[str, Any]
    owner: Owner | None
    """The object whose controller made it."""
    is_suspended: bool
    is_over: bool
    """It has ended, or is being deleted: it makes no more pods."""
    admitted: Mapping[str, Any]
    """What is noted on this very object, since it was let in; empty: it was not."""

    @property
    def asks(self) -> bool:
        """Whether its label asks for waiting."""
        return self.labels.get(WAIT) == TRUE

    @property
    def never_waited(self) -> bool:
        """Whether it has run since its creation."""
        return not self.is_suspended and self.generation == 1

    def why_it_runs(self) -> str:
        """Return why it runs that was to wait, with what to do; empty: it waits, was let in, or was resumed.

        The API server drops a field that the definition of a kind does not have, so no user can have changed such an
        object.
        """
        kind = self.kind
        if self.admitted:
            return ""
        if why := kind.may_not_be_suspended(self.body):
            return why
        if not self.never_waited:
            return ""
        if self.annotations.get(SUSPENDED_BY) == WEBHOOK:
            return (
                f"it runs without waiting for room: the definition of {kind.kind} in this cluster has no field "
                f"{kind.suspend}. Install a version of its operator that can suspend it"
            )
        return (
            f"it runs without waiting for room: it was created without {kind.suspend}, and no webhook has set that. "
            f"Have the webhook called (backoff-ctrl inject --for jobs), or create it with {kind.suspend}: true"
        )

    def why_it_stays(self, left: Left | None) -> str:
        """Return why it is left suspended though it is asked for, with what to do; empty: it is not."""
        if not self.is_suspended or left is not Left.RESERVED:
            return ""
        return (
            f"it stays suspended, since what made it has reserved room for it: resume it, or take away its owner and "
            f"its annotation {CREATE_ID}, so that it waits in line"
        )


def subject_of(kind: AdmissibleKind, body: Mapping[str, Any]) -> Subject:
    """Read an object. A field of another type than its own counts as missing."""
    metadata = metadata_of(body)
    annotations, uid = mapping(metadata.get("annotations")), text(metadata.get("uid"))
    said = _said(annotations.get(ADMITTED)) if ADMITTED in annotations else {}
    return Subject(
        kind,
        dict(body) if not isinstance(body, dict) else body,
        text(metadata.get("namespace")),
        text(metadata.get("name")),
        uid,
        text(metadata.get("resourceVersion")),
        text(metadata.get("creationTimestamp")),
        number(metadata.get("generation")),
        mapping(metadata.get("labels")),
        annotations,
        controller_in(metadata),
        kind.is_suspended(body),
        bool(metadata.get("deletionTimestamp")) or kind.has_ended(body),
        said if uid and said.get("uid") == uid else {},  # a re-created one may carry the annotation of the one before
    )


def field_at(body: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path of field names; None: it is not there."""
    *outer, last = path.split(".")
    for name in outer:
        body = mapping_in(body, name)
    return body.get(last)


def patch_at(path: str, value: object) -> dict[str, Any]:
    """Return a JSON merge patch that sets the field at a path."""
    names = path.split(".")
    for name in reversed(names[1:]):
        value = {name: value}
    return {names[0]: value}


def whole_number(said: str) -> int | None:
    """Return a whole number as people write it; None: it is no number, or has more digits than numbers here need."""
    digits = said.removeprefix("-")
    return int(said) if digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS_MAX else None


def noted_at(body: Mapping[str, Any], annotation: str) -> Mapping[str, Any]:
    """Return what an annotation says as a JSON object, or an empty one.

    Each user who may change the object writes there.
    """
    return _said(annotations_of(body).get(annotation))


def _said(written: object) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(text(written)))
    except (ValueError, RecursionError):
        return {}


_NOT_SHUT_DOWN: Final = Need(
    "spec.shutdownAfterJobFinishes",
    given=True,
    sentence="a RayJob without shutdownAfterJobFinishes may not be suspended (its operator refuses it), so it does not "
    "wait for room: set spec.shutdownAfterJobFinishes",
)
_SELECTS_CLUSTER: Final = Need(
    "spec.clusterSelector",
    given=False,
    sentence="a RayJob that uses an existing RayCluster may not be suspended (its operator refuses it), so it does not "
    "wait for room: label the RayCluster instead of it, or give it a rayClusterSpec",
)


def _described(name: str, kind: str = "", **more: Any) -> AdmissibleKind:
    """Return the kind of a description that ships, or another ``kind`` of the same operator, with the same fields."""
    about = mapping(written(name).get("resource"))
    found = AdmissibleKind(
        text(about.get("api-version")),
        kind or text(about.get("kind")),
        f"{kind.lower()}s" if kind else text(about.get("plural")),
        field_of(name, "suspended"),
        field_of(name, "managed-by", "path"),
        field_of(name, "managed-by", "controller"),
        ended=partial(has_ended, name),
    )
    return replace(found, **more)


JOB: Final = AdmissibleKind(
    "batch/v1",
    "Job",
    "jobs",
    managed_by="spec.managedBy",
    manager="kubernetes.io/job-controller",
    parallelism="spec.parallelism",
    states=operator_states.JOB,
)
JOB_SET: Final = AdmissibleKind(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    "jobsets",
    managed_by="spec.managedBy",
    manager="jobset.sigs.k8s.io/jobset-controller",
    states=operator_states.JOB_SET,
    makes=parts_at_peak,
)
KINDS: Final = (
    JOB,
    JOB_SET,
    AdmissibleKind(
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        "trainjobs",
        managed_by="spec.managedBy",
        manager="trainer.kubeflow.org/trainjob-controller",
        states=operator_states.TRAIN_JOB,
        labelled=False,
        made_through=JOB_SET.resource,
    ),
    _described("ray", needs=(_NOT_SHUT_DOWN, _SELECTS_CLUSTER)),
    AdmissibleKind(
        "ray.io/v1",
        "RayCluster",
        "rayclusters",
        managed_by="spec.managedBy",
        manager="ray.io/kuberay-operator",
        state="status.state",
        states=operator_states.RAY_CLUSTER,
    ),
    _described("pytorch"),
    _described("tensorflow"),
    *(_described("pytorch", kind) for kind in ("XGBoostJob", "JAXJob", "PaddleJob")),
    _described("mpi-v2beta1", labelled=False),
    _described("mpi"),
    _described("spark", labelled=False),
)
"""What can be let in without a description (``described``). A server that lacks a kind is asked for it now and then."""


def indispensable(kinds: Iterable[AdmissibleKind]) -> list[AdmissibleKind]:
    """Return those that an operator must be able to let in: Jobs, and what was described. Others may be missing."""
    return [JOB, *(each for each in kinds if each not in KINDS)]


# -- whose an object is ---------


class Left(StrEnum):
    """Why an object is left alone."""

    UNASKED = "neither it nor its namespace asks for it"
    RESERVED = "its room was reserved when it was created"
    PART = "what made it waits, or does not, as a whole"
    KUEUE = "Kueue lets it in"
    ELSEWHERE = "another controller than its own is in charge of it"
    UNFIT = "it may not be suspended"
    HELD = "its user keeps it suspended"


def asks(body: Mapping[str, Any]) -> bool:
    """Return whether an object, or a namespace, carries the label that asks for waiting."""
    return labels_of(body).get(WAIT) == TRUE


def controller_of(body: Mapping[str, Any]) -> Owner | None:
    """Return the object whose controller made this one, or None."""
    return controller_in(metadata_of(body))


def controller_in(metadata: Mapping[str, Any]) -> Owner | None:
    """Return the object whose controller made this one, or None.

    A reference may have a megabyte, and owners are remembered: one that is longer than any real one names no object.
    """
    references = metadata.get("ownerReferences")
    if not references:
        return None
    for each in mappings(references):
        if each.get("controller") is True and all(len(text(value)) <= NAME_MAX for value in each.values()):
            owner = owner_named(each)
            if owner is not None:
                return owner
    return None


def kind_of(owner: Owner, kinds: Iterable[AdmissibleKind] = KINDS) -> AdmissibleKind | None:
    """Return the admissible kind of an owner, in any version it is named; None: it is of no such kind."""
    group = owner.api_version.rpartition("/")[0]
    return next((each for each in kinds if (each.group, each.kind) == (group, owner.kind)), None)


def _is_task(owner: Owner) -> bool:
    return (owner.api_version.rpartition("/")[0], owner.kind) == TASK


def left_alone(
    subject: Subject,
    *,
    asked: bool,
    kinds: Iterable[AdmissibleKind] = KINDS,
    above: Iterable[Owner] | None = None,
    by_us: bool | None = None,
) -> Left | None:
    """Return why an object is not ours to suspend or to let in; None: it is ours.

    ``asked``: whether it is to wait, by its label or its namespace's. ``above`` is the chain of its controllers as far
    as it is known, the nearest first; None: the one that it names. ``by_us``: whether our own account creates it; None:
    that is not known, and what a Task controls counts as such.
    """
    kind, body, labels = subject.kind, subject.body, subject.labels
    chain = [*(above if above is not None else filter(None, [subject.owner]))]
    marked = GANG_LABEL in labels or CREATE_ID in subject.annotations  # its user may write that, too
    manager = text(field_at(body, kind.managed_by)) if kind.managed_by else ""
    reasons = {
        Left.UNASKED: not asked,
        Left.RESERVED: marked and (by_us if by_us is not None else any(map(_is_task, chain))),
        Left.PART: any(kind_of(owner, kinds) for owner in chain),
        Left.KUEUE: bool(labels.get(QUEUE_NAME)),
        Left.ELSEWHERE: manager not in {"", kind.manager},
        Left.UNFIT: bool(kind.may_not_be_suspended(body)),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def left_waiting(
    subject: Subject,
    *,
    kinds: Iterable[AdmissibleKind] = KINDS,
    above: Iterable[Owner] | None = None,
    waiting_in: Container[str] = (),
    by_us: bool | None = None,
) -> Left | None:
    """Return why a stored object is not ours to let in; None: it is, or it was.

    It is asked for by its own label or that of its namespace (``waiting_in`` are the namespaces that have it), and
    where the webhook has suspended it or it was let in: labels may go.
    """
    webhook = subject.annotations.get(SUSPENDED_BY) == WEBHOOK
    asked = webhook or subject.asks or bool(subject.admitted) or subject.namespace in waiting_in
    reason = left_alone(subject, asked=asked, kinds=kinds, above=above, by_us=by_us)
    held = subject.annotations.get(STAY_SUSPENDED) == TRUE and subject.is_suspended
    return Left.HELD if reason is None and held else reason


def may_suspend(
    kind: AdmissibleKind,
    body: Mapping[str, Any],
    namespace: Mapping[str, Any],
    *,
    kinds: Iterable[AdmissibleKind] = KINDS,
    by_us: bool | None = None,
) -> Left | None:
    """Return why the webhook leaves a new object of this namespace running; None: it suspends it, and says so.

    What is suspended already is ``HELD``: the operator lets it in as it does others. ``by_us`` as in ``left_alone``.
    """
    subject = subject_of(kind, body)
    reason = left_alone(subject, asked=subject.asks or asks(namespace), kinds=kinds, by_us=by_us)
    return Left.HELD if reason is None and subject.is_suspended else reason


def cleaning(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that takes off a new object what was written on the one that it is a copy of."""
    copied = {name: None for name in OURS if name in annotations_of(body)}
    return {"metadata": {"annotations": copied}} if copied else {}


def suspension(kind: AdmissibleKind) -> dict[str, Any]:
    """Return the merge patch that suspends a new object."""
    return {**patch_at(kind.suspend, True), "metadata": {"annotations": {SUSPENDED_BY: WEBHOOK}}}
