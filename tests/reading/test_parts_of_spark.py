"""What a SparkApplication makes: the operator's own examples, and Spark's arithmetic of cores and memory."""

# ruff: noqa: E501  # tables of manifests

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.charges.parts import Part, footprint_of, parts_of
from tests.reading.told_parts import example, line, told

Manifest = dict[str, Any]

SERVED = ["1 Service < Pod", "2 ConfigMap < Pod", "1 Service < SparkApplication"]
DRIVER = "1 Pod < SparkApplication @ spec.driver: limits.memory=896Mi requests.cpu=1 requests.memory=896Mi"
EXECUTOR = "1 Pod < Pod @ spec.executor: limits.memory=896Mi requests.cpu=1 requests.memory=896Mi"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("spark-pi", [DRIVER, EXECUTOR, *SERVED]),  # 512m and the least overhead of 384m
        ("spark-pi-python", [DRIVER, EXECUTOR, *SERVED]),
        ("spark-pi-dynamic-allocation", [DRIVER, EXECUTOR.replace("1 Pod", "2 Pod", 1), *SERVED]),
        (
            "spark-pi-pod-template",
            [
                "1 Pod < SparkApplication @ spec.driver: limits.cpu=1 limits.memory=1Gi requests.cpu=1 requests.memory=1Gi",
                "1 Pod < Pod @ spec.executor: limits.cpu=1500m limits.memory=1536Mi requests.cpu=1 requests.memory=1536Mi",
                "1 Service < Pod",
                "3 ConfigMap < Pod",
                "1 Service < SparkApplication",
            ],
        ),
        (
            "spark-pi-scheduled",
            [
                "1 SparkApplication < ScheduledSparkApplication",
                DRIVER.replace("spec.", "spec.template."),
                EXECUTOR.replace("spec.", "spec.template."),
                *SERVED,
            ],
        ),
    ],
)
def test_the_operators_own_examples(name: str, parts: list[str]) -> None:
    """A driver, its executors, Services and ConfigMaps; amounts of a template are replaced by Spark's."""
    assert told(example(name)) == parts


def app(
    *, driver: Manifest | None = None, executor: Manifest | None = None, conf: Manifest | None = None, **spec: Any
) -> Manifest:
    """Return a SparkApplication that says little."""
    file = {"type": "Scala", "mainApplicationFile": "local:///app.jar", "sparkConf": conf}
    whole = file | {"driver": driver or {}, "executor": executor or {}} | spec
    return {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "spec": whole}


def pods(manifest: Manifest) -> tuple[Part, Part]:
    """Return the driver and the executors."""
    driver, executors = (part for part in parts_of(manifest) if part.kind == "Pod")
    return driver, executors


SIDE = {"name": "side", "image": "i", "resources": {"requests": {"cpu": "500m"}}}
TERM = {"topologyKey": "zone", "namespaces": ["n"]}
ELSEWHERE = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
PYTHON: Manifest = {"mainApplicationFile": "local:///app.py"}
FACTOR = "spark.kubernetes.memoryOverheadFactor"


@pytest.mark.parametrize(
    ("manifest", "driver", "executor"),
    [
        (app(), "1408Mi", "1408Mi"),
        (app(driver={"memory": "10g"}, executor={"memory": "20G"}), "11Gi", "22Gi"),
        (app(driver={"memory": "10g"}, executor={"memory": "2000"}), "11Gi", "2384Mi"),
        (app(driver={"memory": "3999k"}, executor={"memory": "4tb"}), "387Mi", f"{int(4.4 * 2**20)}Mi"),
        (app(driver={"memory": "10g"}, executor={"memory": "10g"}, **PYTHON), "14Gi", "14Gi"),
        (app(driver={"memory": "10g"}, executor={"memory": "10g"}, mainApplicationFile="local:///app.R"), "14Gi", "14Gi"),
        (app(driver={"memory": "10g"}, executor={"memory": "10g"}, type="Python"), "11Gi", "11Gi"),
        (app(driver={"memory": "10g"}, executor={"memory": "10g"}, type="Python", mainApplicationFile=None), "14Gi", "14Gi"),
        (app(driver={"memory": "10g", "memoryOverhead": "1g"}, executor={"memory": "10g", "memoryOverhead": "100"}), "11Gi", "10340Mi"),
        (app(driver={"memory": "10g"}, executor={"memory": "10g"}, memoryOverheadFactor="0.2"), "12Gi", "12Gi"),
        (app(driver={"memory": "10g"}, executor={"memory": "10g"}, memoryOverheadFactor="0.2", conf={FACTOR: "0.3"}), "13Gi", "13Gi"),
        (app(driver={"memory": "100g"}, conf={"spark.driver.memoryOverheadFactor": "0.29"}), f"{102400 + int(0.29 * 102400)}Mi", "1408Mi"),
        (app(conf={"spark.driver.memory": "2g", "spark.executor.memory": "3g"}), "2432Mi", "3456Mi"),
        (app(driver={"memory": "1g"}, conf={"spark.driver.memory": "2g"}), "1408Mi", "1408Mi"),
        (app(conf={"spark.driver.memoryOverhead": "1g", "spark.executor.minMemoryOverhead": "512m"}), "2Gi", "1536Mi"),
        (app(conf={"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1073741824"}), "1408Mi", "2432Mi"),
        (app(conf={"spark.memory.offHeap.enabled": "TRUE", "spark.memory.offHeap.size": "2g"}), "1408Mi", "3456Mi"),
        (app(conf={"spark.memory.offHeap.size": "2g"}), "1408Mi", "1408Mi"),
        (app(conf={"spark.executor.pyspark.memory": "1g"}), "1408Mi", "1408Mi"),
        (app(conf={"spark.executor.pyspark.memory": "1g"}, **PYTHON), "1433Mi", "2457Mi"),
    ],
    ids=str,
)  # fmt: skip
def test_memory_is_the_heap_and_the_overhead(manifest: Manifest, driver: str, executor: str) -> None:
    """A tenth on a JVM, four tenths else, at least 384 MiB, cut off to whole MiB; requests are the limits."""
    for part, memory in zip(pods(manifest), (driver, executor), strict=True):
        amounts = line(part)
        told_memory = {word.partition("=")[2] for word in amounts.split() if ".memory=" in word}
        assert _mebibytes(told_memory) == _mebibytes({memory})


def _mebibytes(texts: set[str]) -> set[float]:
    return {int(text[:-2]) * {"Mi": 1, "Gi": 1024}[text[-2:]] for text in texts}


@pytest.mark.parametrize(
    ("manifest", "driver", "executor"),
    [
        (app(), "requests.cpu=1", "requests.cpu=1"),
        (app(driver={"cores": 2}, executor={"cores": 4, "coreLimit": "4500m"}), "requests.cpu=2", "limits.cpu=4500m requests.cpu=4"),
        (app(driver={"cores": 2, "coreRequest": "100m"}, executor={"coreRequest": "0.5"}), "requests.cpu=100m", "requests.cpu=500m"),
        (app(conf={"spark.executor.cores": "3", "spark.kubernetes.driver.request.cores": "250m"}), "requests.cpu=250m", "requests.cpu=3"),
        (app(executor={"cores": 2}, conf={"spark.executor.cores": "3"}), "requests.cpu=1", "requests.cpu=2"),
        (app(executor={"gpu": {"name": "nvidia.com/gpu", "quantity": 2}}), "requests.cpu=1", "requests.cpu=1 requests.nvidia.com/gpu=2"),
        (app(executor={"gpu": {"name": "nvidia.com/gpu", "quantity": 0}}), "requests.cpu=1", "requests.cpu=1"),
        (app(conf={"spark.executor.resource.gpu.amount": "1", "spark.executor.resource.gpu.vendor": "amd.com"}), "requests.cpu=1", "requests.amd.com/gpu=1 requests.cpu=1"),
        (app(driver={"sidecars": [{"name": "s", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}), "requests.cpu=1100m", "requests.cpu=1"),
        (app(executor={"initContainers": [{"name": "s", "resources": {"requests": {"cpu": "3"}}}]}), "requests.cpu=1", "requests.cpu=3"),
        (app(driver={"priorityClassName": "high"}), "requests.cpu=1 [PriorityClass, PriorityClass=high]", "requests.cpu=1"),
        (app(driver={"template": {"spec": {"containers": [{"name": "side", "resources": {"requests": {"cpu": "1"}}}, {"name": "spark-kubernetes-driver", "resources": {"limits": {"cpu": "9", "nvidia.com/gpu": 1}}}]}}}), "limits.cpu=9 requests.cpu=2 requests.nvidia.com/gpu=1", "requests.cpu=1"),
        (app(driver={"affinity": ELSEWHERE}), "requests.cpu=1 [CrossNamespacePodAffinity]", "requests.cpu=1"),
        (app(driver={"sidecars": [SIDE], "template": {"spec": {"containers": [{"name": "spark-kubernetes-driver"}, SIDE]}}}), "requests.cpu=1500m", "requests.cpu=1"),
        (app(driver={"sidecars": [SIDE | {"image": "j"}], "template": {"spec": {"containers": [{"name": "spark-kubernetes-driver"}, SIDE]}}}), "requests.cpu=2", "requests.cpu=1"),
        (app(driver={"template": {"spec": {"activeDeadlineSeconds": 9}}}), "requests.cpu=1 [Terminating]", "requests.cpu=1"),
    ],
    ids=str,
)  # fmt: skip
def test_cores_devices_and_the_rest_of_a_pod(manifest: Manifest, driver: str, executor: str) -> None:
    """Fields win over ``sparkConf``; the webhook adds limits, sidecars and the rest; a template is the base of it."""
    for part, expected in zip(pods(manifest), (driver, executor), strict=True):
        words = line(part).partition(": ")[2].split(" ")
        assert " ".join(word for word in words if ".memory=" not in word) == expected


def test_a_memory_limit_replaces_sparks() -> None:
    """In Java's units or in Kubernetes'."""
    for text, bytes_ in (("2g", 2 * 2**30), ("2GB", 2 * 2**30), ("2Gi", 2 * 2**30), ("3G", 3 * 2**30)):
        driver, _ = pods(app(driver={"memoryLimit": text}))
        assert driver.demand.amounts["limits.memory"] == bytes_ * 10**9
        assert driver.demand.amounts["requests.memory"] == 1408 * 2**20 * 10**9


@pytest.mark.parametrize(
    ("manifest", "count"),
    [
        (app(), 1),
        (app(executor={"instances": 5}), 5),
        (app(conf={"spark.executor.instances": "7"}), 7),
        (app(executor={"instances": 5}, conf={"spark.executor.instances": "7"}), 5),
        (app(dynamicAllocation={"enabled": True, "initialExecutors": 2, "minExecutors": 1, "maxExecutors": 9}), 2),
        (app(dynamicAllocation={"enabled": True, "minExecutors": 3}), 3),
        (app(dynamicAllocation={"enabled": True, "initialExecutors": 2}, executor={"instances": 4}), 4),
        (app(dynamicAllocation={"enabled": False, "initialExecutors": 8}), 1),
        (app(conf={"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.initialExecutors": "6"}), 6),
    ],
    ids=str,
)
def test_as_many_executors_as_start(manifest: Manifest, count: int) -> None:
    """The operator asks for one by default; dynamic allocation starts with the largest of its numbers."""
    assert pods(manifest)[1].count == count


def test_dynamic_allocation_may_start_without_executors() -> None:
    """Then there is no such part yet."""
    kinds = [part.template for part in parts_of(app(dynamicAllocation={"enabled": True})) if part.kind == "Pod"]
    assert kinds == ["spec.driver"]


def test_services_claims_and_config_maps_beside_the_pods() -> None:
    """Of the types that the application names, and claims on demand for each pod."""
    volume = "spark.kubernetes.{}.volumes.persistentVolumeClaim.{}.options.{}"
    conf = {
        volume.format("executor", "spark-local-dir-1", "claimName"): "OnDemand",
        volume.format("executor", "spark-local-dir-1", "storageClass"): "fast",
        volume.format("executor", "spark-local-dir-1", "sizeLimit"): "10Gi",
        volume.format("driver", "data", "claimName"): "mine",  # exists already: nothing is made
        "spark.kubernetes.executor.disableConfigMap": "true",
    }
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    manifest = app(
        conf=conf,
        executor={"instances": 3},
        driver={"volumeMounts": [{"name": "scratch", "mountPath": "/s"}, {"name": "spark-local-dir-9"}]},
        volumes=[scratch, scratch | {"name": "unused"}, scratch | {"name": "spark-local-dir-9"}],
        sparkUIOptions={"serviceType": "NodePort"},
        driverIngressOptions=[{"servicePort": 80, "serviceType": "LoadBalancer", "ingressURLFormat": "x"}],
        monitoring={"prometheus": {"jmxExporterJar": "x"}},
    )
    assert [line for line in told(manifest) if " Pod < " not in line] == [
        "3 PersistentVolumeClaim < Pod: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/requests.storage=10Gi persistentvolumeclaims=1 requests.storage=10Gi",
        "1 Service < Pod",
        "1 ConfigMap < Pod",
        "1 PersistentVolumeClaim < Pod: persistentvolumeclaims=1",
        "1 Service < SparkApplication: services.nodeports=1",
        "1 Service < SparkApplication: services.loadbalancers=1 services.nodeports=1",
        "1 Ingress < SparkApplication",
        "1 ConfigMap < SparkApplication",
    ]


def test_prometheus_needs_no_config_map_where_the_image_has_its_files() -> None:
    """Both the metrics properties and the exporter's configuration."""
    for configuration, metrics, number in ((None, None, 1), ("/x", None, 1), ("/x", "/y", 0)):
        prometheus = {"jmxExporterJar": "x", "configFile": configuration}
        manifest = app(monitoring={"prometheus": prometheus, "metricsPropertiesFile": metrics})
        assert told(manifest).count("1 ConfigMap < SparkApplication") == number


def test_a_suspended_schedule_makes_nothing_yet() -> None:
    """Its parts are those of one run."""
    manifest = example("spark-pi-scheduled")
    manifest["spec"]["suspend"] = True
    assert all(part.suspended for part in parts_of(manifest))


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (app(driver=None, executor=None) | {"spec": {"executor": {}}}, "spec.driver: required field is missing"),
        (app(driver={"cores": 0}), "spec.driver.cores: 0 is not a whole number of 1 or more"),
        (app(executor={"instances": 0}), "spec.executor.instances: 0 is not a whole number of 1 or more"),
        (app(driver={"coreRequest": 1}), "spec.driver.coreRequest: must be a string, not a number"),
        (app(driver={"coreLimit": "much"}), 'spec.driver.coreLimit: "much" is not a quantity: write a number such as 2, 500m or 4Gi'),
        (app(driver={"memory": "1.5g"}), 'spec.driver.memory: "1.5g" is not an amount of memory: write 512m or 4g'),
        (app(executor={"memory": "1Gi"}), 'spec.executor.memory: "1gi" is not an amount of memory: write 512m or 4g'),
        (app(executor={"memoryLimit": "x"}), 'spec.executor.memoryLimit: "x" is not a quantity: write a number such as 2, 500m or 4Gi'),
        (app(memoryOverheadFactor="a lot"), 'spec.memoryOverheadFactor: "a lot" is not a factor: write a number such as 0.1'),
        (app(conf={"spark.executor.memory": 4}), "spec.sparkConf.spark.executor.memory: must be a string, not a number"),
        (app(conf={"spark.executor.instances": "-1"}), 'spec.sparkConf.spark.executor.instances: "-1" is not a whole number of 0 or more'),
        (app(conf={"spark.executor.cores": "two"}), 'spec.sparkConf.spark.executor.cores: "two" is not a quantity: write a number such as 2, 500m or 4Gi'),
        (app(conf={"spark.driver.resource.gpu.amount": "1"}), "spec.sparkConf.spark.driver.resource.gpu.vendor: required property is missing: spark.driver.resource.gpu.amount is set"),
        (app(dynamicAllocation={"enabled": "true"}), "spec.dynamicAllocation.enabled: must be true or false, not a string"),
        (app(dynamicAllocation={"enabled": True, "minExecutors": -2}), "spec.dynamicAllocation.minExecutors: -2 is not a whole number of 0 or more"),
        (app(driver={"sidecars": [{"resources": {"limits": {"cpu": "x"}}}]}), 'spec.driver.sidecars[0].resources.limits.cpu: "x" is not a quantity: write a number such as 2, 500m or 4Gi'),
        (app(driver={"template": {"spec": {"containers": [{"resources": 3}]}}}), "spec.driver.template.spec.containers[0].resources: must be an object, not a number"),
        (app(executor={"gpu": {"name": "nvidia.com/gpu", "quantity": "2"}}), 'spec.executor.gpu.quantity: "2" is not a whole number of 0 or more'),
        (app(executor={"volumeMounts": [{"name": 3}]}), "spec.executor.volumeMounts[0].name: must be a string, not a number"),
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_application_gives_one_sentence_that_names_the_field(manifest: Manifest, sentence: str) -> None:
    """The field is the one that the user wrote, also where it becomes a property."""
    for read in (parts_of, footprint_of):
        with pytest.raises(FieldError) as caught:
            read(manifest)
        assert str(caught.value) == sentence
