"""Pods as their kubelets leave them, and what their plugin says of each: a row a case."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.kinds.pods import container
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext

Pod = dict[str, Any]

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
PLUGIN = container.plugin


def ago(**span: int) -> str:
    """Return a time before now, as the API server writes it."""
    return (NOW - timedelta(**span)).isoformat().replace("+00:00", "Z")


def pod(phase: str, *, primary: str = "", spec: Any = None, created: Any = None, **status: Any) -> Pod:
    metadata: Pod = {"name": "p", "namespace": "n"}
    if primary:
        metadata["annotations"] = {"primary_container_name": primary}
    if created:
        metadata["creationTimestamp"] = created
    return {"metadata": metadata, "spec": spec or {}, "status": {"phase": phase, **status}}


def condition(
    kind: str, status: str = "False", *, since: str | None = "", reason: str = "R", message: str = "M"
) -> Pod:
    time = ago(minutes=1) if since == "" else since
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


def waiting(reason: str, message: str = "m", name: str = "main") -> Pod:
    """Return the status of a container that waits."""
    return {"name": name, "ready": False, "state": {"waiting": {"reason": reason, "message": message}}}


def ended(name: str = "main", code: Any = 0, reason: str = "", message: str = "", *, last: bool = False) -> Pod:
    """Return the status of a container that has ended, or has ended and was started again."""
    how = {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": ago(seconds=5)}}
    return {"name": name, "lastState": how, "state": {}} if last else {"name": name, "state": how}


def runs(name: str = "main") -> Pod:
    """Return the status of a container that runs."""
    return {"name": name, "ready": True, "state": {"running": {"startedAt": ago(seconds=30)}}}


def not_ready(since: str, *containers: Pod, init: tuple[Pod, ...] = ()) -> Pod:
    """Return a pending pod whose containers are not ready since then."""
    conditions = [condition("Ready", since=since, reason="ContainersNotReady", message="unready")]
    return pod("Pending", conditions=conditions, containerStatuses=list(containers), initContainerStatuses=list(init))


def phase_of(pod: Any, **config: Any) -> PhaseInfo:
    """Return what the plugin says of it now."""
    return PLUGIN.get_task_phase(PluginContext(K8sPluginConfig(**config), NOW), pod)


def told(info: PhaseInfo) -> str:
    """Return phase, kind, code and whether the object is to be deleted, on a line."""
    error = (info.error.kind.value, info.error.code) if info.error else ()
    return " ".join([info.phase.title, *error, *(["cleanup"] if info.cleanup_on_failure else [])])


SECOND, GRACE = ago(seconds=1), ago(minutes=3)
YOUNG = ago(minutes=2, seconds=59)
PULL = waiting("ImagePullBackOff", "Back-off pulling image")
BUSY = waiting("ImagePullBackOff", "pull QPS exceeded: 429 Too Many Requests")
STUCK = "RetryableFailure USER ContainersNotReady|ImagePullBackOff cleanup"

PENDING = [
    ("no node has room", pod("Pending", conditions=[condition("PodScheduled", reason="Unschedulable", message="0/3")]), "Queued", "Unschedulable:0/3"),
    ("held by a gate", pod("Pending", conditions=[condition("PodScheduled", reason="SchedulingGated", message="gate")]), "Queued", "SchedulingGated:gate"),
    ("old condition", pod("Pending", conditions=[condition("Unschedulable", "True")]), "Queued", "R:M"),
    ("first condition decides", pod("Pending", conditions=[condition("PodScheduled"), condition("Ready")], containerStatuses=[waiting("InvalidImageName")]), "Queued", "R:M"),
    ("scheduled, nothing else", pod("Pending", conditions=[condition("PodScheduled", "True")]), "Queued", "the pod is pending, and none of its conditions says why yet"),
    ("no conditions", pod("Pending"), "Queued", "the pod is pending, and none of its conditions says why yet"),
    ("another condition", pod("Pending", conditions=[condition("Initialized")], containerStatuses=[waiting("InvalidImageName")]), "Queued", "the pod is pending, and none of its conditions says why yet"),
    ("ready", pod("Pending", conditions=[condition("Ready", "True")], containerStatuses=[waiting("InvalidImageName")]), "Queued", "the pod is pending, and none of its conditions says why yet"),
    ("not ready, none waits", not_ready(SECOND, runs()), "Queued", "the pod is pending, and none of its conditions says why yet"),
    ("pull failed once", not_ready(GRACE, waiting("ErrImagePull")), "Initializing", "[ContainersNotReady|ErrImagePull]: unready|m"),
    ("being made", not_ready(GRACE, waiting("ContainerCreating", "")), "Initializing", "[ContainersNotReady|ContainerCreating]: unready|"),
    ("init runs", not_ready(GRACE, waiting("PodInitializing")), "Initializing", "[ContainersNotReady|PodInitializing]: unready|m"),
    ("no reason yet", not_ready(GRACE, waiting("")), "Initializing", "[ContainersNotReady|]: unready|m"),
    ("pull in grace", not_ready(YOUNG, PULL), "Initializing", "[ContainersNotReady|ImagePullBackOff]: unready|Back-off pulling image"),
    ("pull after grace", not_ready(GRACE, PULL), STUCK, "Grace period [3m0s] exceeded|unready|Back-off pulling image"),
    ("busy registry in grace", not_ready(YOUNG, BUSY), "Initializing", "429"),
    ("busy registry after", not_ready(GRACE, BUSY), STUCK.replace("USER", "SYSTEM"), "429 Too Many Requests"),
    ("create error in grace", not_ready(YOUNG, waiting("CreateContainerError")), "Initializing", "CreateContainerError"),
    ("create error after", not_ready(GRACE, waiting("CreateContainerError")), "PermanentFailure USER ContainersNotReady|CreateContainerError cleanup", "Grace period [3m0s] exceeded|unready|m"),
    ("config error at once", not_ready(SECOND, waiting("CreateContainerConfigError")), "PermanentFailure USER ContainersNotReady|CreateContainerConfigError cleanup", "Grace period [0s] exceeded|unready|m"),
    ("invalid image", not_ready(SECOND, waiting("InvalidImageName")), "PermanentFailure USER ContainersNotReady|InvalidImageName cleanup", "unready|m"),
    ("registry away", not_ready(SECOND, waiting("RegistryUnavailable")), "RetryableFailure SYSTEM ContainersNotReady|RegistryUnavailable cleanup", "unready|m"),
    ("crashing", not_ready(SECOND, waiting("CrashLoopBackOff")), "RetryableFailure SYSTEM ContainersNotReady|CrashLoopBackOff cleanup", "unready|m"),
    ("init first", not_ready(GRACE, waiting("PodInitializing"), init=(PULL,)), STUCK, "Back-off"),
    ("init done", not_ready(GRACE, PULL, init=(ended("init"),)), STUCK, "Back-off"),
    ("ready ones are passed over", not_ready(GRACE, {**PULL, "ready": True}, waiting("ContainerCreating")), "Initializing", "ContainerCreating"),
    ("first that waits decides", not_ready(GRACE, waiting("ContainerCreating"), PULL), "Initializing", "ContainerCreating"),
]  # fmt: skip


OLD, NEW = ago(minutes=10), ago(minutes=9, seconds=59)
TIMED_OUT = "RetryableFailure SYSTEM PodPendingTimeout cleanup"
UNSCHEDULED = condition("PodScheduled", since=OLD)
TIMELESS = condition("Ready", since=None, reason="ContainersNotReady", message="unready")

LATE = [
    ("unscheduled for too long", pod("Pending", conditions=[UNSCHEDULED]), TIMED_OUT, "R:M"),
    ("not for too long yet", pod("Pending", conditions=[condition("PodScheduled", since=NEW)]), "Queued", "R:M"),
    ("starting for too long", not_ready(OLD, waiting("ContainerCreating")), TIMED_OUT, "[ContainersNotReady|ContainerCreating]: unready|m"),
    ("a failure stays what it is", not_ready(OLD, waiting("InvalidImageName")), "PermanentFailure USER ContainersNotReady|InvalidImageName cleanup", "unready|m"),
    ("no conditions, old pod", pod("Pending", created=OLD), TIMED_OUT, "the pod is pending, and none of its conditions says why yet"),
    ("no conditions, old start", pod("Pending", startTime=OLD), TIMED_OUT, "the pod is pending, and none of its conditions says why yet"),
    ("no conditions, young pod", pod("Pending", created=NEW), "Queued", "the pod is pending, and none of its conditions says why yet"),
    ("no times at all", pod("Pending"), "Queued", "the pod is pending, and none of its conditions says why yet"),
    ("a young condition that says nothing", pod("Pending", created=OLD, conditions=[condition("PodScheduled", "True")]), TIMED_OUT, "the pod is pending, and none of its conditions says why yet"),
    ("no time but that of a condition", pod("Pending", conditions=[condition("PodScheduled", "True", since=OLD)]), TIMED_OUT, "the pod is pending, and none of its conditions says why yet"),
    ("running", pod("Running", created=OLD, containerStatuses=[runs()]), "Running", ""),
]  # fmt: skip


AGES = [
    ("config error in grace", not_ready(YOUNG, waiting("CreateContainerConfigError")), {"create_container_config_error_grace_period": "3m"}, "Initializing"),
    ("config error after grace", not_ready(GRACE, waiting("CreateContainerConfigError")), {"create_container_config_error_grace_period": "3m"}, "PermanentFailure USER ContainersNotReady|CreateContainerConfigError cleanup"),
    ("no grace for pulls", not_ready(ago(), PULL), {"image_pull_backoff_grace_period": 0}, STUCK),
    ("longer grace for pulls", not_ready(GRACE, PULL), {"image_pull_backoff_grace_period": "3m1s"}, "Initializing"),
    ("no grace for creates", not_ready(ago(), waiting("CreateContainerError")), {"create_container_error_grace_period": "0s"}, "PermanentFailure USER ContainersNotReady|CreateContainerError cleanup"),
    ("a clock that is ahead", not_ready(ago(minutes=-5), PULL), {}, "Initializing"),
    ("a clock that is ahead, no grace", not_ready(ago(minutes=-5), waiting("CreateContainerConfigError")), {}, "PermanentFailure USER ContainersNotReady|CreateContainerConfigError cleanup"),
    ("no time: the pod's, old", pod("Pending", created=GRACE, conditions=[TIMELESS], containerStatuses=[PULL]), {}, STUCK),
    ("no time: the pod's, young", pod("Pending", created=YOUNG, conditions=[TIMELESS], containerStatuses=[PULL]), {}, "Initializing"),
    ("no time at all", pod("Pending", conditions=[TIMELESS], containerStatuses=[PULL]), {}, "Initializing"),
]  # fmt: skip


NO_MESSAGE = "Pod failed. No message received from kubernetes."
OOM, USER_OOM = ended(code=137, reason="OOMKilled"), "RetryableFailure USER OOMKilled"
INTERRUPTED = "RetryableFailure SYSTEM Interrupted"
SIDE_KILLED, SIDE_OOM = ended("side", 137, "Error"), ended("side", 137, "OOMKilled")


def failed(*containers: Pod, primary: str = "", **status: Any) -> Pod:
    return pod("Failed", primary=primary, containerStatuses=list(containers), **status)


def disrupted(reason: str) -> Pod:
    """Return the condition of a pod that the cluster ends."""
    return condition("DisruptionTarget", "True", reason=reason)


OVER = (
    "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
    'Container main exceeded its local ephemeral storage limit "1Gi". ',
    'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ',
)
"""What a kubelet writes of a pod that it evicts for the pod's own limits."""

ENDED = [
    ("success", pod("Succeeded", containerStatuses=[ended()]), "Success", ""),
    ("success without statuses", pod("Succeeded"), "Success", ""),
    ("success, one status to come", pod("Succeeded", containerStatuses=[{"name": "main"}]), "Success", ""),
    ("success despite oom", pod("Succeeded", containerStatuses=[ended(reason="OOMKilled")]), USER_OOM, "Pod reported success despite being OOMKilled"),
    ("success, init oom", pod("Succeeded", initContainerStatuses=[ended("i", reason="OOMKilled")], containerStatuses=[ended()]), USER_OOM, "Pod reported success despite being OOMKilled"),
    ("success, ephemeral oom", pod("Succeeded", ephemeralContainerStatuses=[ended("e", reason="OOMKilled")]), USER_OOM, "Pod reported success despite being OOMKilled"),
    ("plain exit", failed(ended(code=1, reason="Error", message="boom")), "RetryableFailure USER UnknownError", NO_MESSAGE + "\r\n[main] terminated with exit code (1). Reason [Error]. Message: \nboom."),
    ("plain exit of the primary", failed(ended(code=1, reason="Error"), primary="main"), "RetryableFailure USER UnknownError", "exit code (1)"),
    ("plain exit of an init container", pod("Failed", initContainerStatuses=[ended("init", 1)]), "RetryableFailure USER UnknownError", "[init]"),
    ("nothing is known", pod("Failed"), INTERRUPTED, NO_MESSAGE),
    ("failed though all ended well", failed(ended()), INTERRUPTED, NO_MESSAGE + "\r\n[main] terminated with ExitCode 0."),
    ("evicted", pod("Failed", reason="Evicted", message="The node was low on resource"), "RetryableFailure USER Evicted", "The node was low on resource"),
    ("deadline", failed(ended(code=143), reason="DeadlineExceeded"), "RetryableFailure USER DeadlineExceeded", "exit code (143)"),
    *[(f"reason {reason}", failed(ended(code=143), reason=reason), INTERRUPTED, "exit code (143)") for reason in ("Shutdown", "Terminated", "NodeShutdown", "NodeAffinity", "NodeLost", "Preempting")],
    *[(reason, failed(ended(code=1), conditions=[disrupted(reason)]), INTERRUPTED, f"{reason}: M\r\n[main] terminated with exit code (1)") for reason in ("PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC", "TerminationByKubelet", "OfTheFuture")],
    ("disrupted, and the pod says why", failed(ended(code=143), message="why", conditions=[disrupted("DeletionByPodGC")]), INTERRUPTED, "why\r\n[main]"),
    ("disrupted without a word", failed(ended(code=143), conditions=[{"type": "DisruptionTarget", "status": "True"}]), INTERRUPTED, "DisruptionTarget\r\n[main]"),
    ("oom of a disrupted pod", failed(OOM, reason="Evicted", conditions=[disrupted("TerminationByKubelet")]), USER_OOM, ""),
    ("preempted by its kubelet", failed(ended(code=137), reason="Preempting", message="Preempted in order to admit critical pod", conditions=[disrupted("TerminationByKubelet")]), INTERRUPTED, "Preempted in order to admit critical pod"),
    *[(f"refused: {reason}", pod("Failed", reason=reason, message="Pod was rejected: why"), f"RetryableFailure SYSTEM {reason}", "Pod was rejected: why") for reason in ("OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfnvidia.com/gpu", "UnexpectedAdmissionError", "TopologyAffinityError", "UnexpectedPredicateFailureType")],
    ("refused: the user's sysctl", pod("Failed", reason="SysctlForbidden"), "RetryableFailure USER SysctlForbidden", ""),
    ("refused by a node under pressure", pod("Failed", reason="Evicted", message="Pod was rejected: The node had condition: [MemoryPressure]. "), "RetryableFailure SYSTEM Evicted", "MemoryPressure"),
    *[(f"over a limit of its own: {message}", failed(ended(code=137, reason="Error"), primary=primary, reason="Evicted", message=message), "RetryableFailure USER Evicted", message) for primary in ("", "main") for message in OVER],
    ("over a limit, and oom before", failed(ended(), SIDE_OOM, reason="Evicted", message=OVER[0]), USER_OOM, ""),
    ("its deadline, killed", failed(ended(code=137, reason="Error"), primary="main", reason="DeadlineExceeded"), "RetryableFailure USER DeadlineExceeded", "exit code (137)"),
    ("its deadline, killed, no primary", failed(ended(code=137, reason="Error"), reason="DeadlineExceeded"), "RetryableFailure USER DeadlineExceeded", "exit code (137)"),
    ("evicted and killed, nobody says for what", failed(ended(code=137, reason="Error"), primary="main", reason="Evicted"), INTERRUPTED, ""),
    ("node pressure", failed(ended(code=137), reason="Evicted", message="The node was low on resource: memory. ", conditions=[disrupted("TerminationByKubelet")]), INTERRUPTED, "low on resource"),
    ("another condition", failed(ended(code=1), conditions=[condition("Ready", "True", reason="PreemptionByScheduler")]), "RetryableFailure USER UnknownError", ""),
    ("no disruption", failed(ended(code=1), conditions=[condition("DisruptionTarget", "False", reason="PreemptionByScheduler")]), "RetryableFailure USER UnknownError", ""),
    ("oom", failed(OOM), USER_OOM, "Reason [OOMKilled]"),
    ("oom before a restart", failed(ended(code=137, reason="OOMKilled", last=True)), USER_OOM, "Reason [OOMKilled]"),
    ("oom counts, whatever reason the pod gives", failed(OOM, reason="Evicted", primary="main"), USER_OOM, ""),
    ("oom of the primary while its node goes", failed(OOM, reason="Shutdown", primary="main"), USER_OOM, ""),
    ("oom of the only container while its node goes", failed(OOM, reason="Shutdown"), USER_OOM, ""),
    ("oom of another while its node goes", failed(ended(), SIDE_OOM, reason="Shutdown", primary="main"), INTERRUPTED, ""),
    ("oom with exit 0 of another", failed(ended(), ended("side", 0, "OOMKilled")), USER_OOM, ""),
    ("killed, no primary", failed(ended(code=137)), "RetryableFailure USER Interrupted", ""),
    ("killed, as a byte", failed(ended(code=247)), "RetryableFailure USER Interrupted", ""),
    ("primary killed", failed(ended(code=137, reason="Error"), primary="main"), INTERRUPTED, ""),
    ("primary killed, as a byte", failed(ended(code=247), primary="main"), INTERRUPTED, ""),
    ("another killed", failed(ended(), SIDE_KILLED, primary="main"), "RetryableFailure USER Interrupted", ""),
    ("oom, then another killed", failed(OOM, SIDE_KILLED, primary="main"), USER_OOM, ""),
    ("oom, then another killed, no primary", failed(OOM, SIDE_KILLED), USER_OOM, ""),
    ("killed, then another oom, no primary", failed(SIDE_KILLED, OOM), USER_OOM, ""),
    ("failed, then another killed", failed(ended(code=1), SIDE_KILLED, primary="main"), "RetryableFailure USER UnknownError", ""),
    ("failed with a reason, then another killed", failed(ended(code=1), SIDE_KILLED, primary="main", reason="Why"), "RetryableFailure USER Why", ""),
]  # fmt: skip


MALFORMED = [
    ("a condition that is a truth value", pod("Failed", conditions=[{**disrupted("PreemptionByScheduler"), "status": True}]), INTERRUPTED, "PreemptionByScheduler: M"),
    ("a condition that is the other truth value", failed(ended(code=1), conditions=[{**disrupted("PreemptionByScheduler"), "status": False}]), "RetryableFailure USER UnknownError", ""),
    ("an exit code that can't be read", failed(ended(code="1"), reason=""), "RetryableFailure USER UnknownError", "exit code (-1)"),
    ("an exit code that is none", failed(ended(code=False), reason=""), "RetryableFailure USER UnknownError", "exit code (-1)"),
]  # fmt: skip
"""What no API server stores."""


SPEC = {"containers": [{"name": "main"}, {"name": "side"}]}
LOST = "PermanentFailure USER PrimaryContainerNotFound"

OTHERS = [("runs", runs()), ("waits", waiting("CrashLoopBackOff"))]


def two_states(one: Pod, other: Pod) -> Pod:
    """Return a status that no kubelet writes: a container in two states at once."""
    return {"name": "main", "state": {**one["state"], **other["state"]}}


RUNNING = [
    ("runs", pod("Running", spec=SPEC, containerStatuses=[runs()]), "Running", 1),
    ("no logs: no containers are known", pod("Running", containerStatuses=[runs()]), "Running", 0),
    ("one of two is done", pod("Running", containerStatuses=[ended(), runs("side")]), "Running", 0),
    ("one of two has failed", pod("Running", containerStatuses=[ended(code=1), runs("side")]), "Running", 0),
    ("all are done", pod("Running", containerStatuses=[ended(), ended("side")]), "Success", 0),
    ("all are done, one by oom", pod("Running", containerStatuses=[ended(), ended("side", reason="OOMKilled")]), USER_OOM, 0),
    ("done, a sidecar runs on", pod("Running", containerStatuses=[ended()], initContainerStatuses=[runs("init")]), "Running", 0),
    ("done, the other is not told of", pod("Running", spec=SPEC, containerStatuses=[ended()]), "Running", 1),
    ("primary runs", pod("Running", spec=SPEC, primary="main", containerStatuses=[runs(), ended("side", 1)]), "Running", 1),
    ("primary waits", pod("Running", primary="main", containerStatuses=[waiting("ContainerCreating"), runs("side")]), "Running", 0),
    ("primary done", pod("Running", primary="main", containerStatuses=[runs("side"), ended()]), "Success", 0),
    ("primary failed", pod("Running", primary="main", containerStatuses=[ended(code=3, reason="Error")]), "RetryableFailure USER Error", 0),
    ("primary oom", pod("Running", primary="main", containerStatuses=[OOM]), USER_OOM, 0),
    ("primary oom with exit 0", pod("Running", primary="main", containerStatuses=[ended(reason="OOMKilled")]), USER_OOM, 0),
    ("primary killed", pod("Running", primary="main", containerStatuses=[ended(code=137, reason="Error")]), "RetryableFailure SYSTEM Error", 0),
    ("primary killed, as a byte", pod("Running", primary="main", containerStatuses=[ended(code=247, reason="Killed")]), "RetryableFailure SYSTEM Killed", 0),
    ("primary ended first of a disrupted pod", pod("Running", primary="main", conditions=[disrupted("PreemptionByScheduler")], containerStatuses=[ended(code=143, reason="Error"), runs("side")]), INTERRUPTED, 0),
    ("primary done in a disrupted pod", pod("Running", primary="main", conditions=[disrupted("PreemptionByScheduler")], containerStatuses=[ended(), runs("side")]), "Success", 0),
    ("primary oom in a disrupted pod", pod("Running", primary="main", conditions=[disrupted("PreemptionByScheduler")], containerStatuses=[OOM]), USER_OOM, 0),
    ("runs in a disrupted pod", pod("Running", primary="main", conditions=[disrupted("PreemptionByScheduler")], containerStatuses=[runs()]), "Running", 0),
    ("primary runs again", pod("Running", primary="main", containerStatuses=[{**ended(code=1, last=True), **runs()}]), "Running", 0),
    *[(f"primary ended, and {other}", pod("Running", primary="main", containerStatuses=[two_states(ended(code=1), state)]), "Running", 0) for other, state in OTHERS],
    *[(f"all are done, and one {other}", pod("Running", containerStatuses=[two_states(ended(), state)]), "Running", 0) for other, state in OTHERS],
    ("primary without a state", pod("Running", primary="main", containerStatuses=[{"name": "main"}]), "Running", 0),
    ("primary absent", pod("Running", primary="gone", containerStatuses=[runs()]), LOST, 0),
    ("primary still to come", pod("Running", spec=SPEC, primary="main", containerStatuses=[runs("side")]), "Running", 0),
    ("unschedulable", pod("Unschedulable"), "Queued", 0),
    ("unknown", pod("Unknown"), "Undefined", 0),
    ("a phase of the future", pod("Paused"), "Running", 0),
    ("not created yet", pod(""), "Queued", 0),
]  # fmt: skip
