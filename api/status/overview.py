"""All namespaces at a glance: how full each is, and who waits there by the gates' reports."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from backoff_ctrl.engine.facts.quantities import parse_quantity, taken_share
from backoff_ctrl.k8s.status.amounts import percent, rounded
from backoff_ctrl.k8s.status.asked import LIMIT_MAX
from backoff_ctrl.k8s.status.documents import watch_of
from backoff_ctrl.k8s.status.endpoints import OfCeilings
from backoff_ctrl.k8s.status.slices import sliced
from backoff_ctrl.k8s.status.sources import Following, ceilings_of

from .history import chart
from .shapes import SeenNamespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from backoff_ctrl.engine.look.explaining import NamespaceSnapshot
    from backoff_ctrl.k8s.status.sources import Source

    from .gate import Gate, Key
    from .gates import Gates
    from .history import Chart, History
    from .shapes import SeenCeiling
    from .unwatched import Unwatched

ALMOST: Final = 0.9
"""The used share from which on a quota is called almost full."""
CHARTED_MAX: Final = 12
"""Up to so many namespaces the page draws the history of their quotas."""
KEPT: Final = 1.0
"""Seconds that the order of all namespaces is cached."""


class Waits(TypedDict):
    """Who waits in a namespace, or in several. ``waiting`` is None if no gate reports it."""

    waiting: int | None
    oldest_since: str | None
    in_flight: int | None


Line: TypeAlias = "Mapping[str, Waits] | None"
"""All waiting creates, by namespace, as in the same answer; None: use the gates' last reports."""


NOBODY: Final = Waits(waiting=0, oldest_since=None, in_flight=0)


@dataclass(frozen=True, slots=True)
class Bar:
    """One ceiling on a card: used, held for creates in flight, and left, as shares of the limit."""

    seen: SeenCeiling
    used: str
    limited: str
    left: str
    percent: str
    """How much is used; these are for people."""
    used_share: float
    reserved_share: float
    full: bool
    trend: str
    """The change of use in the last minutes: ``↑ 2``, ``↓ 1``; empty if unchanged or unknown."""
    chart: Chart | None
    """Its last 15 minutes; None: not known, or there are too many namespaces to draw it."""

    @classmethod
    def of(cls, seen: SeenCeiling, chart: Chart | None) -> Bar:
        used, limited = parse_quantity(seen.used), parse_quantity(seen.limited)
        held = parse_quantity(seen.held or "0") + parse_quantity(seen.reserved or "0")
        asked = seen.block is not None or bool(seen.waiting)
        trend = parse_quantity(seen.trend or "0") if seen.gate_url is None else 0
        words = partial(rounded, resource=seen.resource, limit=limited)
        return cls(
            seen=seen,
            used=words(used),
            limited=words(limited),
            left=words(max(0, limited - used - held)),
            percent=percent(used, limited),
            used_share=taken_share(used, limited, asked=asked),
            reserved_share=taken_share(held, limited) if limited else 0.0,
            # By the quota: what gates hold may be used by now, and count twice.
            full=used >= limited and (limited > 0 or used > 0 or asked),
            trend=f"{'↑' if trend > 0 else '↓'} {words(abs(trend))}" if trend else "",
            chart=chart,
        )


@dataclass(frozen=True, slots=True)
class Card:
    """A namespace of the page, with its bars, the fullest first."""

    namespace: str
    fullest: float
    bars: Sequence[Bar]
    waiting: int | None
    oldest_since: str | None


@dataclass(frozen=True, slots=True)
class Glance:
    """The first sentence of the page: how many namespaces are full, and who waits in all of them.

    ``waiting`` is None if no gate answers.
    """

    namespaces: int
    full: int
    almost: int
    waiting: int | None
    oldest_since: str | None


class Overview:
    """Orders the namespaces of one cluster. Thread-safe."""

    def __init__(
        self,
        source: Source,
        gates: Gates,
        unwatched: Unwatched,
        history: History,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show what ``source`` observes, and what the gates report."""
        self._history = history
        self.unwatched = unwatched
        self._source = source
        self._gates = gates
        self._clock = clock
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._order: list[tuple[float, str]] = []
        self._shares: dict[str, float | None] = {}  # by namespace, negative; None: it has no quota
        self._forbidden: dict[str, list[Key]] = {}  # by namespace: limits of 0, which are full once a create asks
        self._following = Following(source)  # what these include

    def seen(self, name: str) -> SeenNamespace:
        found = self._source.namespace(name)
        quotas = {} if found is None else found[0].quotas
        told = self.unwatched.of(name)
        shares = [each.share for each in told.values()]
        if found is not None and quotas:
            shares += [_fullest(found[0]), *([1.0] if self._asks(name, _forbidden(found[0])) else [])]
        return SeenNamespace(
            namespace=name,
            watch=watch_of(self._source, name),
            quotas=len(quotas.keys() | {quota for quota, _ in told}),
            fullest=round(max(shares), 4) if shares else None,
            **self._waits(name),
        )

    def fullest(self, wanted: Callable[[str], bool], limit: int, line: Line = None) -> tuple[list[Card], int]:
        """Return cards of the fullest wanted namespaces, and the number of all wanted ones."""
        names = [name for _, name in self._ordered() if wanted(name)]
        charted = len(names) <= CHARTED_MAX
        cards = [card for name in names[:limit] if (card := self._card(name, line, charted=charted)) is not None]
        return cards, len(names)

    def glance(self, wanted: Callable[[str], bool], line: Line = None) -> Glance:
        shares = [-share for share, name in self._ordered() if wanted(name)]
        answering = self._gates.answering
        every = line.items() if line is not None else _told(answering)
        waits = _summed([found for name, found in every if wanted(name)])
        full = sum(share >= 1 for share in shares)
        return Glance(
            namespaces=len(shares),
            full=full,
            almost=sum(share >= ALMOST for share in shares) - full,
            waiting=waits["waiting"] if answering else None,
            oldest_since=waits["oldest_since"],
        )

    def _ordered(self) -> list[tuple[float, str]]:
        with self._lock:
            if self._clock() >= self._until:
                for changes in sliced(self._following.news()):
                    if changes.lost:
                        self._shares.clear()
                        self._forbidden.clear()
                        continue
                    for name in changes.gone:
                        self._shares.pop(name, None)
                        self._forbidden.pop(name, None)
                    for name, found in changes.items.items():
                        self._shares[name] = -_fullest(found) if found.quotas else None
                        self._forbidden[name] = _forbidden(found)
                shares = {name: share for name, share in self._shares.items() if share is not None}
                for name, keys in sliced(self._forbidden.items()):
                    if self._asks(name, keys):
                        shares[name] = min(shares.get(name, 0.0), -1.0)
                for name in sliced(self.unwatched.names()):
                    told = [-each.share for each in self.unwatched.of(name).values()]
                    if told:
                        shares[name] = min([*told, shares.get(name, 0.0)])
                self._order = sorted((share, name) for name, share in shares.items())
                self._until = self._clock() + KEPT
            return self._order

    def _asks(self, name: str, keys: Sequence[Key]) -> bool:
        """Return whether a create waits, at a gate, for one of these ceilings of a namespace."""
        holds = (self._gates.holds(name) or {}) if keys else {}
        return any(holds[key].asked for key in keys if key in holds)

    def _card(self, name: str, line: Line, *, charted: bool) -> Card | None:
        ceilings = self.unwatched.page(OfCeilings(name, limit=LIMIT_MAX))
        if not ceilings and self._source.namespace(name) is None:
            return None
        bars = [Bar.of(each, self._chart(each) if charted else None) for each in sliced(ceilings)]
        bars.sort(key=lambda bar: (-bar.used_share, bar.seen.quota, bar.seen.resource))
        waits = self._waits(name) if line is None else line.get(name, NOBODY)
        return Card(name, bars[0].used_share if bars else 0.0, bars, waits["waiting"], waits["oldest_since"])

    def _chart(self, seen: SeenCeiling) -> Chart | None:
        points, now = self._history.of(seen.namespace, seen.quota, seen.resource)
        return chart(points, now, lambda amount: rounded(amount, seen.resource, points[-1].limited))

    def waiting(self, name: str) -> int | None:
        """Return how many creates wait in a namespace; None: no gate answers."""
        return self._waits(name)["waiting"]

    def _waits(self, name: str) -> Waits:
        """Sum up the gates' reports on a namespace; null if there are none at all."""
        answering = self._gates.answering
        if not answering:
            return Waits(waiting=None, oldest_since=None, in_flight=None)
        return _summed([gate.namespaces[name] for gate in answering if name in gate.namespaces])


def by_namespace(items: Iterable[Mapping[str, Any]]) -> dict[str, Waits]:
    found: dict[str, Waits] = {}
    for each in items:
        waits = found.setdefault(each["namespace"], Waits(waiting=0, oldest_since=each["since"], in_flight=0))
        waits["waiting"] = (waits["waiting"] or 0) + 1
        waits["oldest_since"] = min(waits["oldest_since"] or each["since"], each["since"])
    return found


def _told(gates: Iterable[Gate]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return (each for gate in gates for each in list(gate.namespaces.items()))


def _summed(told: Sequence[Mapping[str, Any]]) -> Waits:
    return Waits(
        waiting=sum(each.get("waiting") or 0 for each in told),
        oldest_since=min((each["oldest_since"] for each in told if each.get("oldest_since")), default=None),
        in_flight=sum(each.get("in_flight") or 0 for each in told),
    )


def _fullest(found: NamespaceSnapshot) -> float:
    every = ceilings_of(found)
    return max((taken_share(each.used, each.limited, asked=each.block is not None) for _, each in every), default=0.0)


def _forbidden(found: NamespaceSnapshot) -> list[Key]:
    """Return the ceilings of 0 of which nothing is used."""
    return [key for key, each in ceilings_of(found) if each.limited == 0 and each.used <= 0]
