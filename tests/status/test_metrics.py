"""Metrics: the text parses, names and labels are those of the catalogue, values are those of the gate."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from backoff_ctrl.engine import Demand, ObservedQuota
from backoff_ctrl.engine.facts.parts import Parts
from backoff_ctrl.engine.gangs.gang import Draw, Grant, Reservation
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.watching.status import WatchRecord
from backoff_ctrl.k8s.status.catalogue import METRICS
from backoff_ctrl.k8s.status.documents import Documents
from backoff_ctrl.k8s.status.endpoints import OfCeilings
from backoff_ctrl.k8s.status.metrics import collector, exposition, gather
from backoff_ctrl.k8s.status.serving import Service
from backoff_ctrl.k8s.status.sources import Source
from tests.kit.patience import PATIENCE
from tests.status.asking import ask

if TYPE_CHECKING:
    from tests.status.asking import Crowd

ROOT = Path(__file__).parent.parent.parent
ONE = 10**9
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    """Parse an exposition: value by name and labels. No series comes twice."""
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    found = {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}
    assert len(found) == len(samples)
    return found


def scrape(crowd: Crowd) -> Samples:
    """Scrape a gate."""
    return parsed(ask(crowd.url, "/metrics").body.decode())


def test_a_scrape_shows_what_the_gate_did(crowd: Crowd) -> None:
    """One create is in, one waits at the full quota."""
    crowd.wait_with("second")
    found = scrape(crowd)
    team, pods = (("namespace", "team"),), (("namespace", "team"), ("resource", "pods"), ("resourcequota", "q"))
    assert found["backoff_ctrl_waiting", (*team, ("reason", "quota"))] == 1
    assert found["backoff_ctrl_ceiling_limited", pods] == found["backoff_ctrl_ceiling_used", pods] == 1
    assert found["backoff_ctrl_ceiling_headroom", pods] == found["backoff_ctrl_ceiling_observed", pods] == 0
    assert found["backoff_ctrl_blocked", pods] == found["backoff_ctrl_quota_refusals_total", pods] == 1
    kind = ("kind", "pods")
    assert found["backoff_ctrl_attempts_total", (("answer", "created"), kind, *team)] == 1
    assert found["backoff_ctrl_attempts_total", (("answer", "quota"), kind, *team)] == 1
    assert found["backoff_ctrl_creates_total", (kind, *team, ("outcome", "created"))] == 1
    assert found["backoff_ctrl_failed_open_total", ()] == found["backoff_ctrl_series_left_out", ()] == 0
    assert found["backoff_ctrl_decision_seconds_count", ()] > 0


def test_an_observed_quota_that_creates_wait_for_is_blocked_too(crowd: Crowd) -> None:
    """It needs no probe, hence has no block; what has room is not blocked, and nothing is once nobody waits."""
    hard = {"pods": ONE, "count/pods": 9 * ONE}
    crowd.gate.ledger.observe_quota("team", "q", ObservedQuota(hard, hard, {"pods": ONE, "count/pods": ONE}))
    crowd.gate.ledger.watching("team")
    thread = crowd.wait_with("second")
    assert [each["block"] for each in crowd.get("/v1/ceilings")["items"]] == [None, None]
    pods = ("backoff_ctrl_blocked", (("namespace", "team"), ("resource", "pods"), ("resourcequota", "q")))
    assert {series: value for series, value in scrape(crowd).items() if series[0] == pods[0]} == {pods: 1}
    crowd.core.delete_namespaced_pod("first", "team", grace_period_seconds=0)
    crowd.gate.ledger.observe_quota("team", "q", ObservedQuota(hard, hard, {"pods": 0, "count/pods": 0}))
    thread.join(PATIENCE)
    assert pods not in scrape(crowd)


@pytest.mark.parametrize(
    ("history", "shown"), [([False], None), ([True], 1), ([True, False], 0), ([True, False, True], 1)]
)
async def test_a_watch_is_unhealthy_only_where_it_was_lost(
    crowd: Crowd, history: list[bool], shown: float | None
) -> None:
    """Where an account may not watch, nothing is wrong: no alert may fire there for good."""
    record = WatchRecord()
    for seen in history:
        record.quotas("team", seen=seen, why="" if seen else "forbidden")
    counters = crowd.source.counters
    source = Source(crowd.gate.ledger, counters, name="g", watch=lambda: record)
    counters.of("team")
    found = gather(Documents([source], "1")).by_name.get("watch_healthy", {})
    assert found.get(("team",)) == shown


def test_a_wait_that_is_over_is_in_the_histogram_and_saved_calls(crowd: Crowd) -> None:
    """It was in line once, and nobody was asked meanwhile."""
    thread = crowd.wait_with("second")
    crowd.make_room("first")
    thread.join(PATIENCE)
    found = scrape(crowd)
    team = (("namespace", "team"),)
    assert found["backoff_ctrl_wait_seconds_count", team] == 1
    assert found["backoff_ctrl_wait_seconds_bucket", (("le", "+Inf"), *team)] == 1
    assert 0 < found["backoff_ctrl_wait_seconds_sum", team] < PATIENCE
    assert found["backoff_ctrl_probes_total", (*team, ("result", "passed"))] == 1
    assert ("backoff_ctrl_waiting", (*team, ("reason", "quota"))) not in found


def test_a_hosts_registry_shows_the_same(crowd: Crowd) -> None:
    """Through prometheus-client."""
    crowd.wait_with("second")
    registry = CollectorRegistry()
    registry.register(collector(crowd.service.documents))
    ours = parsed(b"".join(exposition(crowd.service.documents)).decode())
    theirs = parsed(generate_latest(registry).decode())
    passing = {name for name, _ in ours if "decision_seconds" in name}
    assert {k: v for k, v in theirs.items() if k[0] not in passing} == {
        k: v for k, v in ours.items() if k[0] not in passing
    }


def test_every_sample_is_of_the_catalogue_with_its_labels(crowd: Crowd) -> None:
    """And every name follows Prometheus' rules."""
    crowd.wait_with("second")
    known = {metric.name: metric for metric in METRICS}
    for name, samples in gather(crowd.service.documents, None).by_name.items():
        for labels in samples:
            assert len(labels) == len(known[f"backoff_ctrl_{name}"].labels)
    for metric in METRICS:
        assert re.fullmatch(r"backoff_ctrl_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.name.endswith("_info") == (metric.kind == "info")
        assert metric.help.endswith(".")
        assert bool(metric.buckets) == (metric.kind == "histogram")


def test_beyond_the_limit_whole_namespaces_are_left_out_and_counted(crowd: Crowd) -> None:
    """Those that became known first stay; the gate's own metrics are always there."""
    crowd.wait_with("second")
    crowd.sandbox.create_namespace("later")
    crowd.core.create_namespaced_pod(
        "later",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    )
    every = gather(crowd.service.documents, None)
    assert every.left_out == 0
    few = gather(crowd.service.documents, None, every.series - 1)
    names = {labels[0] for labels in few.by_name["attempts_total"]}
    assert names == {"team"}
    assert few.left_out == every.series - few.series
    assert few.by_name["series_left_out"][()] == few.left_out


def test_what_a_gang_may_still_draw_is_reserved() -> None:
    """It is told apart from what is held, in the metrics and in the documents, and no longer free."""
    amounts = {"pods": 4 * 10**9}
    gate = Gate()
    service = Service()
    service.add(gate.ledger)
    gate.ledger.observe_quota("team", "q", ObservedQuota(amounts, amounts, {"pods": 10**9}))
    gate.ledger.watching("team")
    whole = Reservation("gang", "team", Parts([(Demand({"pods": 10**9}), 2)]))
    gate.ledger.look(lambda engine, now: engine.of(whole.namespace).reserve(whole, now))
    gate.ledger.look(lambda engine, now: engine.advance(now))
    text = b"".join(exposition(service.documents)).decode()
    assert 'backoff_ctrl_ceiling_reserved{namespace="team",resourcequota="q",resource="pods"} 2' in text
    (ceiling,) = service.documents.ceilings(OfCeilings()).items
    assert (ceiling.used, ceiling.held, ceiling.reserved, ceiling.headroom) == ("1", "0", "2", "1")


def test_gangs_are_counted_by_state_and_their_members_too() -> None:
    """Those that wait in line as one, and those that are admitted and not complete. None: no series."""
    amounts = {"pods": 4 * 10**9}
    gate = Gate()
    service = Service()
    service.add(gate.ledger)
    gate.ledger.observe_quota("team", "q", ObservedQuota(amounts, amounts, {"pods": 0}))
    gate.ledger.watching("team")

    def shown() -> set[str]:
        text = b"".join(exposition(service.documents)).decode()
        return {
            line.replace('namespace="team",', "") for line in text.splitlines() if line.startswith("backoff_ctrl_g")
        }

    before = shown()
    one = Demand({"pods": 10**9})
    first, second = (Reservation(name, "team", Parts([(one, 3)])) for name in ("first", "second"))
    for request in (first, second):
        gate.ledger.look(lambda engine, now, asked=request: engine.of(asked.namespace).reserve(asked, now))  # type: ignore[misc]
    (grant,) = gate.ledger.look(lambda engine, now: engine.advance(now))
    assert isinstance(grant, Grant)
    gate.ledger.look(lambda engine, now: engine.of("team").draw(Draw("d", grant.gang, 0), now))
    assert shown() - before == {
        'backoff_ctrl_gangs{state="admitted"} 1',
        'backoff_ctrl_gangs{state="waiting"} 1',
        'backoff_ctrl_gang_members{state="reserved"} 2',
        'backoff_ctrl_gang_members{state="drawn"} 1',
    }
    gate.ledger.look(lambda engine, now: engine.of(second.namespace).withdraw(second, now))
    gate.ledger.look(lambda engine, now: engine.gangs_of(grant.gang.namespace).give_back(grant.gang, now))
    assert shown() == before
