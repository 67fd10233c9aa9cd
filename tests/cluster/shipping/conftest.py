"""Helm for the tests that run it; such a test is `real`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.shipping.helm.programs import HELM
from tests.cluster.shipping.installed import chart
from tests.cluster.shipping.rendering import CHART, DATA, JSON
from tests.cluster.talking import Api


@pytest.fixture(scope="session")
def helm_program() -> GoPrograms:
    return HELM


VALUES: JSON = {
    "gateway": {"enabled": True},
    "serve": {"enabled": True, "gatesIn": ["platform"], "tls": {"names": ["localhost"]}},
    "monitoring": {"enabled": True},
    "dashboards": {"enabled": True},
}
NAMESPACES: Final = ("gates", "dry", "team-a", "team-b", "platform", "life")


@pytest.fixture
async def api(bed: Bed) -> AsyncIterator[Api]:
    async with Api(bed.server) as made:
        yield made


@pytest.fixture
async def installed(bed: Bed, api: Api, helm_program: GoPrograms) -> Api:
    """The chart, in namespace gates, once for the module: with the kinds that others bring."""
    if (await api.get("/api/v1/namespaces/gates")).status == 200:
        return api
    for name in NAMESPACES:
        assert (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
    for path in sorted((DATA / "definitions").iterdir()):
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        made = await api.post(definitions, json.loads(path.read_text()))
        assert made.status == 201, made.text
        await api.until(f"{definitions}/{path.stem}", _established)
    said = chart(bed, "install", "backoff-ctrl", str(CHART), "--namespace=gates", values=VALUES)
    assert "STATUS: deployed" in said
    return api


def _established(definition: JSON) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
