"""Charges: what an object is charged when it is created."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.quantities import format_quantity, parse_quantity
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.parts import footprint_of
from backoff_ctrl.k8s.kube.charges.quotas import read_quota
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import pod
from tests.cluster.quotas.charging import JSON, Meter, all_names, make_quota, path_of, prepare, tidy
from tests.cluster.talking import Api
from tests.kit.charged import Case, cases, cluster_objects, recorded
from tests.kit.drawn_pods import valid_pods
from tests.kit.examples import examples

V = TypeVar("V")
KNOWN: Final = [case for case in cases() if case.theme != "unsaid_devices"]
DEVICES: Final = [case for case in cases() if case.theme == "unsaid_devices"]
NEWER: Final = ("requests.deviceclass.resource.kubernetes.io/", "requests.example.com/device")
"""Devices are charged under these names since v1.36 (feature DRAExtendedResource); the second is from a DeviceClass."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def meter(server: Server) -> AsyncIterator[Meter]:
    """The meter of this server, with all objects that the manifests refer to; everything is deleted afterwards."""
    async with Api(server) as api:
        await prepare(api)
        made = Meter(api)
        yield made
        await tidy(api, made.spaces)


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="module")
@settings(
    max_examples=examples(100),
    phases=(Phase.generate,),  # each example costs requests: shrinking one would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(manifest=valid_pods())
async def test_any_pod_is_charged_its_footprint(meter: Meter, manifest: JSON) -> None:
    """Whatever a pod requests, its charge and its scopes equal the footprint, name by name."""
    charged = await meter.charge(manifest)
    demand = footprint(manifest)
    amounts = {name: parse_quantity(text) for name, text in charged.amounts.items()}
    assert amounts == _known_to(meter, demand.amounts, NEWER[:1])
    assert charged.held_by == _held_by(demand)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("resources", "amounts"),
    [
        ({"requests": {"cpu": None, "memory": "3"}}, {"memory": "3", "requests.memory": "3"}),
        ({"requests": {"cpu": None}, "limits": {"cpu": "2"}}, {"limits.cpu": "2"}),
        ({"limits": {"cpu": None}}, {}),
    ],
    ids=["request", "request-beside-a-limit", "limit"],
)  # fmt: skip
async def test_a_null_is_charged_as_zero(meter: Meter, resources: JSON, amounts: dict[str, str]) -> None:
    """It does not count as absent: a limit does not replace a request that is null."""
    manifest = pod("p", {"containers": [{"name": "a", "image": "i", "resources": resources}]})
    charged, demand = await meter.charge(manifest), footprint(manifest)

    assert charged.amounts == {"count/pods": "1", "pods": "1", **amounts}
    assert {name: format_quantity(amount) for name, amount in demand.amounts.items()} == charged.amounts
    assert charged.held_by == _held_by(demand)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", KNOWN, ids=[case.key for case in KNOWN])
async def test_objects_are_charged_as_recorded(meter: Meter, case: Case) -> None:
    """Each manifest is charged the recorded amounts, name by name, by the quotas with the recorded scopes."""
    charged, record = await meter.charge(case.manifest, fresh=case.alone), recorded()[case.key]
    assert charged == replace(record, amounts=_known_to(meter, record.amounts, NEWER[:1]))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.only_kubernetes("The sandbox does not support extended resources that map to a DeviceClass.")
@pytest.mark.parametrize("case", DEVICES, ids=[case.key for case in DEVICES])
async def test_devices_are_charged_under_their_extended_resource_too(meter: Meter, case: Case) -> None:
    """A ResourceClaim is charged under the extended resource of its DeviceClass."""
    charged, record = await meter.charge(case.manifest), recorded()[case.key]
    assert charged == replace(record, amounts=_known_to(meter, record.amounts, NEWER))


def _known_to(meter: Meter, amounts: Mapping[str, V], newer: tuple[str, ...]) -> dict[str, V]:
    """The part of these charges that a server before v1.36 knows."""
    return {name: amount for name, amount in amounts.items() if meter.minor >= 36 or not name.startswith(newer)}


def _held_by(demand: Demand) -> tuple[str, ...]:
    """The scoped quotas that the engine takes to apply to a pod."""
    quotas = [quota for quota in cluster_objects("scoped_quotas") if "pods" in quota["spec"]["hard"]]
    holding = [quota for quota in quotas if read_quota(quota).selector.applies(demand.scopes)]
    return tuple(sorted(quota["metadata"]["name"] for quota in holding))


JOB: Final[JSON] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "spec": {
        "parallelism": 3,
        "completions": 5,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "initContainers": [{"name": "i", "image": "i", "resources": {"limits": {"cpu": "2", "memory": "1M"}}}],
                "containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}],
            }
        },
    },
}


async def test_a_job_is_charged_as_estimated(real_api: Api, real_namespace: str) -> None:
    """Once its controller has created the pods, the namespace is charged what was estimated for the Job."""
    hard = all_names()
    await make_quota(real_api, real_namespace, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    made = await real_api.post(path_of(JOB, real_namespace), JOB)
    assert made.status == 201, made.text
    path = f"/api/v1/namespaces/{real_namespace}/resourcequotas/q"
    amounts = footprint_of(JOB).demand.amounts
    estimate = {name: format_quantity(amount) for name, amount in amounts.items()}
    wanted = {name: amounts.get(name, 0) for name in amounts}
    found = await real_api.until(path, lambda quota: quota["status"]["used"].get("pods") == estimate["pods"])
    used = {name: parse_quantity(text) for name, text in found["status"]["used"].items()}
    standing = {
        "resourcequotas", "count/resourcequotas", "count/serviceaccounts", "configmaps", "count/configmaps",
    }  # fmt: skip
    assert {name: amount for name, amount in used.items() if amount and name not in standing} == wanted
