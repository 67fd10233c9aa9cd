"""Shared by the tests of conversations: a create, the server's answers about its name, and the usual first steps."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.gate.creates.actions import Ticketed
from backoff_ctrl.k8s.gate.creates.conversation import Conversation, Creation
from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID
from tests.kit.playbook import Playbook, line, send, status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.gate.creates.actions import Answered

FOREIGN: Final = {"kind": "Pod", "metadata": {"name": "web-0", "uid": "foreign"}, "spec": {"containers": []}}


def conversation(name: str | None = "web-0", *, prefix: str | None = None, key: str | None = None) -> Conversation:
    """Begin the create of a pod, under the caller's name, or with a prefix to which the gate adds the rest."""
    metadata = {"name": name} if prefix is None else {"generateName": prefix}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}]}}
    return Conversation(Creation("http://s", "me", "team", "pods", body, key=key), random.Random(7))


def sent(machine: Conversation, name: str | None = None) -> Playbook:
    """Play the usual first steps: it joins the line, gets a ticket, and is sent."""
    return Playbook(machine) << line() >> Ticketed() << send(name)


def stored(machine: Conversation, **metadata: Any) -> Mapping[str, Any]:
    """Our object as the server would return it."""
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
    """The server's 403 to a look-up."""
    text = 'pods "web-0" is forbidden: User "me" cannot get resource "pods" in API group "" in the namespace "team"'
    return status(403, "Forbidden", text, kind="pods")


def absent() -> Answered:
    """The server's 404 to a look-up."""
    return status(404, "NotFound", 'pods "web-0" not found', name="web-0", kind="pods")
