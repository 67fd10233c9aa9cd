"""What the tests of conversations begin with: a create, the server's words on its name, and the usual opening."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.creates.actions import Ticketed
from backoff_ctrl.k8s.creates.conversation import Conversation, Creation
from backoff_ctrl.k8s.creates.naming import CREATE_ID
from tests.playbook import Playbook, line, send, status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.creates.actions import Answered

STRANGERS: Final = {"kind": "Pod", "metadata": {"name": "web-0", "uid": "strangers"}, "spec": {"containers": []}}


def conversation(name: str | None = "web-0", *, prefix: str | None = None, key: str | None = None) -> Conversation:
    """Begin the create of a pod: under its caller's name, or under one that is drawn behind a prefix."""
    metadata = {"name": name} if prefix is None else {"generateName": prefix}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}]}}
    return Conversation(Creation("http://s", "me", "team", "pods", body, key=key), random.Random(7))


def sent(machine: Conversation, name: str | None = None) -> Playbook:
    """Open as they all do: it stood in line, got its ticket, and was sent."""
    return Playbook(machine) << line() >> Ticketed() << send(name)


def stored(machine: Conversation, **metadata: Any) -> Mapping[str, Any]:
    """The object as the server would show it: ours."""
    annotations = {CREATE_ID: machine.named.create_id}
    return {
        "kind": "Pod",
        "metadata": {"name": machine.named.name, "annotations": annotations, **metadata},
        "spec": {"containers": [{"name": "c"}]},
    }


def taken(name: str = "web-0") -> Answered:
    """The server's 409: the name is in use."""
    return status(409, "AlreadyExists", f'pods "{name}" already exists', name=name, kind="pods")


def may_not_look() -> Answered:
    """The server's 403 of a look-up."""
    text = 'pods "web-0" is forbidden: User "me" cannot get resource "pods" in API group "" in the namespace "team"'
    return status(403, "Forbidden", text, kind="pods")


def absent() -> Answered:
    """The server's 404 of a look-up."""
    return status(404, "NotFound", 'pods "web-0" not found', name="web-0", kind="pods")
