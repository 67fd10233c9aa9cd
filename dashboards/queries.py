"""The queries that panels, recording rules and alerts share, in PromQL.

Over several gates a ceiling is the ``max`` of what they know, while what they hold and who waits at them is a ``sum``.
``cluster`` is kept wherever there is such a label, so that one Prometheus can serve several clusters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from backoff_ctrl.k8s.status.catalogue import BY_NAME

GATE: Final = ("cluster", "job", "instance")
"""The labels of one scraped gate."""
NAMESPACE: Final = ("cluster", "namespace")
CEILING: Final = ("cluster", "namespace", "resourcequota", "resource")
BYTES: Final = "(.*[./])?(memory|storage|ephemeral-storage|hugepages-.+)"
"""Resources whose amounts are bytes; all others are cores, devices or numbers of objects."""
RATE: Final = "$__rate_interval"
RANGE: Final = "$__range"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series a query looks at: label matchers, and perhaps only those of chosen gates."""

    matchers: tuple[str, ...] = ()
    gates: str = ""
    """Label matchers of ``backoff_ctrl_gate_info``; empty: all gates."""

    def series(self, name: str, *more: str, over: str = "") -> str:
        """Select a metric of the catalogue, ``over`` a range if one is given.

        Raises ``KeyError`` for a metric, or a label of it, that the catalogue does not have.
        """
        _check(name, *more)
        matchers = ", ".join([*self.matchers, *more])
        return name + (f"{{{matchers}}}" if matchers else "") + (f"[{over}]" if over else "")

    def gauge(self, name: str, *more: str) -> str:
        """The values of a gauge, of the chosen gates."""
        return self._chosen(self.series(name, *more))

    def rate(self, name: str, *more: str, over: str = RATE) -> str:
        """How fast a counter grows, per second, at the chosen gates."""
        return self._chosen(f"rate({self.series(name, *more, over=over)})")

    def increase(self, name: str, *more: str, over: str = RANGE) -> str:
        """By how much a counter grew at the chosen gates."""
        return self._chosen(f"increase({self.series(name, *more, over=over)})")

    def grown(self, name: str, *more: str, over: str) -> str:
        """By how much a counter grew, series that began meanwhile included: ``increase`` misses their first value."""
        series = self.series(name, *more)
        return f"({series} unless {series} offset {over}) or increase({series}[{over}])"

    def _chosen(self, expr: str) -> str:
        if not self.gates:
            return expr
        return f"({expr} and on ({', '.join(GATE)}) backoff_ctrl_gate_info{{{self.gates}}})"


EVERYTHING: Final = Scope()


def by(how: str, labels: tuple[str, ...], expr: str) -> str:
    """Aggregate: ``by("max", ("namespace",), "x")`` is ``max by (namespace) (x)``."""
    return f"{how} by ({', '.join(labels)}) ({expr})"


def limited(scope: Scope, *more: str) -> str:
    """The quota's limit, by quota and resource."""
    return by("max", CEILING, scope.gauge("backoff_ctrl_ceiling_limited", *more))


def used(scope: Scope, *more: str) -> str:
    """What is charged, by quota and resource."""
    return by("max", CEILING, scope.gauge("backoff_ctrl_ceiling_used", *more))


def held(scope: Scope, *more: str) -> str:
    """What creates in flight will be charged, at all gates together."""
    return by("sum", CEILING, scope.gauge("backoff_ctrl_ceiling_held", *more))


def reserved(scope: Scope, *more: str) -> str:
    """What gangs may still draw, at all gates together."""
    return by("sum", CEILING, scope.gauge("backoff_ctrl_ceiling_reserved", *more))


def headroom(scope: Scope, *more: str) -> str:
    """limited - used - held - reserved, of all gates together: each gate alone knows only its own holds."""
    return f"{limited(scope, *more)} - {used(scope, *more)} - {held(scope, *more)} - {reserved(scope, *more)}"


def fullness(scope: Scope, *more: str) -> str:
    """The part of a ceiling that is used, held or reserved; 1 is full. Without ceilings of 0: they forbid."""
    taken = f"{used(scope, *more)} + {held(scope, *more)} + {reserved(scope, *more)}"
    return f"({taken}) / ({limited(scope, *more)} > 0)"


def blocked(scope: Scope) -> str:
    """1 for each ceiling that creates wait for."""
    return by("max", CEILING, scope.gauge("backoff_ctrl_blocked"))


def waiting(scope: Scope, labels: tuple[str, ...], *more: str) -> str:
    """How many creates wait, at all gates together."""
    return by("sum", labels, scope.gauge("backoff_ctrl_waiting", *more))


def oldest_wait(scope: Scope, labels: tuple[str, ...] = NAMESPACE) -> str:
    """Seconds that the create has waited that waits longest; nothing where none waits."""
    return f"time() - {by('min', labels, scope.gauge('backoff_ctrl_oldest_waiting_timestamp_seconds'))}"


def quantile(part: float, scope: Scope, histogram: str, labels: tuple[str, ...] = ()) -> str:
    """A quantile of a histogram of the catalogue over the rate interval."""
    return f"histogram_quantile({part:g}, {by('sum', (*labels, 'le'), scope.rate(histogram + '_bucket'))})"


def or_zero(expr: str) -> str:
    """Show 0 where there is nothing to count."""
    return f"{expr} or vector(0)"


def named(expr: str) -> str:
    """Add the label ``gate`` to the series of each chosen gate.

    A process that talks to several API servers has a gate for each, and one answer for all of them: one name is taken.
    """
    info = 'backoff_ctrl_gate_info{cluster=~"$cluster", gate=~"$gate"}'
    on = ", ".join(GATE)
    return f"{expr} * on ({on}) group_left (gate) topk by ({on}) (1, {info})"


def _check(name: str, *matchers: str) -> None:
    """Refuse what the catalogue does not have: such a query would be empty for ever."""
    metric = BY_NAME.get(name) or BY_NAME[name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")]
    for matcher in matchers:
        label = re.split(r"[!=~]", matcher)[0]
        if label not in metric.labels:
            raise KeyError(f"{metric.name} has no label {label}")
