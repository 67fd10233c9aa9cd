"""Which rights each way of running backoff-ctrl uses, what is lost without one, and how the API server is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from backoff_ctrl.k8s.kube.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.answers.bounded_json import read_json

log = logging.getLogger(__name__)

REVIEW: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""Where any account may ask what it may do itself."""
ALL: Final = ""
"""The value of ``namespace`` for all namespaces, and for cluster-scoped objects."""


@dataclass(frozen=True, slots=True)
class Right:
    """A right in the cluster. ``without``: what does not work without it, and how to grant it.

    ``name``: of the one object that it is for. ``namespace``: where; None: in the one that the check is about.
    """

    verb: str
    resource: str
    without: str = ""
    group: str = ""
    name: str = ""
    namespace: str | None = None

    @classmethod
    def on(cls, verb: str, kind: str, name: str = "") -> Right:
        """Return the right on a kind as quotas name it, ``jobs.batch`` or ``pods/log``; ``name``: of one object."""
        resource, _, group = kind.partition(".")
        return cls(verb, resource, group=group, name=name)

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {kind}/{self.name}" if self.name else f"{self.verb} {kind}"

    def where(self, namespace: str) -> str:
        """Return where it is needed, for a check about ``namespace``."""
        found = namespace if self.namespace is None else self.namespace
        return f"in {found}" if found else "in all namespaces"

    def review(self, namespace: str) -> dict[str, Any]:
        """Return the body of the question whether the account that asks has it."""
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        return {**kind, "spec": {"resourceAttributes": self.attributes(namespace)}}

    def attributes(self, namespace: str) -> dict[str, str]:
        """Return what an access review asks about."""
        resource, _, subresource = self.resource.partition("/")
        return {
            "namespace": namespace if self.namespace is None else self.namespace,
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "name": self.name,
        }

    def lacking(self, namespace: str) -> str:
        return f"lacks the right to {self} {self.where(namespace)}: {self.without}"


def each_once(rights: Iterable[Right]) -> list[Right]:
    """Return rights without repetitions, each with all that does not work without it: two kinds may differ in version
    alone, and two needs may ask for the same.
    """
    found: dict[Right, list[str]] = {}
    for right in rights:
        told = found.setdefault(replace(right, without=""), [])
        if right.without not in told:
            told.append(right.without)
    return [replace(right, without="; ".join(filter(None, told))) for right, told in found.items()]


def granted(status: int, answer: Mapping[str, Any]) -> bool | None:
    """Return what the server says of a right; None if it does not say."""
    said = answer.get("status")
    return bool(said.get("allowed")) if status in (200, 201) and isinstance(said, dict) else None


def denied(status: int, body: bytes) -> bool:
    """Return whether an answer says that a right is missing. Raises ``ValueError`` if it does not say."""
    answer = read_json(body)
    said = granted(status, answer) if isinstance(answer, dict) else None
    if said is None:
        raise ValueError(f"the access review was answered {status}")
    return not said


class OwnRights:
    """What an account lacks of the rights that it needs, by the API server's last answer."""

    def __init__(
        self,
        ask: Callable[[Mapping[str, Any]], Awaitable[tuple[int, bytes]]],
        rights: Sequence[Right],
        namespaces: Sequence[str] = (ALL,),
        whose: str = "this account",
    ) -> None:
        """``ask`` sends a review with the account's credentials, and returns status and body.

        ``namespaces``: those that rights without one of their own are needed in. ``whose``: for the log.
        """
        self.lacking: list[str] = []
        """A line for each missing right."""
        self._ask = ask
        self._rights = rights
        self._namespaces = tuple(dict.fromkeys(namespaces))
        self._whose = whose

    async def ask(self) -> None:
        """Ask about each. If the API server does not answer, its earlier answer stays."""
        asked = [(right, namespace) for namespace in self._namespaces for right in self._rights]
        try:
            found = [each.lacking(where) for each, where in asked if denied(*await self._ask(each.review(where)))]
        except (NotSent, OutcomeUnknown, ValueError) as error:
            log.info("the rights of %s are not known: %s", self._whose, error)
            return
        for line in found:
            if line not in self.lacking:
                log.warning("%s %s", self._whose, line)
        self.lacking = found

    async def keep_asking(self, every: float) -> NoReturn:
        """Ask now and then: roles change."""
        while True:
            await self.ask()
            await asyncio.sleep(every)


_LEARNS: Final = "the gate learns from rejections instead: bind the role view to this account"
_QUOTAS: Final = (Right("list", "resourcequotas", _LEARNS), Right("watch", "resourcequotas", _LEARNS))
CREATOR: Final = (
    Right("create", "pods", "the gate can't create pods: bind a role that allows create on pods to this account"),
    Right("get", "pods", "after a lost answer, only creates with generated names can be resolved: allow get on pods"),
    Right("watch", "pods", "the gate does not notice when pods end: allow list and watch on pods"),
    *_QUOTAS,
)
"""Of an account whose creates are gated in its own program, or by a sidecar."""
_ENDS: Final = "the gateway does not notice when pods end: allow list and watch on pods"
GATEWAY: Final = (*_QUOTAS, Right("list", "pods", _ENDS), Right("watch", "pods", _ENDS))
"""Of the gateway's own account, in each namespace that creators create in: they create with tokens of their own."""


def injection(certificates: Mapping[str, str] | None) -> Sequence[Right]:
    """Return the rights of the webhook that gives pods the sidecar, with ``certificates`` as below."""
    counts = "labelled pods without a sidecar are not counted, and no alert reports them: allow list on pods"
    found = [Right("list", "pods", counts, namespace=ALL)]
    return [*found, *kept_certificates(certificates, ("mutatingwebhookconfigurations",))]


def webhooks(certificates: Mapping[str, str] | None, kinds: Sequence[str]) -> Sequence[Right]:
    """Return the rights of the webhooks beside the operator. ``kinds``: what they suspend, such as ``jobs.batch``."""
    asks = "every create of a Task is refused, since its user's rights can't be checked: allow create on it"
    counts = "Jobs that run ungated are not counted there, and no alert reports them: allow list on it"
    found = [
        Right("create", "subjectaccessreviews", asks, "authorization.k8s.io", namespace=ALL),
        Right("list", "namespaces", counts, namespace=ALL),
        *(replace(Right.on("list", kind), without=counts, namespace=ALL) for kind in kinds),
    ]
    configurations = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    return each_once([*found, *kept_certificates(certificates, configurations)])


_DEVICES: Final = "resource.k8s.io"
_WAITS: Final = "what waits suspended there is not let in: allow get, list, watch and patch on it"
_TASKS: Final = "Tasks are not carried out: allow get, list, watch, patch and delete on it"


def operator(
    lease: str, own: str, namespaces: Sequence[str], kinds: Sequence[str] = ("jobs.batch",)
) -> Sequence[Right]:
    """Return the rights of the operator; the objects of Tasks need those of their kinds beside them.

    ``lease`` is its Lease in the namespace ``own``, ``namespaces`` those that it looks after (empty: all), ``kinds``
    what waits suspended.
    """
    leads = "no replica leads, and no Job is let in: allow get and update on this Lease"
    found = [Right(verb, "leases", leads, "coordination.k8s.io", lease, own) for verb in ("get", "update")]
    worth = "a PriorityClass counts as 0: allow list and watch"
    found += [Right(verb, "priorityclasses", worth, "scheduling.k8s.io", namespace=ALL) for verb in ("list", "watch")]
    asks = "the label of a namespace does not count where no webhook suspends: allow list and watch"
    found += [Right(verb, "namespaces", asks, namespace=ALL) for verb in ("list", "watch")]
    stands = "the extended resource of a DeviceClass is not weighed: allow list"
    found.append(Right("list", "deviceclasses", stands, _DEVICES, namespace=ALL))
    found.append(
        Right(
            "get",
            "runtimeclasses",
            "the overhead of a RuntimeClass is not weighed: allow get",
            "node.k8s.io",
            namespace=ALL,
        )
    )
    default = "claims of the default StorageClass are not weighed as its own: allow list"
    found.append(Right("list", "storageclasses", default, "storage.k8s.io", namespace=ALL))
    devices = "the devices of ResourceClaimTemplates are not weighed: allow get"
    brings = "what a controller has made counts as made, though a quota may refuse it: allow list and watch"
    quotas = "the operator learns of room from refusals alone: allow list and watch on quotas"
    ranges = "the defaults of LimitRanges are not charged: allow list and watch"
    ends = "the room of pods that end comes back late: allow get, list and watch"
    tells = "kubectl describe does not show what a Job waits for: allow create and patch"
    for each in namespaces or (ALL,):
        found += [Right(verb, "resourcequotas", quotas, namespace=each) for verb in ("list", "watch")]
        found += [Right(verb, "limitranges", ranges, namespace=each) for verb in ("list", "watch")]
        found += [Right(verb, "pods", ends, namespace=each) for verb in ("get", "list", "watch")]
        found.append(Right("get", "resourceclaimtemplates", devices, _DEVICES, namespace=each))
        for kind, group in (("persistentvolumeclaims", ""), ("services", ""), ("resourceclaims", _DEVICES)):
            found += [Right(verb, kind, brings, group, namespace=each) for verb in ("list", "watch")]
        for kind in kinds:
            found += [
                replace(Right.on(verb, kind), without=_WAITS, namespace=each)
                for verb in ("get", "list", "watch", "patch")
            ]
        for verb in ("get", "list", "watch", "patch", "delete"):
            found.append(Right(verb, "tasks", _TASKS, "backoff-ctrl.dev", namespace=each))
        found.append(Right("patch", "tasks/status", _TASKS, "backoff-ctrl.dev", namespace=each))
        found += [Right(verb, "events", tells, "events.k8s.io", namespace=each) for verb in ("create", "patch")]
    return each_once(found)


def kept_certificates(certificates: Mapping[str, str] | None, configurations: Sequence[str]) -> Sequence[Right]:
    """Return the rights of a webhook on its certificates. ``certificates``: where it keeps its own; None: others do.

    The keys are ``namespace``, ``kept`` (its Secret, and its Lease) and ``webhook`` (its configurations).
    """
    found: list[Right] = []
    if certificates is not None:
        own, kept = certificates["namespace"], certificates["kept"]
        keeps = "the webhook can't keep its certificates, and the API server will not call it: allow get and update"
        for verb in ("get", "update"):
            found += [
                Right(verb, "secrets", keeps, name=kept, namespace=own),
                Right(verb, "leases", keeps, "coordination.k8s.io", kept, own),
            ]
        trusts = "the API server does not trust the webhook, and does not call it: allow get and patch"
        for verb in ("get", "patch"):
            group, named = "admissionregistration.k8s.io", certificates["webhook"]
            found += [Right(verb, kind, trusts, group, named, ALL) for kind in configurations]
    return found


def page(gates_in: Sequence[str] = (), namespaces: Sequence[str] = (), *, asks_who: bool = True) -> Sequence[Right]:
    """Return the rights of ``serve``, which finds gates in some namespaces, and shows the quotas of some or all.

    ``asks_who``: people sign in with tokens; otherwise it serves this machine alone.
    """
    who, found = "people can't sign in: allow create on it", list[Right]()
    if asks_who:
        found += [
            Right("create", "tokenreviews", who, "authentication.k8s.io", namespace=ALL),
            Right("create", "subjectaccessreviews", who, "authorization.k8s.io", namespace=ALL),
        ]
    lost = "`explain` and `holders` do not know the extended resources of device classes"
    found.append(Right("list", "deviceclasses", lost, _DEVICES, namespace=ALL))
    found.append(Right("get", "runtimeclasses", "`explain` does not know their overhead", "node.k8s.io", namespace=ALL))
    found.append(
        Right("list", "storageclasses", "`explain` does not know which is the default", "storage.k8s.io", namespace=ALL)
    )
    for each in namespaces or (ALL,):
        found += [
            Right("list", "resourcequotas", "no quota is shown: allow list and watch", namespace=each),
            Right("watch", "resourcequotas", "no quota is shown: allow list and watch", namespace=each),
            Right("list", "limitranges", "`explain` does not know the defaults of LimitRanges", namespace=each),
            Right("get", "resourceclaimtemplates", "`explain` does not know their devices", _DEVICES, namespace=each),
            Right("list", "pods", "`holders` does not know the pods that hold a quota", namespace=each),
            Right("get", "namespaces", "`holders` does not see whether a namespace exists", namespace=each),
        ]
    found += [Right("list", "pods", "no gates are found there", namespace=each) for each in gates_in]
    return each_once(found)
