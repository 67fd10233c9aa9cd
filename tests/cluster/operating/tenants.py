"""Two namespaces of one cluster: a user may edit in the first, and what he does there is nothing to the second."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from tests.cluster.admitting.jobs_at_work import Jobs
from tests.cluster.control_plane.bed import Bed
from tests.cluster.objects import made, of_core, of_group
from tests.cluster.talking import JSON, MERGE, Api
from tests.kit.patience import PATIENCE

LEVELS = 2000
TASKS = "backoff-ctrl.dev/v1alpha1"
RBAC = "rbac.authorization.k8s.io/v1"
EDITS_TASKS: JSON = {  # what the chart adds to the role
    "metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}},
    "rules": [
        {"apiGroups": ["backoff-ctrl.dev"], "resources": ["tasks"], "verbs": ["get", "create", "patch", "delete"]}
    ],
}


@dataclass
class Tenants:
    """Two namespaces with Jobs: ``editor`` may edit in that of ``his``; ``api`` may do everything."""

    api: Api
    his: Jobs
    other: Jobs
    editor: aiohttp.ClientSession

    async def nest(self, path: str) -> None:
        """Write ``managedFields`` of that many levels on an object, as the editor."""
        levels = '{"f:a":' * LEVELS + "{}" + "}" * LEVELS
        version = "/".join(path.split("/")[2:4])
        entry = {"manager": "odd", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1"}
        body = json.dumps({"metadata": {"managedFields": [{**entry, "fieldsV1": 0}]}}).replace(
            '"fieldsV1": 0', f'"fieldsV1": {levels}'
        )
        headers = {"Content-Type": MERGE}
        async with self.editor.patch(path, data=body.encode(), headers=headers) as answer:
            assert answer.status == 200, await answer.text()
        seen = await self.api.get(path)
        assert seen.text.count("f:a") >= LEVELS, "the server has not stored it"


@asynccontextmanager
async def tenants_of(bed: Bed) -> AsyncIterator[Tenants]:
    async with Api(bed.server) as api:
        names = [f"test-{word}-{secrets.token_hex(5)}" for word in ("a", "b")]
        for name in names:
            made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
        his = names[0]
        made(await api.post(of_core(his, "serviceaccounts"), {"metadata": {"name": "editor"}}))
        binding = {
            "metadata": {"name": "editor"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "editor", "namespace": his}],
        }
        made(await api.post(of_group(RBAC, his, "rolebindings"), binding))
        made(
            await api.post(
                f"/apis/{RBAC}/clusterroles", EDITS_TASKS | {"metadata": {**EDITS_TASKS["metadata"], "name": his}}
            )
        )
        asked = await api.post(of_core(his, "serviceaccounts", "editor", "token"), {"spec": {}})
        headers = {"Authorization": f"Bearer {made(asked)['status']['token']}"}
        connector = aiohttp.TCPConnector(ssl=bed.server.ssl() or True)
        async with aiohttp.ClientSession(bed.server.url, headers=headers, connector=connector) as editor:
            found = Tenants(api, Jobs(api, his), Jobs(api, names[1]), editor)
            yield found


async def gone(api: Api, path: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await api.get(path)).status != 404:  # noqa: ASYNC110 - the server says nothing of what is gone
            await asyncio.sleep(0.1)
