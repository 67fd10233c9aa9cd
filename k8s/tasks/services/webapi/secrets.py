"""The secrets of one task, as a call of its plugin reads them, and texts without them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from backoff_ctrl.k8s.kube.answers.fields import mapping, text
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext
from backoff_ctrl.k8s.tasks.plugins.web_protocol import CallContext, SecretError

HIDDEN: Final = "[secret]"
HIDDEN_FROM: Final = 4
"""The fewest characters of a secret that is hidden: a shorter one is part of too many words."""

ReadSecret = Callable[[str, str, str, str], Awaitable[str]]
"""Reads a secret: the name that the task gives it, the namespace, the Secret and its key."""


class TaskSecrets:
    """Reads the secrets that a task names, and knows those that were read."""

    def __init__(self, task: TaskContext, read: ReadSecret) -> None:
        self._task = task
        self._read = read
        self._values: set[str] = set()

    async def __call__(self, name: str) -> str:
        """Read a secret. Raises ``SecretError``, and network faults."""
        named = mapping(mapping(self._task.spec.get("secrets")).get(name))
        if not named:
            raise SecretError(f"spec.secrets.{name}: the plugin needs this secret: name it")
        about = self._task.metadata
        value = await self._read(name, about.namespace, text(named.get("secret")), text(named.get("key")))
        self._values |= {value, value.strip(), quote(value, safe=""), repr(value)[1:-1]}
        return value

    def hide(self, said: str) -> str:
        """Return a text without the secrets that were read."""
        for each in sorted(self._values, key=len, reverse=True):
            if len(each) >= HIDDEN_FROM:
                said = said.replace(each, HIDDEN)
        return said


def hidden(context: CallContext, said: str) -> str:
    """Return a text of a plugin or its service without the secrets that this call has read."""
    return context.secret.hide(said) if isinstance(context.secret, TaskSecrets) else said


def hidden_in(context: CallContext, info: PhaseInfo) -> PhaseInfo:
    """Return what a plugin says with its sentences without secrets."""
    error = info.error and replace(info.error, message=hidden(context, info.error.message))
    return replace(info, reason=hidden(context, info.reason), error=error)
