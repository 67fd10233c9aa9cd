"""The clients over real HTTP, against a sandbox in its own process."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from backoff_ctrl.api.commands.demo.command import FAST, FASTEST, factor_for
from backoff_ctrl.api.main import run
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.lab.replay.clients import (
    CLIENTS,
    SCHEDULE,
    ReplayError,
    Run,
    faster,
    make_client,
    replay,
    run_in_virtual_time,
)
from backoff_ctrl.k8s.lab.replay.over_http import PROXY, reached, run_on_sandbox, sandbox_process
from backoff_ctrl.k8s.lab.replay.workload import Pod, Workload

FACTORS = (100.0, 20.0, 5.0)
"""Speed-ups, tried until a run meets its bar: in a slower run a slow machine's latencies matter less."""


def crowd() -> Workload:
    """Twelve pods of 20 s with a quota of four: three rounds."""
    pods = tuple(Pod(f"p{i}", "ls", i * 0.5, 20.0, {"limits.cpu": 1000}) for i in range(12))
    return Workload(pods, {"ls": {"limits.cpu": 4000}}, seed=1)


def crowds_over_http(client: str) -> Iterator[Run]:
    """Runs of the crowd, each slower than the one before. At any speed every pod is created once."""
    for factor in FACTORS:
        placed: list[int] = []
        run = run_on_sandbox(crowd(), client, factor, partial(placed.append, 1))
        assert len(placed) == 12
        assert (run.result.admitted, run.result.lost, run.result.duplicated) == (12, 0, 0)
        assert run.result.creates_sent == run.result.admitted + run.result.refused
        assert run.result.makespan_s >= 60.0
        assert run.usage
        yield run


@pytest.mark.scheduled
@pytest.mark.parametrize("client", [*CLIENTS, PROXY])
def test_every_client_creates_every_pod_once_over_http(client: str) -> None:
    """As counted at the server; times are seconds of the trace."""
    assert any(run.result.makespan_s < 60.0 * 4 for run in crowds_over_http(client))


@pytest.mark.long
def test_the_observing_gate_has_as_few_refusals_over_http_as_in_virtual_time() -> None:
    """None in virtual time, at most one over HTTP."""
    assert run_in_virtual_time(crowd(), "gate_observing").result.refused == 0
    assert any(run.result.refused <= 1 for run in crowds_over_http("gate_observing"))


@pytest.mark.scheduled
def test_plain_retries_behind_the_sidecar_are_refused_less_than_without() -> None:
    """The same client, unchanged; counted at the server."""
    plain = min(run.result.refused for run in crowds_over_http("plain"))
    assert any(run.result.refused < plain / 2 for run in crowds_over_http(PROXY))


@pytest.mark.scheduled
def test_the_demo_leaves_out_the_sidecar_where_its_packages_are_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One line says so; all other rows are there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "httptools", None)
    assert run(["demo", "--pods", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert set(json.loads(out)["clients"]) == set(CLIENTS)
    assert err.count("backoff-ctrl[proxy]") == 1


def test_the_sandbox_runs_in_its_own_process_and_ends_with_the_block() -> None:
    """Afterwards nothing listens at its address."""

    async def creates(url: str) -> int:
        async with reached(find_place(url, None, None, None)) as cluster:
            return (await cluster.count()).creates

    with sandbox_process({"ls": {"limits.cpu": "4"}}, seed=3) as url:
        assert asyncio.run(creates(url)) == 0
        assert [child.name for child in multiprocessing.active_children()] == ["sandbox"]
    assert multiprocessing.active_children() == []

    async def refused() -> None:
        pods = (Pod("p", "ls", 0.0, 1.0, {"limits.cpu": 1000}),)
        async with reached(find_place(url, None, None, None)) as cluster:
            await replay(Workload(pods, {}), make_client("plain", cluster, seed=1, factor=1.0))

    with pytest.raises(ReplayError, match="NotSent"):
        asyncio.run(refused())


def test_a_faster_policy_divides_its_schedule_and_leaves_the_servers_latencies() -> None:
    """The settle time depends on the server, however fast the workload is replayed."""
    policy, quick = Policy(), faster(Policy(), 100.0)
    assert all(getattr(quick, name) == getattr(policy, name) / 100.0 for name in SCHEDULE)
    assert (quick.settle_time, quick.answered_hold) == (policy.settle_time, policy.answered_hold)


def test_the_factor_stays_within_its_bounds() -> None:
    """From 150 to 200, whatever the workload."""
    run = run_in_virtual_time(crowd(), "gate_observing")
    assert factor_for({"a": run}) == FAST
    assert factor_for(dict.fromkeys(map(str, range(100_000)), run)) == FASTEST
    assert isinstance(run, Run)
