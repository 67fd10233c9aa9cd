"""A Task of the API server as a stored task, and a stored status as the server keeps it. Pure.

The server checks Tasks by the schema, but a schema can't express all rules; and people edit a status by hand. What
can't be used is no error of the store: it is a task that has failed, with a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from backoff_ctrl.k8s.kube.answers.fields import is_going, mapping, mapping_in, mappings, metadata_of, text
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.kube.operators.wrong_values import told
from backoff_ctrl.k8s.tasks.model import API_VERSION, JSON, KIND, NOTED_WITH, TaskStatus, shown, unix
from backoff_ctrl.k8s.tasks.plugins.marks import FINALIZER
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.stepping import OVER, failed_at_once, has_begun
from backoff_ctrl.k8s.tasks.store import Stored, Wish

from .conditions import INVALID_SPEC, short, shown_with
from .schema import OF_CLUSTER

DAMAGED: Final = "StatusDamaged"
"""The code of a task whose status was edited so that its history is unknown."""
EDITED: Final = "its phase was written by somebody else: the manager looks what has become of the attempt"
CIRCLE: Final = "NeedsInACircle"
_ESSENTIAL: Final = frozenset({"phase", "attempt", "pluginState"})
"""Fields of a status without which an attempt can't be continued."""
_OTHERS: Final = ("kubectl.kubernetes.io/", "meta.helm.sh/", "argocd.argoproj.io/")
"""Annotations that tools keep about the Task itself: on its pods they would mislead those tools, or repeat the spec."""


@dataclass(frozen=True, slots=True)
class Read:
    """The spec of a Task in one generation. ``refused``: why it can't be run; empty: it can."""

    generation: int
    metadata: JSON
    spec: JSON
    abort: bool
    refused: str = ""


def read_spec(body: Mapping[str, Any]) -> Read:
    """Return the spec of a Task, normalised as other stores have it."""
    own, generation = metadata_of(body), generation_of(body)
    spec = dict(mapping(body.get("spec")))
    for asked, note in NOTED_WITH.items():
        if spec.get(asked) not in (None, False) and note not in spec and (writer := _writer(body, asked)):
            spec[note] = writer
    metadata = {"name": own.get("name"), "namespace": own.get("namespace"), **inherited(body)}
    try:
        manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
        wish = wish_of(read_task(manifest))
    except TaskSpecError as error:
        abort = spec.get("abort") is True
        return Read(generation, {}, {**spec, "type": text(spec.get("type"))}, abort, str(error))
    return Read(generation, wish.metadata, wish.spec, wish.abort)


def _writer(body: Mapping[str, Any], name: str) -> JSON:
    """Return the program that wrote a field of a Task's spec, and when, by what the server keeps of each field."""
    for entry in mappings(metadata_of(body).get("managedFields")):
        if f"f:{name}" in mapping_in(entry.get("fieldsV1"), "f:spec"):
            return {"by": f"the program {text(entry.get('manager'))[:200]}", "at": text(entry.get("time"))}
    return {}


def inherited(body: Mapping[str, Any]) -> JSON:
    """Return the labels and annotations of a Task that its objects get, too."""
    own = metadata_of(body)
    annotations = mapping(own.get("annotations")).items()
    return {
        "labels": dict(mapping(own.get("labels"))),
        "annotations": {name: value for name, value in annotations if not name.startswith(_OTHERS)},
    }


def generation_of(body: Mapping[str, Any]) -> int:
    """Return the number of the spec's version; 0 where the server does not count."""
    found = metadata_of(body).get("generation")
    return found if isinstance(found, int) else 0


def is_held(body: Mapping[str, Any]) -> bool:
    """Return whether our finalizer is on a Task."""
    return FINALIZER in (metadata_of(body).get("finalizers") or ())


def created_at(body: Mapping[str, Any]) -> float:
    """Return when a Task was created, as Unix time."""
    found = text(metadata_of(body).get("creationTimestamp"))
    return datetime.fromisoformat(found).timestamp() if found else 0.0


def number_of(body: Mapping[str, Any]) -> int:
    """Return a number that orders Tasks by their creation, the same in each process, and unique.

    The server counts creations in whole seconds; within one they are in the order of their uids.
    """
    uid = text(metadata_of(body).get("uid")).replace("-", "")
    within = int(uid[:16], 16) if len(uid) == 32 else abs(hash(uid)) % 2**64
    return (int(created_at(body)) << 64) | within


def stored(body: Mapping[str, Any], read: Read, version: int, doomed: str = "") -> Stored:
    """Return a Task as a stored one. ``version`` is that of its status; ``doomed``: why it can never begin."""
    own = metadata_of(body)
    raw = mapping(body.get("status"))
    created = created_at(body)
    status = read_status(raw, created, 0 if read.refused else read.spec.get("again", 0))
    if status.ended_at is None:
        if read.refused:
            status = _failed(status, INVALID_SPEC, f"{read.refused}; change that, and create the task anew")
        elif doomed and not status.attempt and status.plugin_state is None:
            status = _failed(status, CIRCLE, f"spec.needs: these tasks would wait for each other forever: {doomed}")
    found = Stored(
        uid=text(own.get("uid")),
        number=number_of(body),
        namespace=text(own.get("namespace")),
        name=text(own.get("name")),
        metadata=read.metadata,
        spec=read.spec,
        abort=read.abort or is_going(body),
        status=status,
        version=version,
        open=status.ended_at is None,
        created_at=created,
    )
    return replace(found, open=True) if found.is_asked_again and not read.refused else found


def _failed(status: TaskStatus, code: str, reason: str) -> TaskStatus:
    if status.phase in OVER:  # decided already, and not written to its end
        return status
    unreleased = status.model_copy(update={"cleaned": not has_begun(status)})
    return failed_at_once(unreleased, code, reason, unix(status.created_at), ErrorKind.USER)


def read_status(raw: Mapping[str, Any], created: float, again: int = 0) -> TaskStatus:
    """Return the status of a Task; one that was not written yet begins at its creation, with its ``spec.again``.

    Fields that can't be read are left out. Where one of them says what the task has done, it has failed: begun anew,
    it might do everything twice.
    """
    at = shown(created)
    fields = {name: value for name, value in raw.items() if name not in OF_CLUSTER}
    if not fields:
        return TaskStatus(created_at=at, since=at, again=again)
    dropped: dict[str, str] = {}
    while True:
        try:
            status = TaskStatus.model_validate_json(json.dumps(fields))
        except ValidationError as error:
            for each in error.errors(include_url=False):
                name = str(each["loc"][0]) if each["loc"] else ""
                dropped.setdefault(name, told(each))
                if fields.pop(name, None) is None:
                    fields = {}  # not even an object
        else:
            break
    status = status.model_copy(update={"created_at": status.created_at or at, "since": status.since or at})
    lost = sorted(dropped.keys() & _ESSENTIAL)
    if lost and status.phase not in OVER:
        said = f"status.{lost[0]} can't be read ({dropped[lost[0]]}): only the manager may write a status"
        return failed_at_once(status.model_copy(update={"cleaned": False}), DAMAGED, said, created, ErrorKind.USER)
    if _is_edited(status):
        return status.model_copy(update={"phase": Phase.NOT_READY.title, "reason": EDITED, "code": None, "kind": None})
    return status


def _is_edited(status: TaskStatus) -> bool:
    """Return whether a status claims an end that the manager did not write: what it writes with an end is missing."""
    if status.ended_at is not None or status.plugin_state is None:
        return False
    if status.phase == Phase.RETRYABLE_FAILURE.title:
        return status.next_attempt_at is None
    return status.phase in OVER and status.cleaned


def status_of(status: TaskStatus, body: Mapping[str, Any]) -> JSON:
    """Return a status as the server keeps it, in place of that of ``body``."""
    before = mapping(body.get("status"))
    kept: JSON = short(status).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    kept.setdefault("phase", status.phase)
    return {**kept, **shown_with(status, before.get("conditions")), "observedGeneration": generation_of(body)}


def manifest_of(wish: Wish) -> JSON:
    """Return the Task that is created for a wish."""
    metadata = {**wish.metadata, "name": wish.name, "namespace": wish.namespace}
    spec = {**wish.spec, "abort": True} if wish.abort else wish.spec
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
