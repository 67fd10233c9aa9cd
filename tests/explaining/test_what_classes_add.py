"""What the API server adds to pods and claims: defaults of LimitRanges, overheads, the default StorageClass."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.kube.charges.device_claims import drive
from backoff_ctrl.k8s.kube.charges.filling import Classes, filled, reading, reading_limits
from backoff_ctrl.k8s.kube.charges.parts import footprint_of, parts_of
from backoff_ctrl.k8s.kube.charges.resources import resource_of
from backoff_ctrl.k8s.status.explaining import asking_listed, explain

JSON = dict[str, Any]
RUNTIME = "/apis/node.k8s.io/v1/runtimeclasses/"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
HEAVY: JSON = {"overhead": {"podFixed": {"cpu": "250m"}}}


def pod_spec(runtime_class: Any = None, *claims: JSON, **more: Any) -> JSON:
    """The spec of a pod that asks for 1 CPU, with an ephemeral volume for each of these claims."""
    volumes = [{"name": f"v{n}", "ephemeral": {"volumeClaimTemplate": each}} for n, each in enumerate(claims)]
    resources = {"requests": {"cpu": "1"}}
    named = {} if runtime_class is None else {"runtimeClassName": runtime_class}
    return {"containers": [{"name": "main", "resources": resources}], "volumes": volumes, **named, **more}


def job(spec: JSON) -> JSON:
    spec = {"parallelism": 2, "completions": 2, "template": {"spec": spec}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}


def claim(**more: Any) -> JSON:
    return {"spec": {"resources": {"requests": {"storage": "1Gi"}}, **more}}


def storage_class(
    name: str, default: str = "true", created: str = "2026-01-01T00:00:00Z", key: str = IS_DEFAULT
) -> JSON:
    return {"metadata": {"name": name, "creationTimestamp": created, "annotations": {key: default}}}


def learned(manifest: JSON, answers: dict[str, JSON | int]) -> tuple[Classes, list[str]]:
    """Answer the questions about a manifest; a number is the status of a refusal. Return what was learned and asked."""
    asked: list[str] = []

    def ask(path: str) -> tuple[int, JSON]:
        asked.append(path)
        found = answers.get(path, 404)
        return (found, {}) if isinstance(found, int) else (200, found)

    resource = resource_of(manifest)
    return drive(reading(manifest, resource, parts_of(manifest, resource=resource)), ask), asked


def charged(manifest: JSON, classes: Classes) -> dict[str, int]:
    """Return what a manifest is charged with what classes add, in thousandths."""
    resource = resource_of(manifest)
    found = footprint_of(filled(manifest, resource, parts_of(manifest, resource=resource), (), classes))
    return {name: amount * 1000 // NANO for name, amount in found.demand.amounts.items()}


@pytest.mark.parametrize("answer", [HEAVY, {}, {"overhead": None}, {"overhead": {"podFixed": 3}}, 403, 404, 0, 503])
def test_the_overhead_of_a_runtime_class_is_a_part_of_each_pod(answer: JSON | int) -> None:
    """One that has none, or may not be read, adds nothing."""
    body = job(pod_spec("heavy"))
    classes, asked = learned(body, {f"{RUNTIME}heavy": answer})
    assert asked == [f"{RUNTIME}heavy"]
    assert charged(body, classes)["requests.cpu"] == (2500 if answer is HEAVY else 2000)


def test_a_pod_has_the_overhead_of_its_class_once() -> None:
    """Also a bare pod; what it repeats of its class is kept, and limits grow where there are any."""
    bare: JSON = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec("heavy")}
    classes, _ = learned(bare, {f"{RUNTIME}heavy": HEAVY})
    assert charged(bare, classes)["requests.cpu"] == 1250
    assert "limits.cpu" not in charged(bare, classes)
    bare["spec"]["overhead"] = {"cpu": "250m"}
    bare["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2"}
    assert (charged(bare, classes)["requests.cpu"], charged(bare, classes)["limits.cpu"]) == (1250, 2250)


@pytest.mark.parametrize("name", ["", "../../pods", "a/b", 3, ["heavy"]])
def test_what_no_class_can_be_called_is_not_asked_for(name: Any) -> None:
    body = job(pod_spec(name))
    classes, asked = learned(body, {})
    assert (classes, asked) == (Classes(), [])


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ([storage_class("gold"), storage_class("slow", "false")], "gold"),
        ([storage_class("old"), storage_class("new", created="2026-02-01T00:00:00Z")], "new"),
        ([storage_class("b"), storage_class("a")], "a"),
        ([storage_class("beta", key="storageclass.beta.kubernetes.io/is-default-class")], "beta"),
        ([storage_class("slow", "false"), {"metadata": None}, None, 3], ""),
        ([], ""),
    ],
)
def test_a_claim_without_a_class_is_charged_for_the_default(listed: list[Any], name: str) -> None:
    """Of several the newest, then the first by name, as the API server chooses."""
    body = job(pod_spec(None, claim()))
    classes, asked = learned(body, {STORAGE: {"kind": "StorageClassList", "items": listed}})
    assert (asked, classes.storage_class) == ([STORAGE], name)
    of_class = {key: amount for key, amount in charged(body, classes).items() if ".storageclass." in key}
    whole = {f"{name}.storageclass.storage.k8s.io/persistentvolumeclaims": 2000} if name else {}
    assert {key: amount for key, amount in of_class.items() if key.endswith("claims")} == whole


@pytest.mark.parametrize(
    "named",
    [
        claim(storageClassName=""),
        claim(storageClassName="slow"),
        {**claim(), "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "slow"}}},
    ],
    ids=["none", "another", "by its annotation"],
)
def test_a_claim_that_names_its_class_keeps_it(named: JSON) -> None:
    """One that names an empty class wants none; nothing is asked then."""
    body = job(pod_spec(None, named))
    assert learned(body, {}) == (Classes(), [])
    assert not [key for key in charged(body, Classes(storage_class="gold")) if key.startswith("gold")]


def test_templates_of_claims_and_claims_themselves_get_the_default() -> None:
    """Of a StatefulSet, of a JobSet, and a bare one; a bare pod is charged for itself alone."""
    stateful = stateful_set(claim())
    jobs = [{"name": "a", "template": {"spec": job(pod_spec())["spec"]}}]
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"},
               "spec": {"replicatedJobs": jobs, "volumeClaimPolicies": [{"templates": [claim()]}]}}  # fmt: skip
    bare = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, **claim()}
    key = "gold.storageclass.storage.k8s.io/persistentvolumeclaims"
    for body, number in ((stateful, 2), (job_set, 1), (bare, 1)):
        classes, asked = learned(body, {STORAGE: {"kind": "StorageClassList", "items": [storage_class("gold")]}})
        assert (asked, charged(body, classes)[key]) == ([STORAGE], number * 1000)
    pod: JSON = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec(None, claim())}
    assert learned(pod, {}) == (Classes(), [])


def test_a_manifest_is_not_changed_by_what_is_added_to_its_copy() -> None:
    """Two parts of one template get it once."""
    body = job(pod_spec("heavy", claim()))
    before = str(body)
    item = {"type": "Container", "defaultRequest": {"memory": "1Gi"}}
    classes = Classes({"heavy": {"cpu": "250m"}}, "gold")
    made = filled(body, "jobs.batch", parts_of(body), [item], classes)
    assert str(body) == before
    spec = made["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"]["requests"] == {"memory": "1Gi", "cpu": "1"}
    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"]["storageClassName"] == "gold"


def stateful_set(*claims: JSON) -> JSON:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec()}
    spec = {"replicas": 2, "template": template, "volumeClaimTemplates": list(claims)}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": spec}


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (job(pod_spec(None, claim())), []),
        (
            job(pod_spec(None, claim(), claim(resources={"requests": {"storage": "3Gi"}}))),
            ["at most 2Gi per PersistentVolumeClaim"],
        ),
        (
            job(pod_spec(None, claim(resources={"requests": {"storage": "1Mi"}}))),
            ["at least 1Gi per PersistentVolumeClaim"],
        ),
        (
            stateful_set(claim(), claim(resources={"requests": {"storage": "3Gi"}})),
            ["at most 2Gi per PersistentVolumeClaim"],
        ),
        (stateful_set(claim()), []),
        (job(pod_spec(None, {"spec": None}, volumes=[{"name": "v"}])), []),
    ],
)
def test_claims_of_pods_have_the_limits_of_claims(manifest: JSON, said: list[str]) -> None:
    """A pod whose claim a LimitRange refuses never starts."""
    limits = {"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}, "min": {"storage": "1Gi"}}
    ask, _ = asking_listed("team", [])
    found, _ = explain(manifest, ask, [limits], 0.0)
    pods = found.parts[1]
    assert [any(each in why for why in pods.why) for each in said] == [True] * len(said)
    assert (pods.verdict == "refused") is bool(said)


@pytest.mark.parametrize("answer", [403, 0, {}, {"kind": "LimitRangeList", "items": None}])
def test_limits_that_may_not_be_read_add_nothing(answer: JSON | int) -> None:
    found = drive(reading_limits("team"), lambda _: (answer, {}) if isinstance(answer, int) else (200, answer))
    assert list(found) == []
