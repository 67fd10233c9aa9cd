"""What the operators of Ray, Kubeflow, JobSet and Dask make: their own examples, and the fields that change it."""

# ruff: noqa: E501  # tables of manifests

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.charges.parts import Part, footprint_of, parts_of
from tests.reading.told_parts import EXAMPLES as FILES
from tests.reading.told_parts import example, load, told

if TYPE_CHECKING:
    from collections.abc import Iterator

Manifest = dict[str, Any]

SUBMITTER = "1 Pod < Job: limits.cpu=1 limits.memory=1Gi requests.cpu=500m requests.memory=200Mi"
EXAMPLES = {
    # the launcher's init container is sized by the operator: 100m, 512Mi and 5Gi of ephemeral storage
    "mpi-tensorflow-mnist": [
        "1 ServiceAccount < MPIJob",
        "1 Pod < MPIJob @ spec.mpiReplicaSpecs.Launcher.template: limits.cpu=1 limits.ephemeral-storage=5Gi limits.memory=2Gi requests.cpu=1 requests.ephemeral-storage=5Gi requests.memory=2Gi",
        "2 Pod < MPIJob @ spec.mpiReplicaSpecs.Worker.template: limits.cpu=2 limits.memory=4Gi requests.cpu=2 requests.memory=4Gi",
        "1 ConfigMap < MPIJob",
        "1 Role < MPIJob",
        "1 RoleBinding < MPIJob",
    ],
    "mpi-v2beta1-pi": [
        "1 Job < MPIJob",
        "1 Pod < Job @ spec.mpiReplicaSpecs.Launcher.template: limits.cpu=1 limits.memory=1Gi requests.cpu=1 requests.memory=1Gi",
        "2 Pod < MPIJob @ spec.mpiReplicaSpecs.Worker.template: limits.cpu=1 limits.memory=1Gi requests.cpu=1 requests.memory=1Gi",
        "1 Service < MPIJob",
        "1 ConfigMap < MPIJob",
        "1 Secret < MPIJob",
    ],
    "pytorch-elastic-imagenet": [
        "2 Pod < PyTorchJob @ spec.pytorchReplicaSpecs.Worker.template: requests.cpu=4",
        "2 Service < PyTorchJob",
        "1 HorizontalPodAutoscaler < PyTorchJob",
    ],
    # workers wait for the master in an init container, whose requests are all that the pod has
    "pytorch-simple": [
        "1 Pod < PyTorchJob @ spec.pytorchReplicaSpecs.Master.template [BestEffort]",
        "2 Service < PyTorchJob",
        "1 Pod < PyTorchJob @ spec.pytorchReplicaSpecs.Worker.template: limits.cpu=100m limits.memory=20Mi requests.cpu=50m requests.memory=10Mi",
    ],
    # 1 cpu and 2G of the head, 500m and 512Mi of the autoscaler beside it; the group has no replicas yet
    "ray-cluster.autoscaler": [
        "1 Pod < RayCluster @ spec.headGroupSpec.template: limits.cpu=1500m limits.memory=2477413Ki requests.cpu=1500m requests.memory=2477413Ki",
        "1 Service < RayCluster",
        "1 ServiceAccount < RayCluster",
        "1 Role < RayCluster",
        "1 RoleBinding < RayCluster",
    ],
    "ray-cluster.tpu-v4-multihost": [
        "1 Pod < RayCluster @ spec.headGroupSpec.template: limits.cpu=8 limits.ephemeral-storage=20Gi limits.memory=40G requests.cpu=8 requests.ephemeral-storage=10Gi requests.memory=40G",
        "2 Pod < RayCluster @ spec.workerGroupSpecs[0].template: limits.cpu=1 limits.ephemeral-storage=20Gi limits.memory=40G requests.cpu=1 requests.ephemeral-storage=10Gi requests.google.com/tpu=4 requests.memory=40G",
        "2 Service < RayCluster",
    ],
    "ray-job.interactive-mode": [
        "1 RayCluster < RayJob",
        "1 Pod < RayCluster @ spec.rayClusterSpec.headGroupSpec.template: limits.cpu=2 limits.memory=4Gi requests.cpu=2 requests.memory=4Gi",
        "1 Pod < RayCluster @ spec.rayClusterSpec.workerGroupSpecs[0].template: limits.cpu=2 limits.memory=4Gi requests.cpu=2 requests.memory=4Gi",
        "1 Service < RayCluster",
    ],
    "ray-job.kueue-toy-sample": [
        "1 RayCluster < RayJob",
        "1 Pod < RayCluster @ spec.rayClusterSpec.headGroupSpec.template: limits.cpu=1 limits.memory=2Gi requests.cpu=1 requests.memory=2Gi",
        "1 Pod < RayCluster @ spec.rayClusterSpec.workerGroupSpecs[0].template: limits.cpu=1 limits.memory=2Gi requests.cpu=1 requests.memory=2Gi",
        "1 Service < RayCluster",
        "1 Job < RayJob",
        SUBMITTER,
    ],
    "ray-job.use-existing-raycluster": ["1 Job < RayJob", SUBMITTER],
    "tf-dist-mnist": [
        "1 Pod < TFJob @ spec.tfReplicaSpecs.Chief.template [BestEffort]",
        "4 Service < TFJob",
        "1 Pod < TFJob @ spec.tfReplicaSpecs.PS.template [BestEffort]",
        "2 Pod < TFJob @ spec.tfReplicaSpecs.Worker.template [BestEffort]",
    ],
    "xgboostjob": [
        "1 Pod < XGBoostJob @ spec.xgbReplicaSpecs.Master.template [BestEffort]",
        "3 Service < XGBoostJob",
        "2 Pod < XGBoostJob @ spec.xgbReplicaSpecs.Worker.template [BestEffort]",
    ],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_operators_own_examples(name: str) -> None:
    """Read off the operators' sources, field by field."""
    assert told(example(name)) == EXAMPLES[name]


def changed(manifest: Manifest, **fields: Any) -> Manifest:
    """Return a copy with other values; ``a__b__0`` is the path of a field below ``spec``."""
    copied = copy.deepcopy(manifest)
    for path, value in fields.items():
        *parents, last = ("spec", *path.split("__"))
        place: Any = copied
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        place[last] = value
    return copied


RAY_JOB = example("ray-job.kueue-toy-sample")
RAY_CLUSTER = example("ray-cluster.tpu-v4-multihost")
PYTORCH = example("pytorch-simple")
MPI = example("mpi-tensorflow-mnist")
SMALL = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}
JOB_SET = load("""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: driver
    template: {spec: {template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}}
  - name: workers
    replicas: 2
    template: {spec: {parallelism: 4, completions: 4, template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}}}}
""")
CLAIM = {"metadata": {"name": "shared"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
DASK = load("""
apiVersion: kubernetes.dask.org/v1
kind: DaskJob
metadata: {name: simple-job}
spec:
  job: {spec: {containers: [{name: job, resources: {requests: {cpu: 100m}}}]}}
  cluster:
    spec:
      worker: {replicas: 2, spec: {containers: [{name: worker, resources: {requests: {cpu: 2}}}]}}
      scheduler:
        spec: {containers: [{name: scheduler, resources: {requests: {cpu: 1}}}]}
        service: {type: NodePort, ports: [{port: 8786}, {port: 8787}]}
""")
DRIVER = "1 Pod < Job @ spec.replicatedJobs[0].template.spec.template: requests.cpu=1"
WORKERS = "8 Pod < Job @ spec.replicatedJobs[1].template.spec.template: requests.nvidia.com/gpu=8 [BestEffort]"


def workers(**fields: Any) -> Manifest:
    """Return the RayCluster with one worker group of other fields."""
    group = {"template": SMALL, "groupName": "g"} | fields
    return changed(RAY_CLUSTER, workerGroupSpecs=[group])


@pytest.mark.parametrize(
    ("manifest", "count"),
    [
        (workers(), None),
        (workers(replicas=3), 3),
        (workers(replicas=1, minReplicas=2), 2),
        (workers(replicas=9, minReplicas=2, maxReplicas=4), 4),
        (workers(minReplicas=5, maxReplicas=4), 4),
        (workers(replicas=3, numOfHosts=4), 12),
        (workers(replicas=3, suspend=True), 3),
    ],
    ids=str,
)
def test_a_worker_group_starts_within_its_bounds(manifest: Manifest, count: int | None) -> None:
    """Replicas between ``minReplicas`` and ``maxReplicas``, times the hosts of each."""
    counts = [part.count for part in parts_of(manifest) if part.template == "spec.workerGroupSpecs[0].template"]
    assert counts == ([] if count is None else [count])


def test_a_worker_is_charged_for_its_wait_and_told_if_it_is_suspended() -> None:
    """The operator's init container asks for 200m and 256Mi; a suspended group has no pods yet."""
    bare = {"spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "own"}]}}
    place = "@ spec.workerGroupSpecs[0].template"
    amounts = "limits.cpu=200m limits.memory=256Mi requests.cpu=200m requests.memory=256Mi"
    assert told(workers(replicas=2, template=bare))[1] == f"2 Pod < RayCluster {place}: {amounts}"
    assert told(workers(replicas=2, template=bare, suspend=True))[1].endswith(f"{amounts} suspended")


@pytest.mark.parametrize(
    ("manifest", "difference"),
    [
        (changed(RAY_JOB, submissionMode="HTTPMode"), ({"1 Job < RayJob", SUBMITTER}, set())),
        (changed(RAY_JOB, submitterPodTemplate=SMALL), ({SUBMITTER}, {"1 Pod < Job @ spec.submitterPodTemplate: requests.cpu=100m"})),
        (changed(RAY_JOB, managedBy="kueue.x-k8s.io/multikueue"), (set(told(RAY_JOB)), set())),
        (changed(RAY_JOB, suspend=True), (set(told(RAY_JOB)), {f"{line} suspended" for line in told(RAY_JOB)})),
        (changed(RAY_JOB, rayClusterSpec__headGroupSpec__serviceType="NodePort"), ({"1 Service < RayCluster"}, {"1 Service < RayCluster: services.nodeports=4"})),
        (changed(RAY_JOB, rayClusterSpec__headGroupSpec__headService={"spec": {"type": "LoadBalancer", "ports": [{"port": 1}]}}), ({"1 Service < RayCluster"}, {"1 Service < RayCluster: services.loadbalancers=1 services.nodeports=5"})),
        (changed(RAY_JOB, rayClusterSpec__headGroupSpec__serviceType="NodePort", rayClusterSpec__headGroupSpec__template__spec__containers__0__ports=[]), ({"1 Service < RayCluster"}, {"1 Service < RayCluster: services.nodeports=5"})),
        (RAY_JOB | {"metadata": {"annotations": {"ray.io/enable-serve-service": "true"}}}, ({"1 Service < RayCluster"}, {"2 Service < RayCluster"})),
        (changed(RAY_JOB, rayClusterSpec__headGroupSpec__enableIngress=True), (set(), {"1 Ingress < RayCluster"})),
        (changed(RAY_JOB, rayClusterSpec__headGroupSpec__template={"spec": SMALL["spec"] | {"serviceAccountName": "mine"}}, rayClusterSpec__enableInTreeAutoscaling=True), ({told(RAY_JOB)[1]}, {"1 Role < RayCluster", "1 RoleBinding < RayCluster", "1 Pod < RayCluster @ spec.rayClusterSpec.headGroupSpec.template: limits.cpu=500m limits.memory=512Mi requests.cpu=600m requests.memory=512Mi"})),
        (changed(RAY_CLUSTER, suspend=True), (set(told(RAY_CLUSTER)[:2]), {f"{line} suspended" for line in told(RAY_CLUSTER)[:2]})),
        (RAY_CLUSTER | {"metadata": {"annotations": {"ray.io/enable-serve-service": "true"}}}, ({"2 Service < RayCluster"}, {"3 Service < RayCluster"})),
        (changed(PYTORCH, runPolicy={"suspend": True}), (set(told(PYTORCH)), {f"{line} suspended" for line in told(PYTORCH)})),
        (changed(PYTORCH, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}), (set(told(PYTORCH)), set())),
        (changed(PYTORCH, pytorchReplicaSpecs={"worker": {"template": SMALL}}), (set(told(PYTORCH)), {"1 Pod < PyTorchJob @ spec.pytorchReplicaSpecs.worker.template: requests.cpu=100m", "1 Service < PyTorchJob"})),
        (changed(PYTORCH, elasticPolicy={"minReplicas": 1, "maxReplicas": 4}), (set(), set())),
        (changed(MPI, mpiReplicaSpecs__Worker__replicas=None), ({told(MPI)[2]}, set())),
        (changed(MPI, mpiReplicaSpecs__Launcher__template={"spec": SMALL["spec"] | {"serviceAccountName": "mine"}}), (set(told(MPI)[:2]), {"1 Pod < MPIJob @ spec.mpiReplicaSpecs.Launcher.template: limits.cpu=100m limits.ephemeral-storage=5Gi limits.memory=512Mi requests.cpu=100m requests.ephemeral-storage=5Gi requests.memory=512Mi"})),
        (changed(example("mpi-v2beta1-pi"), runPolicy__suspend=True), (set(EXAMPLES["mpi-v2beta1-pi"][1:3]), {f"{line} suspended" for line in EXAMPLES["mpi-v2beta1-pi"][1:3]})),
        (changed(JOB_SET, network={"enableDNSHostnames": False}), ({"1 Service < JobSet"}, set())),
        (changed(JOB_SET, suspend=True), ({DRIVER, WORKERS}, {f"{DRIVER} suspended", f"{WORKERS} suspended"})),
        (changed(JOB_SET, replicatedJobs__1__template__spec__suspend=True), (set(), set())),
        (changed(JOB_SET, managedBy="kueue.x-k8s.io/multikueue"), (set(told(JOB_SET)), set())),
        (changed(JOB_SET, replicatedJobs__1__dependsOn=[{"name": "driver", "status": "Ready"}]), (set(), set())),
        (changed(JOB_SET, replicatedJobs__1__dependsOn=[{"name": "driver", "status": "Complete"}]), ({"3 Job < JobSet", WORKERS}, {"1 Job < JobSet"})),
        (changed(JOB_SET, volumeClaimPolicies=[{"templates": [CLAIM]}]), (set(), {"1 PersistentVolumeClaim < JobSet: persistentvolumeclaims=1 requests.storage=1Gi"})),
        (changed(DASK, cluster__spec__worker__replicas=0), ({"2 Deployment < DaskWorkerGroup", "3 ReplicaSet < Deployment", "2 Pod < ReplicaSet @ spec.cluster.spec.worker: requests.cpu=2"}, {"1 ReplicaSet < Deployment"})),
    ],
    ids=lambda each: each["kind"] if isinstance(each, dict) else "",
)  # fmt: skip
def test_a_field_changes_what_is_made(manifest: Manifest, difference: tuple[set[str], set[str]]) -> None:
    """Against the unchanged manifest: the lines that go, and those that come."""
    base = {"RayJob": RAY_JOB, "RayCluster": RAY_CLUSTER, "PyTorchJob": PYTORCH, "JobSet": JOB_SET, "DaskJob": DASK}
    version = manifest["apiVersion"].rpartition("/")[2]
    before = base.get(manifest["kind"]) or (MPI if version == "v1" else example("mpi-v2beta1-pi"))
    lines, now = set(told(before)), set(told(manifest))
    assert (lines - now, now - lines) == difference


def test_a_job_set_makes_jobs_and_these_the_pods() -> None:
    """Jobs of all replicated jobs are one part; pods one for each template: replicas times parallelism."""
    assert told(JOB_SET) == ["1 Service < JobSet", "3 Job < JobSet", DRIVER, WORKERS]


def test_what_follows_a_job_that_follows_another_is_left_out() -> None:
    """Waiting for one that waits for completion is waiting for completion, even if only to be ready."""
    driver, others = JOB_SET["spec"]["replicatedJobs"]
    after = others | {"dependsOn": [{"name": "driver", "status": "Complete"}]}
    beside_that = others | {"name": "monitor", "dependsOn": [{"name": "workers", "status": "Ready"}]}
    chain = changed(JOB_SET, replicatedJobs=[driver, after, beside_that])
    assert told(chain) == ["1 Service < JobSet", "1 Job < JobSet", DRIVER]


def test_dask_runs_a_deployment_for_the_scheduler_and_for_each_worker() -> None:
    """A DaskJob: its cluster, its worker group, their Deployments, ReplicaSets and pods, and the runner."""
    assert told(DASK) == [
        "1 DaskCluster < DaskJob",
        "1 Deployment < DaskCluster",
        "3 ReplicaSet < Deployment",
        "1 Pod < ReplicaSet @ spec.cluster.spec.scheduler: requests.cpu=1",
        "1 Service < DaskCluster: services.nodeports=2",
        "1 DaskWorkerGroup < DaskCluster",
        "2 Deployment < DaskWorkerGroup",
        "2 Pod < ReplicaSet @ spec.cluster.spec.worker: requests.cpu=2",
        "1 Pod < DaskJob @ spec.job: requests.cpu=100m",
    ]


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        ({"apiVersion": "ray.io/v1", "kind": "RayCluster"}, "spec: required field is missing"),
        ({"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {}}, "spec.rayClusterSpec: required field is missing"),
        (workers(numOfHosts=0), "spec.workerGroupSpecs[0].numOfHosts: 0 is not a whole number of 1 or more"),
        (workers(replicas="3"), 'spec.workerGroupSpecs[0].replicas: "3" is not a whole number of 0 or more'),
        (workers(template={}), "spec.workerGroupSpecs[0].template.spec: required field is missing"),
        (workers(template={"spec": {"containers": [], "initContainers": 3}}), "spec.workerGroupSpecs[0].template.spec.initContainers: must be a list, not a number"),
        (changed(RAY_CLUSTER, autoscalerOptions={"resources": 3}, enableInTreeAutoscaling=True), "spec.autoscalerOptions.resources: must be an object, not a number"),
        (changed(RAY_CLUSTER, headGroupSpec={"template": {"spec": {"containers": [{"ports": [{"name": 1}]}]}}}), "spec.headGroupSpec.template.spec.containers[0].ports[0].name: must be a string, not a number"),
        (changed(RAY_JOB, submitterPodTemplate={"spec": {"containers": []}}), "spec.submitterPodTemplate.spec.containers: a pod needs at least one container"),
        (changed(PYTORCH, pytorchReplicaSpecs=None), "spec.pytorchReplicaSpecs: required field is missing"),
        (changed(PYTORCH, pytorchReplicaSpecs__Worker=None), "spec.pytorchReplicaSpecs.Worker: required field is missing"),
        (changed(PYTORCH, pytorchReplicaSpecs={3: {"template": 1}}), "spec.pytorchReplicaSpecs.3.template: must be an object, not a number"),
        (changed(PYTORCH, runPolicy__suspend=1), "spec.runPolicy.suspend: must be true or false, not a number"),
        (changed(MPI, mpiReplicaSpecs__Worker__replicas=-1), "spec.mpiReplicaSpecs.Worker.replicas: -1 is not a whole number of 0 or more"),
        (changed(JOB_SET, replicatedJobs__0__template={}), "spec.replicatedJobs[0].template.spec: required field is missing"),
        (changed(JOB_SET, replicatedJobs__1__template__spec__parallelism="x"), 'spec.replicatedJobs[1].template.spec.parallelism: "x" is not a whole number of 0 or more'),
        (changed(JOB_SET, replicatedJobs=[{"name": str(n), "template": {"spec": {"template": SMALL}}} for n in range(15)]), "spec.replicatedJobs[14].template.spec.template: Pod made by Job is part 17 of this manifest: at most 16 parts can be admitted together, split it"),
        (changed(DASK, cluster__spec__worker=None), "spec.cluster.spec.worker: required field is missing"),
        (changed(DASK, cluster__spec__worker__spec__containers=[]), "spec.cluster.spec.worker.spec.containers: a pod needs at least one container"),
    ],
    ids=lambda each: each if isinstance(each, str) else each["kind"],
)  # fmt: skip
def test_a_malformed_resource_gives_one_sentence_that_names_the_field(manifest: Manifest, sentence: str) -> None:
    """The path is that of the user's manifest, through all templates."""
    for read in (parts_of, footprint_of):
        with pytest.raises(FieldError) as caught:
            read(manifest)
        assert str(caught.value) == sentence


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.floats(), st.text(max_size=3), st.just([]), st.just({}),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.just([{}]), st.just({"spec": {"containers": [{}]}}),
)  # fmt: skip
WHOLE = [*(example(path.stem) for path in sorted(FILES.glob("*.yaml"))), JOB_SET, DASK]


@given(st.data())
def test_whatever_is_wrong_is_said_with_the_path_of_a_field(data: st.DataObject) -> None:
    """One field anywhere in an example is replaced: it is read, or refused in one sentence, never with a traceback."""
    manifest = copy.deepcopy(data.draw(st.sampled_from(WHOLE), label="manifest"))
    place, key = data.draw(st.sampled_from(sorted(_places(manifest["spec"]), key=str)), label="field")
    parent: Any = manifest["spec"]
    for step in place:
        parent = parent[step]
    parent[key] = data.draw(JUNK, label="value")
    said = ""
    parts: tuple[Part, ...] = ()
    try:
        parts = parts_of(manifest)
    except FieldError as error:
        said = str(error)
    assert not said or re.match(r"spec[.\[:]", said)
    assert all(part.count is None or part.count > 0 for part in parts)


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every field and every item below a node: the path of its parent, and its key."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield path, key
        yield from _places(value, (*path, key))
