"""Who waits is told so in turn by namespace: the many Jobs of one tenant do not keep the others from theirs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from backoff_ctrl.k8s.workloads.admitting.telling import in_turn


def test_the_first_of_each_namespace_come_before_the_second_of_any() -> None:
    """Within a namespace the order stays."""
    cases: list[Any] = [SimpleNamespace(namespace="many", name=f"m{number}") for number in range(3_000)]
    cases += [SimpleNamespace(namespace="few", name="f0"), SimpleNamespace(namespace="few", name="f1")]
    told = [each.name for each in in_turn(cases)]
    assert told[:5] == ["m0", "f0", "m1", "f1", "m2"]
    assert len(told) == 3_002
