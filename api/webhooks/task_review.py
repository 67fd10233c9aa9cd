"""Tasks that ``kubectl`` creates or changes: may the user have that done, and is the change one that may be made?

The operator carries Tasks out with its own account, which may create more than most people may. So it is asked of each:
may this account create that kind of object in that namespace (``tasks/permitting``, as over HTTP)? When a Task is
created, and when what comes of it changes: its spec, or the labels and annotations that its objects inherit. Finalizers
and the status are never in question. A Task that can't be judged, because the API server does not say or its type has
no plugin here, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from backoff_ctrl.k8s.kube.answers.fields import mapping, metadata_of, text
from backoff_ctrl.k8s.kube.cluster.rights import Right
from backoff_ctrl.k8s.kube.cluster.subjects import Subject, Subjects, UnansweredError
from backoff_ctrl.k8s.tasks.cluster.objects import inherited, read_spec, stored
from backoff_ctrl.k8s.tasks.cluster.schema import GROUP, PLURAL
from backoff_ctrl.k8s.tasks.model import NOTED_WITH
from backoff_ctrl.k8s.tasks.permitting import ChangedError, changes, to_change, to_create
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.registry import Entry
from backoff_ctrl.k8s.tasks.plugins.signal import flaw_of_signal
from backoff_ctrl.k8s.tasks.store import ConflictError, Wish, is_new_signal

from .review import allowed, namespace_of, note_bug, refused, request_in
from .sidecar import JSON

Check: TypeAlias = Callable[[Wish], Entry]
"""Returns the plugin of a task, after it has checked the task. Raises ``TaskSpecError``."""
REMEDY: Final = "bind the account of the webhooks to the ClusterRole system:auth-delegator"
ALLOWED: Final = "allowed"
FOR_OTHERS: Final = Right("patch", f"{PLURAL}/status", group=GROUP)
"""The right of servers of tasks, which sign for those that ask them."""


@dataclass(eq=False)
class _Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """Why a Task is refused: a word for counting, and the Status that its author gets."""

    outcome: str
    code: int
    reason: str
    message: str


class TaskReviews:
    """Answers reviews of Tasks. Its methods block: call them in a thread."""

    def __init__(self, check: Check, resolve: Callable[[str], Entry], subjects: Subjects) -> None:
        """``resolve`` returns the plugin of a task type. Raises ``PluginError``."""
        self._check = check
        self._resolve = resolve
        self._subjects = subjects

    def answer(self, body: bytes) -> tuple[JSON, str, str]:
        """Return the answer to a review, the Task's namespace, and the outcome as a word. Raises ``ReviewError``."""
        request = request_in(body)
        try:
            self._judge(request)
        except _Refusal as why:
            return refused(request, why.code, why.reason, why.message), namespace_of(request), why.outcome
        except Exception as error:  # noqa: BLE001 - a bug of ours lends no user the operator's rights
            note_bug(error, "a Task could not be judged")
            message = "backoff-ctrl could not judge this Task: the log of its webhooks says why"
            return refused(request, 500, "InternalError", message), namespace_of(request), "failed"
        return allowed(request), namespace_of(request), ALLOWED

    def _judge(self, request: JSON) -> None:
        """Raise ``_Refusal`` for a Task that must not be stored so."""
        resource, body, old = (mapping(request.get(each)) for each in ("resource", "object", "oldObject"))
        if (resource.get("group"), resource.get("resource")) != (GROUP, PLURAL) or request.get("subResource"):
            return
        if request.get("operation") == "CREATE":
            self._insist_on_author(request)
            entry, spec = self._readable(request, body)
            self._insist(request, to_create(entry, spec))
            self._check_signaller(request, spec)
        elif request.get("operation") == "UPDATE":
            self._judge_change(request, old, body)

    def _insist_on_author(self, request: JSON) -> None:
        """Raise ``_Refusal`` for an author who may not write the Task: such a review does not come from an API server.

        Any client that reaches the port may ask. It learns no account that has no part in Tasks.
        """
        verbs = ("create",) if request.get("operation") == "CREATE" else ("update", "patch")
        name = text(request.get("name")) if "create" not in verbs else ""  # the rights to create are to any name
        rights = [Right(verb, PLURAL, group=GROUP, name=name) for verb in verbs]
        subject, namespace = Subject.of(mapping(request.get("userInfo"))), namespace_of(request)
        if not any(self._may(subject, namespace, right) for right in rights):
            message = f"{subject.name} may not {verbs[0]} {PLURAL}.{GROUP} in namespace {namespace}"
            raise _Refusal("forbidden", 403, "Forbidden", message)

    def _judge_change(self, request: JSON, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        spec = mapping(new.get("spec"))
        try:
            changed = changes(mapping(old.get("spec")), spec)
        except ChangedError as error:
            raise _Refusal("changed", 422, "Invalid", str(error)) from None
        marks = inherited(old) != inherited(new)
        if not changed and not marks:
            return
        self._insist_on_author(request)
        entry = self._known(text(spec.get("type")))
        self._insist(request, (*to_change(entry, spec, changed), *(to_create(entry, spec) if marks else ())))
        for asked, note in NOTED_WITH.items():
            if note in changed and asked not in changed:
                raise _Refusal("changed", 422, "Invalid", f"spec.{note} can't be changed: it is written with {asked}")
        if "signal" in changed:
            _check_signal(old, spec.get("signal"))
            self._check_signaller(request, spec)

    def _check_signaller(self, request: JSON, spec: Mapping[str, Any]) -> None:
        """Raise ``_Refusal`` for a signal in another's name. A server that writes status signals for its callers."""
        by, subject = text(mapping(spec.get("signalled")).get("by")), Subject.of(mapping(request.get("userInfo")))
        if by not in ("", subject.name) and not self._may(subject, namespace_of(request), FOR_OTHERS):
            message = (
                f"spec.signalled.by: you are {subject.name}, and can't signal as {by[:253]}: leave spec.signalled out"
            )
            raise _Refusal("forbidden", 403, "Forbidden", message)

    def _readable(self, request: JSON, body: Mapping[str, Any]) -> tuple[Entry, Mapping[str, Any]]:
        """Return the plugin and the spec of a new Task. Raises ``_Refusal`` for one that could never run."""
        read = read_spec(body)
        name = text(metadata_of(body).get("name"))
        try:
            if read.refused:
                raise _Refusal("invalid", 422, "Invalid", read.refused)
            return self._check(Wish(namespace_of(request), name, read.metadata, read.spec, read.abort)), read.spec
        except TaskSpecError as error:
            raise _Refusal("invalid", 422, "Invalid", str(error)) from None

    def _known(self, type_: str) -> Entry:
        try:
            return self._resolve(type_)
        except PluginError as error:
            message = f"spec.type: {error}; without its plugin this task can only be deleted"
            raise _Refusal("invalid", 422, "Invalid", message) from None

    def _insist(self, request: JSON, rights: Iterable[Right]) -> None:
        """Raise ``_Refusal`` if the user lacks one of these rights in the Task's namespace."""
        subject, namespace = Subject.of(mapping(request.get("userInfo"))), namespace_of(request)
        for right in rights:
            if self._may(subject, namespace, right):
                continue
            message = (
                f"{subject.name} may not {right} in namespace {namespace}, and a Task may do no more than its author"
            )
            raise _Refusal("forbidden", 403, "Forbidden", message)

    def _may(self, subject: Subject, namespace: str, right: Right) -> bool:
        try:
            return self._subjects.may(subject, namespace, right)
        except UnansweredError as error:
            raise _Refusal("unanswered", 503, "ServiceUnavailable", str(error)) from None


def _check_signal(old: Mapping[str, Any], value: Any) -> None:
    """Raise ``_Refusal`` for a signal that its Task does not take, as the other ways to signal it do."""
    message = flaw_of_signal(value)
    try:
        is_new_signal(stored(old, read_spec(old), 0), value)
    except ConflictError as error:
        message = str(error)
    if message:
        raise _Refusal("invalid", 422, "Invalid", f"spec.signal: {message}")
