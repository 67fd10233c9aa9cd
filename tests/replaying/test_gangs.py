"""``backoff-ctrl demo --gangs``: its workload, gangs that compute only as a whole, its figures and its output."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.api.main import run as backoff_ctrl
from backoff_ctrl.k8s.lab.replay.gangs import GANG_CLIENTS, Computing, GangResult, run_gangs, with_gangs
from backoff_ctrl.k8s.lab.replay.virtual_time import QuotaAdmission, run_virtual
from backoff_ctrl.k8s.lab.replay.workload import PACKAGED, Pod, Workload, make_workload, read_trace


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder: the demo writes to build/ in the current one."""
    monkeypatch.chdir(tmp_path)


def of_the_trace(pods: int, seed: int) -> Workload:
    """The demo's workload with gangs."""
    return with_gangs(make_workload(read_trace(PACKAGED), pods=pods, seed=seed))


def gangs_of(*gangs: tuple[float, int, float], quota: int, singles: tuple[tuple[float, float], ...] = ()) -> Workload:
    """A workload of gangs as (arrival, size, run time) and of pods as (arrival, run time), one CPU a pod."""
    made = [
        tuple(Pod(f"g{number}-{each}", "team", arrival, runs, {"limits.cpu": 1000}) for each in range(size))
        for number, (arrival, size, runs) in enumerate(gangs)
    ]
    others = [Pod(f"s{n}", "team", arrival, runs, {"limits.cpu": 1000}) for n, (arrival, runs) in enumerate(singles)]
    pods = sorted([*(pod for gang in made for pod in gang), *others], key=lambda pod: pod.arrival)
    names = tuple(tuple(pod.name for pod in gang) for gang in made)
    return Workload(tuple(pods), {"team": {"limits.cpu": quota * 1000}}, seed=1, gangs=names)


@pytest.mark.parametrize("seed", range(1, 8))
def test_a_fifth_of_the_pods_is_in_gangs_that_fit(seed: int) -> None:
    """Of 2 to 16 members of one namespace, which arrive together; every pod is there once, with its own demand."""
    plain = make_workload(read_trace(PACKAGED), pods=200, seed=seed)
    work = with_gangs(plain)
    assert sum(map(len, work.gangs)) in (39, 40)
    assert work.quotas == plain.quotas
    known = {pod.name: pod for pod in plain.pods}
    assert sorted(pod.name for unit in work.units for pod in unit) == sorted(known)
    assert all(first[0].arrival <= second[0].arrival for first, second in pairwise(work.units))
    for pod in work.pods:
        was = known[pod.name]
        assert (pod.namespace, pod.demand, pod.run_time) == (was.namespace, was.demand, was.run_time)
    gangs = [unit for unit in work.units if len(unit) > 1]
    assert {tuple(pod.name for pod in gang) for gang in gangs} == set(work.gangs)
    for gang in gangs:
        assert 2 <= len(gang) <= 16
        assert len({(pod.namespace, pod.arrival) for pod in gang}) == 1
        for resource, limit in plain.quotas[gang[0].namespace].items():
            assert sum(pod.demand.get(resource, 0) for pod in gang) <= limit
    assert with_gangs(plain) == work


def test_too_few_pods_make_no_gang() -> None:
    """A fifth of nine pods is one."""
    assert of_the_trace(9, 1).gangs == ()


def test_a_member_computes_when_all_of_its_gang_live() -> None:
    """Three members come at 0, 10 and 20 s and run for 5 s: they end at 25 s, having held 30 pod-seconds idly."""
    work = gangs_of((0.0, 3, 5.0), quota=3)

    async def main() -> tuple[float, float, bool, float]:
        computing = Computing(work)
        cluster = QuotaAdmission(work, start=computing.start)
        for pod in work.units[0]:
            await cluster.create("team", pod.manifest())
            assert computing.running == (3 if pod.name == "g0-2" else 0)
            await asyncio.sleep(10.0 - asyncio.get_running_loop().time() % 10.0)
        await asyncio.sleep(10.0)
        assert computing.running == 0
        (gang,) = computing.gangs
        return computing.changed_at, gang.idle(99.0), gang.held_half(99.0), gang.held(99.0)

    ended, idle, half, held = run_virtual(main())
    assert ended == pytest.approx(25, abs=0.1)
    assert idle == pytest.approx(30, abs=0.1)
    assert held == pytest.approx(20, abs=0.1)
    assert half


def test_two_halves_wait_for_each_other_for_ever_without_the_gate() -> None:
    """Two gangs of 8 under a quota of 10: plain creation stands still, the gate runs one after the other."""
    work = gangs_of((0.0, 8, 50.0), (0.0, 8, 50.0), quota=10)
    plain, gate = (run_gangs(work, name) for name in GANG_CLIENTS)
    assert (plain.gangs_complete, plain.gangs_held_half, plain.lost) == (0, 2, 6)
    assert plain.stood_still_at_s is not None
    assert (plain.makespan_s, plain.gang_wait_p95_s) == (None, None)
    assert (gate.gangs_complete, gate.gangs_held_half, gate.lost, gate.stood_still_at_s) == (2, 0, 0, None)
    assert gate.makespan_s == pytest.approx(100, abs=1)
    assert gate.half_held_pod_s < 1


def test_the_waits_of_gangs_and_of_single_pods_are_told_apart() -> None:
    """The gang waits for a single pod, the next single pod for nobody."""
    work = gangs_of((1.0, 3, 10.0), quota=4, singles=((0.0, 20.0), (0.0, 20.0), (30.0, 5.0)))
    result = run_gangs(work, "gate_observing")
    assert result.gang_wait_p50_s == pytest.approx(19, abs=0.5)
    assert result.single_wait_p95_s == pytest.approx(0, abs=0.5)
    assert result.makespan_s == pytest.approx(35, abs=0.5)


def test_a_standstill_is_no_pause_of_the_arrivals() -> None:
    """Nothing runs for an hour, because nothing arrives: the run goes on."""
    work = gangs_of((4000.0, 2, 5.0), quota=2, singles=((0.0, 5.0),))
    for name in GANG_CLIENTS:
        result = run_gangs(work, name)
        assert (result.lost, result.stood_still_at_s, result.gangs_complete) == (0, None, 1)


@pytest.mark.long
def test_on_the_trace_the_gate_completes_all_gangs_and_plain_creation_holds_halves() -> None:
    """Every pod once through the gate, without a refusal worth mention, and no half for over a second."""
    for seed in (1, 2, 3):
        work = of_the_trace(200, seed)
        plain, gate = (run_gangs(work, name) for name in GANG_CLIENTS)
        assert (gate.admitted, gate.lost, gate.duplicated) == (200, 0, 0)
        assert (gate.gangs_complete, gate.gangs_held_half) == (len(work.gangs), 0)
        assert gate.refused <= 2
        assert plain.gangs_held_half > 0
        assert plain.half_held_pod_s > 100 * gate.half_held_pod_s
        assert gate.makespan_s is not None
        assert plain.makespan_s is None or plain.makespan_s > gate.makespan_s
        assert run_gangs(work, "gate_observing") == gate


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command; returns exit code, stdout and stderr."""
    code = backoff_ctrl(["demo", "--gangs", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.long
def test_the_document_is_the_demos_with_more_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """What scripts read is still there; ``gangs`` is new, and the same each time."""
    code, out, _ = run(capsys, "--pods", "60", "--seed", "4", "--json")
    document: dict[str, Any] = json.loads(out)
    assert code == 0
    assert (document["pods"], document["virtual"], document["seed"]) == (60, True, 4)
    assert list(document["clients"]) == ["plain", "ancestor", "gate_learning", "gate_observing"]
    gangs = document["gangs"]
    assert gangs["pods_in_gangs"] == sum(gangs["sizes"]) == 12
    assert gangs["gangs"] == len(gangs["sizes"])
    assert list(gangs["clients"]) == ["plain", "gate_observing"]
    for result in gangs["clients"].values():
        assert set(result) == set(GangResult.__slots__)
    assert gangs["clients"]["gate_observing"]["gangs_complete"] == gangs["gangs"]
    assert json.loads(run(capsys, "--pods", "60", "--seed", "4", "--json")[1]) == document


@pytest.mark.long
def test_the_table_says_what_never_happens(capsys: pytest.CaptureFixture[str]) -> None:
    """With seed 1 plain creation stands still: no makespan, and a sentence that says why."""
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert out.startswith("200 pods of openb_pods.csv.gz, 40 of them in 6 gangs of 3 to 16, in 3 namespaces")
    rows = {line[:24].strip(): line[24:].split() for line in out.splitlines()}
    assert rows["gangs complete"] == ["3", "of", "6", "6", "of", "6"]
    assert rows["makespan"][0] == "never"
    assert "plain is deadlocked from" in out
    assert "12 pods are never created." in out
    assert "Created every pod exactly once, as counted at the server: gate_observing." in out


@pytest.mark.parametrize("other", [("--keep-going",), ("--kubeconfig", "x"), ("--context", "x")])
def test_gangs_run_in_virtual_time_only(capsys: pytest.CaptureFixture[str], other: tuple[str, ...]) -> None:
    """Anything else is wrong usage."""
    code, _, err = run(capsys, *other)
    assert code == 2
    assert "--gangs runs in virtual time: it cannot be combined with" in err


def test_a_demo_without_any_gang_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Five pods make none."""
    code, out, _ = run(capsys, "--pods", "5", "--virtual")
    assert code == 0
    assert out.startswith("5 pods of openb_pods.csv.gz, no gangs, in ")
