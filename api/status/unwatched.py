"""What gates add to the ceilings of the cluster: what they hold there, and the ceilings that only they know.

Those are of quotas that ``serve`` does not watch, each from the gate with the latest news of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from backoff_ctrl.engine.facts.quantities import parse_quantity, quantity
from backoff_ctrl.k8s.status.asked import read_cursor
from backoff_ctrl.k8s.status.endpoints import OfCeilings
from backoff_ctrl.k8s.status.shapes import Ceiling
from backoff_ctrl.k8s.status.slices import sliced
from backoff_ctrl.k8s.status.sources import Source

from .gate import Hold, Key, ReportedCeiling
from .gates import Gates
from .shapes import SeenCeiling


class Unwatched:
    """The ceilings of quotas that ``serve`` does not watch, as reported by gates."""

    def __init__(self, source: Source, gates: Gates) -> None:
        self._source = source
        self._gates = gates

    def names(self) -> list[str]:
        """Return the namespaces of such ceilings, in order."""
        told = {name for gate in self._gates.answering for name, each in list(gate.told.items()) if each}
        return sorted(name for name in told if not self._gates.watched(name))

    def of(self, namespace: str) -> dict[Key, tuple[str, ReportedCeiling]]:
        """Return those of a namespace, each with the URL of its gate, by quota and resource."""
        found: dict[Key, tuple[str, ReportedCeiling]] = {}
        for gate in self._gates.answering if not self._gates.watched(namespace) else ():
            for key, told in gate.told.get(namespace, {}).items():
                if key not in found or told.ceiling.heard_at > found[key][1].ceiling.heard_at:
                    found[key] = (gate.url, told)
        known = self._source.namespace(namespace) if found else None
        quotas = {} if known is None else known[0].quotas
        return {key: found[key] for key in sorted(found) if key[1] not in quotas.get(key[0], ())}

    def amounts(self) -> Iterator[tuple[tuple[str, str, str], int, int]]:
        """Yield namespace, quota and resource of each such ceiling, with what is used and the limit."""
        for name in self.names():
            for key, (_, told) in self.of(name).items():
                yield (name, *key), told.used, told.limited

    def page(self, items: Sequence[Ceiling], query: OfCeilings) -> list[SeenCeiling]:
        """Return ``query.limit`` + 1 ceilings behind its place, in order: a page of ``source``'s with the others."""
        seen = [SeenCeiling(**vars(with_holds(each, self._gates.holds(each.namespace)))) for each in items]
        seen += islice(self._behind(query), query.limit + 1)
        seen.sort(key=lambda each: (each.namespace, each.quota, each.resource))
        return seen[: query.limit + 1]

    def _behind(self, query: OfCeilings) -> Iterator[SeenCeiling]:
        after = tuple(map(str, (read_cursor(query.after, "ceilings") or ["", ""])[1:]))
        for name in sliced(self.names()) if query.namespace is None else [query.namespace]:
            if name < after[0]:
                continue
            for key, (url, told) in self.of(name).items():
                if (name, *key) > after and query.takes(*key):
                    whole = SeenCeiling(**vars(told.ceiling), gate_url=url)
                    with_holds(whole, self._gates.holds(name))
                    yield whole


def with_holds(ceiling: Ceiling, holds: Mapping[Key, Hold] | None) -> Ceiling:
    """Return a ceiling of the cluster with what the gates hold there; None: no gate reports it."""
    if holds is None:
        ceiling.held = ceiling.reserved = ceiling.kept = ceiling.block = ceiling.waiting = None
        return ceiling
    hold = holds.get((ceiling.quota, ceiling.resource), Hold())
    left = parse_quantity(ceiling.limited) - parse_quantity(ceiling.used) - hold.amount
    ceiling.held, ceiling.reserved, ceiling.headroom = (
        quantity(amount, ceiling.resource) for amount in (hold.held, hold.reserved, left)
    )
    ceiling.kept, ceiling.block, ceiling.waiting = hold.kept, hold.block, hold.waiting
    return ceiling
