"""What gates add to the ceilings of the cluster: what they hold there, and the ceilings that only they know.

Those are of quotas that ``serve`` does not watch, each from the gate with the latest news of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from backoff_ctrl.engine.facts.quantities import parse_quantity, quantity
from backoff_ctrl.k8s.status.asked import read_cursor
from backoff_ctrl.k8s.status.endpoints import OfCeilings
from backoff_ctrl.k8s.status.slices import sliced

from .gate import Hold, Key, ReportedCeiling
from .gates import Gates
from .observing import Cluster
from .shapes import SeenCeiling


class Unwatched:
    """The ceilings of quotas that ``serve`` does not watch, as reported by gates."""

    def __init__(self, cluster: Cluster, gates: Gates) -> None:
        self._source = cluster.source
        self._documents = cluster.documents
        self._gates = gates

    def names(self) -> list[str]:
        """Return the namespaces of such ceilings, in order."""
        told = {name for gate in self._gates.answering for name, each in list(gate.told.items()) if each}
        return sorted(name for name in told if not self._gates.watched(name))

    def of(self, namespace: str) -> dict[Key, ReportedCeiling]:
        """Return those of a namespace by quota and resource."""
        found: dict[Key, ReportedCeiling] = {}
        for gate in self._gates.answering if not self._gates.watched(namespace) else ():
            for key, told in gate.told.get(namespace, {}).items():
                if key not in found or told.ceiling.heard_at > found[key].ceiling.heard_at:
                    found[key] = told
        known = self._source.namespace(namespace) if found else None
        quotas = {} if known is None else known[0].quotas
        return {key: found[key] for key in sorted(found) if key[1] not in quotas.get(key[0], ())}

    def amounts(self) -> Iterator[tuple[tuple[str, str, str], int, int]]:
        """Yield namespace, quota and resource of each such ceiling, with what is used and the limit."""
        for name in self.names():
            yield from (((name, *key), told.used, told.limited) for key, told in self.of(name).items())

    def page(self, query: OfCeilings) -> list[SeenCeiling]:
        """Return up to ``query.limit`` + 1 ceilings behind its place, in order: the cluster's, and these."""
        observed = self._documents.ceilings(replace(query, limit=query.limit + 1)).items
        seen = [*(SeenCeiling(**vars(each)) for each in observed), *islice(self._behind(query), query.limit + 1)]
        seen.sort(key=lambda each: (each.namespace, each.quota, each.resource))
        del seen[query.limit + 1 :]
        for each in sliced(seen):
            add_holds(each, self._gates.holds(each.namespace))
        return seen

    def _behind(self, query: OfCeilings) -> Iterator[SeenCeiling]:
        after = tuple(map(str, (read_cursor(query.after, "ceilings") or ["", ""])[1:]))
        for name in sliced(self.names()) if query.namespace is None else [query.namespace]:
            if name < after[0]:
                continue
            for key, told in self.of(name).items():
                if (name, *key) > after and query.takes(*key):
                    yield replace(told.ceiling)


def add_holds(ceiling: SeenCeiling, holds: Mapping[Key, Hold] | None) -> None:
    """Add what the gates hold at a ceiling; None: no gate reports it."""
    if holds is None:
        ceiling.held = ceiling.reserved = ceiling.kept = ceiling.block = ceiling.waiting = None
        return
    hold, resource = holds.get((ceiling.quota, ceiling.resource), Hold()), ceiling.resource
    left = parse_quantity(ceiling.limited) - parse_quantity(ceiling.used) - hold.amount
    ceiling.held, ceiling.reserved = quantity(hold.held, resource), quantity(hold.reserved, resource)
    ceiling.headroom = quantity(left, resource)
    ceiling.kept, ceiling.block, ceiling.waiting = hold.kept, hold.block, hold.waiting
