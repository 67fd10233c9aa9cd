"""The operator of the chart works for fewer namespaces or kinds from now on: what waits elsewhere is let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from backoff_ctrl.api.operator.stopped import STOPPED
from backoff_ctrl.k8s.workloads.admitting.described import described_kinds
from backoff_ctrl.k8s.workloads.admitting.kinds import SUSPENDED_BY, WAIT, WEBHOOK
from tests.admitting.trains import DESCRIPTION, train, written
from tests.cluster.admitting.jobs_at_work import Jobs
from tests.cluster.admitting.trains_at_work import served
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.shipping.installed import chart, hooks_run
from tests.cluster.shipping.rendering import CHART, JSON
from tests.cluster.shipping.test_chart_comes_and_goes import WHOLE, crowd, operators, stranded, unjudged
from tests.cluster.talking import Api

pytestmark = pytest.mark.long
HERE: Final = ("backoff-ctrl", "--namespace=gates")
TEAMS: Final = ("goes", "stays")
HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/backoff-ctrl-webhooks-gates"
DEPLOYMENT: Final = "/apis/apps/v1/namespaces/gates/deployments/backoff-ctrl-operator"
WAITING: Final = 3
"""Jobs and Tasks of a namespace."""


def values(*namespaces: str, kinds: bool = False) -> JSON:
    described = [yaml.safe_load(DESCRIPTION)] if kinds else []
    return {
        "injection": {"enabled": False},
        "operator": {"enabled": True, "namespaces": [*namespaces], "kinds": described},
    }


@pytest.fixture
async def trains(bed: Bed, helm_program: GoPrograms, tmp_path: Path) -> AsyncIterator[Jobs]:
    """The chart with a described kind; in each namespace one of that kind waits, two Jobs and a Task."""
    async with Api(bed.server, "admin") as api:
        for name in ("gates", *TEAMS):
            assert (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
        made = await served(api, "goes", described_kinds([written(tmp_path)])[-1])
        chart(bed, "install", *HERE, str(CHART), values=values(kinds=True))
        await api.until(f"{DEFINITIONS}/tasks.backoff-ctrl.dev", is_established)
        await unjudged(api)
        for name in TEAMS:
            await crowd(api, name, "early", jobs=2, tasks=1)
        yield made


async def test_what_it_no_longer_works_for_is_let_go_and_the_rest_waits_on(
    bed: Bed, trains: Jobs, tmp_path: Path
) -> None:
    """First a kind is dropped, then a namespace; a rollback to both drops nothing."""
    api = trains.api
    body = train("local", 1, halted=True)
    body["metadata"] |= {"labels": {WAIT: "true"}, "annotations": {SUSPENDED_BY: WEBHOOK}}
    await trains.create(body)

    async with hooks_run(api, "gates", tmp_path, fail=True):
        with pytest.raises(AssertionError, match="pre-upgrade"):
            await asyncio.to_thread(chart, bed, "upgrade", *HERE, str(CHART), values=values())
    assert (await trains.get("local"))["spec"]["halted"] is True

    async with hooks_run(api, "gates", tmp_path) as said:
        await asyncio.to_thread(chart, bed, "upgrade", *HERE, str(CHART), values=values())
    assert said[0].startswith("the operator: it works no longer for kinds "), said
    assert {"Jobs: 1 let go", "Tasks: 0 let go"} <= {*said}
    assert (await trains.get("local"))["spec"]["halted"] is False
    assert [len(await stranded(api, name)) for name in TEAMS] == [WAITING] * 2
    (tmp_path / "config" / "kinds.yaml").unlink()

    async with hooks_run(api, "gates", tmp_path) as said:
        await asyncio.to_thread(chart, bed, "upgrade", *HERE, str(CHART), values=values("stays"))
    assert said[0] == "the operator: it works no longer for all other namespaces", said
    assert {"the webhooks: not called for it any more", "Jobs: 2 let go", "Tasks: 1 let go"} <= {*said}
    assert [len(await stranded(api, name)) for name in TEAMS] == [0, WAITING]
    assert await operators(api) == WHOLE
    after = (await api.get(DEPLOYMENT)).json
    assert "--namespace=stays" in after["spec"]["template"]["spec"]["containers"][0]["args"]
    for path in (DEPLOYMENT, HOOKS):
        assert (await api.get(path)).json["metadata"]["annotations"][STOPPED] == ""

    async with hooks_run(api, "gates", tmp_path) as said:
        await asyncio.to_thread(chart, bed, "upgrade", *HERE, str(CHART), values=values("stays"))
        assert said == []  # nothing is dropped: no pod is started
        await asyncio.to_thread(chart, bed, "rollback", *HERE, "1")
    assert said == ["the operator: it goes on working for all its kinds and namespaces; no object is let go"]
    assert await operators(api) == WHOLE
    assert [len(await stranded(api, name)) for name in TEAMS] == [0, WAITING]
