"""Creates that wait for each other, not for room: for another one with their key, and for the first list of quotas.

Two tables, guarded by the ledger's lock. Creates of one idempotency key go one at a time: the others follow, and get
the object that the first one made. And the first create in a namespace lists its quotas before it joins the line, so
that not even that one is refused; creates that come meanwhile wait for the list, which takes one round trip. If quotas
may not be listed, or no answer comes, they go on and learn from refusals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from backoff_ctrl.k8s.gate.creates.creation import KeyReusedError

from .unfinished import Turn, Unfinished

FirstStep: TypeAlias = Literal["go", "read", "wait"]
"""What a create does first: join the line, list the quotas, or wait for another create's list."""
READ_PATIENCE: Final = 2.0
"""Seconds that a create waits for the list. After that it is sent without."""
LISTING_MAX: Final = 3 * READ_PATIENCE
"""Seconds after which a list is given up by those who wait for it: the create that began it is lost."""
NAMESPACES_MAX: Final = 10_000
"""Above this number, namespaces without a recent create are forgotten."""

_Key: TypeAlias = tuple[str, str, str, str]


class SameKey:
    """Which creates that have not ended share a key. The first of each line leads, the others follow it."""

    def __init__(self) -> None:
        self._lines: dict[_Key, dict[Unfinished, str]] = {}  # in order, with the hashes of their bodies
        self._following: dict[str, dict[Unfinished, None]] = {}  # by namespace

    def enter(self, create: Unfinished, body_hash: str) -> bool:
        """Return whether it leads; if not, its ``turn`` is from now on its wait for the create ahead.

        Raises ``KeyReusedError`` if it asks for another body than the create ahead of it.
        """
        line = self._lines.setdefault(_key_of(create), {})
        leader = next(iter(line), create)
        if line and line[leader] != body_hash:
            raise KeyReusedError(create.creation.key, leader.creation.label)
        line.setdefault(create, body_hash)
        if leader is create:
            self._follows_no_more(create)
            return True
        self._following.setdefault(create.creation.namespace, {})[create] = None
        return False

    def ended_ahead(self, create: Unfinished) -> Unfinished | None:
        """Return the create that leads, if it has ended: that is noted in a moment, or a bug of ours prevents it."""
        ahead = next(iter(self._lines.get(_key_of(create), {})), None)
        return ahead if ahead is not None and ahead.over else None

    def following(self, namespace: str) -> list[Unfinished]:
        return list(self._following.get(namespace, ()))

    def waits(self) -> list[Turn]:
        following = [each for known in self._following.values() for each in known]
        return [each.turn for each in following if each.turn is not None]

    def leave(self, create: Unfinished) -> list[Turn]:
        """Note that a create has ended; return the waits of those that follow it. Twice is no error."""
        key = _key_of(create)
        line = self._lines.get(key, {})
        leads = next(iter(line), None) is create
        line.pop(create, None)
        self._follows_no_more(create)
        if not line:
            self._lines.pop(key, None)
        return [each.turn for each in line if each.turn is not None] if leads else []

    def _follows_no_more(self, create: Unfinished) -> None:
        namespace = create.creation.namespace
        known = self._following.get(namespace, {})
        if create in known:
            del known[create]
            if not known:
                del self._following[namespace]


def _key_of(create: Unfinished) -> _Key:
    creation = create.creation
    return creation.namespace, creation.resource, creation.name, creation.key or ""


@dataclass(slots=True)
class _Listing:
    began: float
    waiting: list[Turn] = field(default_factory=list)


class FirstList:
    """Whose quotas were listed, and which creates wait for which list.

    A namespace without a create for ``quiet`` seconds is listed again: the engine forgets it by then, too. One whose
    quotas are watched is never listed: the watch has reported them all, and its news is newer than a list.
    """

    def __init__(self, quiet: float) -> None:
        self._quiet = quiet
        self._namespaces: dict[str, _Listing | float] = {}  # being listed, or the time of the last create

    def __len__(self) -> int:
        return len(self._namespaces)

    def is_listed(self, namespace: str, now: float) -> bool:
        """Return whether a create need not ask, since the list is fresh; it keeps it so. Needs no lock."""
        known = self._namespaces.get(namespace)
        if known is None or isinstance(known, _Listing) or now - known >= self._quiet:
            return False
        self._namespaces[namespace] = now
        return True

    def ask(self, namespace: str, turn: Turn, now: float, *, watched: bool = False) -> FirstStep:
        """Return what a create in this namespace does first. For "wait", ``turn`` is its wait for the list.

        A create that is to list the quotas ("read") must see to it that ``done`` is called in any case.
        """
        known = self._namespaces.get(namespace)
        if isinstance(known, _Listing) and now - known.began < LISTING_MAX:
            known.waiting.append(turn)
            return "wait"
        if len(self._namespaces) > NAMESPACES_MAX:
            self._forget_quiet(now)
        listed = watched or not (known is None or isinstance(known, _Listing) or now - known >= self._quiet)
        self._namespaces[namespace] = now if listed else _Listing(now)
        return "go" if listed else "read"

    def forget(self, namespace: str) -> None:
        """Have the next create list the quotas of this namespace, unless one does so now."""
        if not isinstance(self._namespaces.get(namespace), _Listing):
            self._namespaces.pop(namespace, None)

    def waiting(self, namespace: str) -> list[Turn]:
        known = self._namespaces.get(namespace)
        return known.waiting if isinstance(known, _Listing) else []

    def done(self, namespace: str, now: float) -> None:
        self._namespaces[namespace] = now

    def _forget_quiet(self, now: float) -> None:
        for namespace, known in list(self._namespaces.items()):
            if not isinstance(known, _Listing) and now - known >= self._quiet:
                del self._namespaces[namespace]
