"""Creates of one idempotency key in one process: one at a time. The others follow it, and get the object it made."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.creates.actions import Broken, Event
from backoff_ctrl.k8s.creates.creation import KeyReusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.conversation import Conversation
    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.creates.ungated import Ungated


class SameKey:
    """Knows which creates that have not ended share a key. Thread-safe."""

    def __init__(self) -> None:
        """None is known yet."""
        self._lock = threading.Lock()
        self._lines: dict[tuple[str, ...], list[Follower]] = {}
        self._following: dict[str, dict[Follower, None]] = {}  # by namespace

    def enter(self, create: Follower) -> bool:
        """Say whether the create may begin; if not, it will be told to go on (``followed``).

        Raises ``KeyReusedError`` if it asks for another body than the create ahead of it.
        """
        with self._lock:
            line = self._lines.setdefault(_identity(create.creation), [])
            if line and create.body_hash != line[0].body_hash:
                raise KeyReusedError(create.creation.key, line[0].creation.label)
            if create not in line:
                line.append(create)
            first = line[0] is create
            self._note(create, follows=not first)
            return first

    def following(self, namespace: str) -> list[Follower]:
        """Return the creates of a namespace that wait for another one with their key, the first one first."""
        with self._lock:
            return list(self._following.get(namespace, ()))

    def leave(self, create: Follower, owe: Callable[[Callable[[], None]], object]) -> None:
        """Note that a create has ended; owe those that followed it a call, so that they go on."""
        made = create.answer if create.answer is not None and create.answer.ok else None
        with self._lock:
            identity = _identity(create.creation)
            line = self._lines.get(identity, [])
            if create not in line:
                return
            if line[0] is create:
                for each in line[1:]:
                    owe(partial(each.followed, made))
            line.remove(create)
            self._note(create, follows=False)
            if not line:
                del self._lines[identity]

    def _note(self, create: Follower, *, follows: bool) -> None:
        namespace = create.creation.namespace
        if follows:
            self._following.setdefault(namespace, {})[create] = None
        elif create in (known := self._following.get(namespace, {})):
            del known[create]
            if not known:
                del self._following[namespace]


class Follower(ABC):
    """The part of a driver that follows another create with its key."""

    __slots__ = ("follows",)
    began: float
    creation: Creation
    machine: Conversation | Ungated
    answer: Answer | None
    follows: bool
    """Whether it waits for another create that has its key."""

    @property
    def body_hash(self) -> str:
        """The hash of the body as asked for; empty if it is not known."""
        return "" if self.machine.named is None else self.machine.named.body_hash

    def leads(self, line: SameKey) -> bool:
        """Say whether it may begin: it has no key, or no other create of this process has it. Else follow that one."""
        if self.creation.key is None:
            return True
        try:
            self.follows = not line.enter(self)
        except KeyReusedError as error:
            self.step(Broken(error))
            return False
        if self.follows:
            self.starts_to_wait()
        return not self.follows

    def followed(self, answer: Answer | None) -> None:
        """Go on: the create ahead has ended, with this success, or without one. Safe from any thread."""
        self.post(self._begin_anew if answer is None else partial(self.share, answer))

    def _begin_anew(self) -> None:
        if self.follows:  # else it was told twice
            self.begin()

    @abstractmethod
    def begin(self) -> None:
        """Start, or follow."""

    @abstractmethod
    def post(self, step: Callable[[], object]) -> None:
        """Run the step soon, where the create's steps run."""

    @abstractmethod
    def step(self, event: Event) -> None:
        """Give the machine an event."""

    @abstractmethod
    def starts_to_wait(self) -> None:
        """Limit the waiting from now on, and tell the caller."""

    @abstractmethod
    def share(self, answer: Answer) -> None:
        """End with the answer of the create ahead."""


def _identity(creation: Creation) -> tuple[str, ...]:
    return (creation.namespace, creation.resource, creation.name, creation.key or "")
