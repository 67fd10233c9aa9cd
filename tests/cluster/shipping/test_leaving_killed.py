"""``backoff-ctrl uninstall`` that is killed on its way, as with its node: the next run puts back what was there.

Each process is killed while it waits for the answer to one of its writes, which the API server has carried out.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from backoff_ctrl.api.operator.stopped import STOPPED
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.operating.leaving import DEPLOYMENT, HOOKS, ended, killed, standing
from tests.cluster.shipping.installed import Account, account_with, chart
from tests.cluster.shipping.rendering import CHART, JSON
from tests.cluster.shipping.test_chart_comes_and_goes import crowd, stranded
from tests.cluster.talking import Api

pytestmark = pytest.mark.long
HERE: Final = ("backoff-ctrl", "--namespace=gates")
KILLED_AT: Final = (1, 3, 7)
"""Writes of a run: two for each of the three objects that are stopped; Jobs were let go before, then Tasks are."""
REPLICAS: Final = 3


@pytest.fixture
async def gates(bed: Bed, helm_program: GoPrograms) -> AsyncIterator[Api]:
    """The chart with its operator in namespace ``gates``, and what waits for it in ``team``."""
    async with Api(bed.server, "admin") as api:
        for name in ("gates", "team"):
            assert (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
        chart(bed, "install", *HERE, str(CHART), values=values())
        await api.until(f"{DEFINITIONS}/tasks.backoff-ctrl.dev", is_established)
        assert (await api.delete(HOOKS[1])).status == 200  # no webhook runs that would judge them
        await crowd(api, "team", "early", jobs=2, tasks=2)
        chart(bed, "upgrade", *HERE, str(CHART), values=values())
        yield api


def values(replicas: int = REPLICAS, seconds: int = 2) -> JSON:
    webhooks = {"timeoutSeconds": seconds}
    return {"injection": {"enabled": False}, "operator": {"enabled": True, "replicas": replicas}, "webhooks": webhooks}


async def who_fails(api: Api) -> Account:
    """Return an account with all that the command needs, but the right on Tasks."""
    kinds = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations", "namespaces", "deployments", "leases"]
    rule = {"verbs": ["get", "list", "patch", "delete"], "apiGroups": ["*"], "resources": [*kinds, "jobs"]}
    return await account_with(api, "gates", "leaver", [rule])


async def test_what_a_killed_one_has_stopped_is_put_back_by_one_that_fails(
    bed: Bed, gates: Api, tmp_path: Path
) -> None:
    """Wherever it was killed. Helm may change both afterwards, and the last run succeeds."""
    api = gates
    before = await standing(api)
    assert (before[0], [len(each[0]) for each in before[1:]]) == ((REPLICAS, ""), [2, 1])
    failing = (await who_fails(api)).kubeconfig(tmp_path)
    assert (await ended(failing))[0] == 1
    assert await standing(api) == before
    for number in KILLED_AT:
        await killed(bed.server, tmp_path, number)
        assert (await api.get(DEPLOYMENT)).json["spec"]["replicas"] == 0
        code, said = await ended(failing)
        assert (code, "Tasks: GET /apis/backoff-ctrl.dev/v1alpha1/tasks: 403" in said) == (1, True), said
        assert await standing(api) == before, (number, said)

    await killed(bed.server, tmp_path, 6)  # and no other run follows: Helm starts it again
    chart(bed, "upgrade", *HERE, str(CHART), values=values(replicas=4, seconds=5))
    after = await standing(api)
    assert (after[0], {each["timeoutSeconds"] for each in after[1][0]}) == ((4, ""), {5})

    await killed(bed.server, tmp_path, 6)
    code, said = await ended(bed.server.kubeconfig("admin"))
    assert (code, said.splitlines()[-1]) == (0, "the webhooks: removed")
    assert await stranded(api, "team") == []
    assert (await api.get(DEPLOYMENT)).json["spec"]["replicas"] == 0
    assert [(await api.get(path)).status for path in HOOKS] == [404, 404]
    noted = (await api.get(DEPLOYMENT)).json["metadata"]["annotations"][STOPPED]
    assert json.loads(noted) == {"was": 4}
