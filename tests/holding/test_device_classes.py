"""Device classes that stand for an extended resource: what ResourceClaims hold under that name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backoff_ctrl.api.main import cli, run
from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.kube.charges.device_claims import Devices, footprint_with_devices
from backoff_ctrl.k8s.kube.charges.devices import classes_of, with_extended
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.parts import footprint_of
from tests.holding.objects import pod, quota
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.scripted_server import Seen, failure, scripted_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JSON = dict[str, Any]
EXTENDED = "requests.example.com/device"
CLASSES = {"gpu": "example.com/device", "twin": "example.com/device", "other": "example.com/other"}


def claim(name: str, *asked: tuple[str, int], **metadata: Any) -> JSON:
    requests = [{"name": f"r{n}", "exactly": {"deviceClassName": c, "count": k}} for n, (c, k) in enumerate(asked)]
    spec = {"devices": {"requests": requests}}
    version = "resource.k8s.io/v1"
    return {"apiVersion": version, "kind": "ResourceClaim", "metadata": {"name": name, **metadata}, "spec": spec}


def charged(manifest: JSON, classes: dict[str, str] = CLASSES) -> dict[str, int]:
    demand = with_extended(footprint(manifest), classes)
    return {name: amount // NANO for name, amount in demand.amounts.items() if name.startswith("requests.example")}


@pytest.mark.parametrize(
    ("asked", "amounts"),
    [
        ([("gpu", 2)], {EXTENDED: 2}),
        ([("gpu", 2), ("gpu", 3)], {EXTENDED: 5}),
        ([("gpu", 2), ("other", 1)], {EXTENDED: 2, "requests.example.com/other": 1}),
        ([("gpu", 2), ("twin", 3)], {EXTENDED: 3}),
        ([("nic", 2)], {}),
    ],
)
def test_a_claim_is_charged_the_extended_resource_of_its_class(
    asked: list[tuple[str, int]], amounts: dict[str, int]
) -> None:
    """All requests of a class together; a class without one adds nothing."""
    assert charged(claim("c", *asked)) == amounts
    assert charged(claim("c", *asked), {}) == {}


def test_no_other_object_is_charged_for_a_device_class() -> None:
    """A pod that asks for the implicit resource of a class pays for that name alone."""
    limits = {"deviceclass.resource.kubernetes.io/gpu": "2"}
    asking = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    assert charged(asking) == {}
    assert footprint_with_devices(footprint_of(asking), Devices(classes=CLASSES)) == footprint_of(asking)


def test_classes_are_read_leniently() -> None:
    """Malformed entries are skipped."""
    listed = [
        {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/device"}},
        {"metadata": {"name": "nic"}, "spec": {}},
        {"metadata": {"name": "odd"}, "spec": {"extendedResourceName": 3}},
        {"spec": {"extendedResourceName": "example.com/x"}},
        None,
        7,
    ]
    assert classes_of(listed) == {"gpu": "example.com/device"}


# -- holders ---------


OF_POD = {
    "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-p", "controller": True}],
}


def device_pod(uid: str = "u-p", count: str = "1") -> JSON:
    made = pod("p", uid=uid)
    made["spec"]["containers"][0]["resources"] = {"limits": {"example.com/device": count}}
    return made


def cluster(
    used: str, claims: list[JSON] | int, classes: list[JSON] | int, pods: list[JSON] | None = None
) -> Callable[[Seen], Any]:
    """Script a cluster with a quota of an extended resource; a number is the status of a refusal."""

    def answer(seen: Seen) -> Any:
        path = seen.path.partition("?")[0]
        if path == "/version":
            return 200, {"gitVersion": "v1.36.3"}
        if path.endswith("/resourcequotas"):
            return 200, {"items": [quota({EXTENDED: "9"}, {EXTENDED: used})]}
        if path == "/apis/resource.k8s.io":
            return 200, {"versions": [{"groupVersion": "resource.k8s.io/v1"}]}
        for kind, found in (("resourceclaims", claims), ("deviceclasses", classes), ("pods", pods or [])):
            if path.endswith(f"/{kind}"):
                return failure(found, "No", "no") if isinstance(found, int) else (200, {"items": found})
        return failure(404, "NotFound", "no")

    return answer


GPU = [{"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/device"}}]


def holders(answers: Callable[[Seen], Any], capsys: pytest.CaptureFixture[str], code: int = 0) -> JSON:
    with scripted_server(answers) as script:
        assert run(["holders", "-n", "team", "--apiserver", script.url, "--json"]) == code
    found: JSON = json.loads(capsys.readouterr().out)["quotas"][0]["resources"][0]
    return found


def test_living_claims_are_holders(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside pods; and what no object explains is leaked as before."""
    claims = [claim("a", ("gpu", 2)), claim("b", ("nic", 5))]
    found = holders(cluster("4", claims, GPU, [device_pod()]), capsys)
    assert {each["owner"]: each["amount"] for each in found["holders"]} == {"ResourceClaim/a": "2", "Pod/p": "1"}
    assert found["leaked"] == "1"


@pytest.mark.parametrize(
    ("pods", "holds"),
    [([device_pod()], False), ([device_pod(count="2")], False), ([device_pod("another")], True), ([], True)],
    ids=["its pod", "a larger pod", "another pod of that name", "no pod"],
)
def test_a_claim_for_the_extended_resources_of_a_pod_is_charged_once(
    pods: list[JSON], holds: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scheduler makes it; the pod pays, as long as it is that pod."""
    made = claim("c", ("gpu", 1), **OF_POD)
    found = holders(cluster("9", [made], GPU, pods), capsys)
    kinds = {(each["owner"], each["kind"]) for each in found["holders"]}
    assert (("Pod/p", "resourceclaims.resource.k8s.io") in kinds) is holds


def test_an_account_that_may_not_list_classes_is_told_so_where_it_matters(capsys: pytest.CaptureFixture[str]) -> None:
    """With claims in the namespace nobody knows what is leaked; without claims the pods are all that counts."""
    found = holders(cluster("4", [claim("a", ("gpu", 2))], 403), capsys, code=1)
    assert (found["leaked"], found["unread"]) == ("0", ["deviceclasses.resource.k8s.io"])
    found = holders(cluster("1", [], 403, [device_pod()]), capsys)
    assert (found["leaked"], [each["owner"] for each in found["holders"]]) == ("0", ["Pod/p"])
    found = holders(cluster("1", 404, 404, [device_pod()]), capsys)
    assert (found["leaked"], [each["owner"] for each in found["holders"]]) == ("0", ["Pod/p"])
    found = holders(cluster("1", 403, 403, [device_pod()]), capsys)
    assert found["leaked"] == "0"


# -- explain ---------


def explained(manifest: JSON, answers: Callable[[Seen], Any], tmp_path: Path) -> tuple[JSON, list[str]]:
    """Return what ``explain --kubeconfig`` says of a manifest, and the paths that it asked for."""
    asked: list[str] = []

    def noting(seen: Seen) -> Any:
        asked.append(seen.path)
        return answers(seen)

    with scripted_server(noting) as script:
        config = write_kubeconfig(tmp_path / "config", script.url)
        words = ["explain", "-f", "-", "-n", "team", "--json", "--kubeconfig", config]
        done = CliRunner().invoke(cli, words, input=json.dumps(manifest))
    assert done.exit_code == 0, done.output
    found: JSON = json.loads(done.stdout)
    return found, asked


def test_explain_asks_the_cluster_for_classes_where_claims_are_made(tmp_path: Path) -> None:
    """What never fits is not called "now"; without the right to list classes it says that they are left out."""
    wants = claim("c", ("gpu", 10))
    found, _ = explained(wants, cluster("0", [], GPU), tmp_path)
    assert (found["verdict"], [each["resource"] for each in found["blockers"]]) == ("never", [EXTENDED])
    found, _ = explained(wants, cluster("0", [], 403), tmp_path)
    assert (found["verdict"], "extended resources of device classes" in found["note"]) == ("now", True)
    found, asked = explained(
        {"apiVersion": "v1", "kind": "Pod", **device_pod(count="10")}, cluster("0", [], GPU), tmp_path
    )
    assert (found["verdict"], [each for each in asked if "deviceclasses" in each]) == ("never", [])
