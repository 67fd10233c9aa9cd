"""The pods that tasks are built into: what the task says, what the platform adds, what it takes away."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.kinds.pods import container, pod, sidecar
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginEntry, TaskContext, TaskMetadata, TaskSpecError

JSON = dict[str, Any]
ENTRIES: dict[str, PluginEntry] = {
    kind: each for each in (container, pod, sidecar) for kind in each.registered_task_types
}
IMAGE: JSON = {"image": "busybox"}
TWO: JSON = {"spec": {"containers": [{"name": "main", "image": "a"}, {"name": "side", "image": "b"}]}}


def built(kind: str, spec: JSON, config: JSON | None = None, **metadata: Any) -> JSON:
    task = TaskMetadata("team", "t", "uid", 0, metadata.pop("generated_name", "t-0"), **metadata)
    settings = K8sPluginConfig.model_validate(config or {})
    return ENTRIES[kind].plugin.build_resource(TaskContext(task, kind, spec, settings))


def container_of(spec: JSON, config: JSON | None = None, **run: Any) -> JSON:
    """Return the container of a task that is one."""
    found: JSON = built("container", {"container": {**IMAGE, **spec}, **run}, config)["spec"]["containers"][0]
    return found


def resources(spec: JSON, config: JSON | None = None, **run: Any) -> tuple[JSON, JSON]:
    """Return the requests and limits of a task that is one container with these resources."""
    found = container_of({"resources": spec}, config, **run)["resources"]
    return found["requests"], found["limits"]


def test_a_container_task() -> None:
    """It is a pod of one container, that runs once, with the platform's defaults."""
    assert built("container", {"container": IMAGE}, service_account="runner") == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"annotations": {"primary_container_name": "t-0"}},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": "runner",
            "containers": [
                {
                    "name": "t-0",
                    "image": "busybox",
                    "resources": {
                        "requests": {"cpu": "1000m", "memory": "1024Mi"},
                        "limits": {"cpu": "1000m", "memory": "1024Mi"},
                    },
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }
            ],
        },
    }


@pytest.mark.parametrize(
    ("kind", "spec", "primary"),
    [
        ("container", {"container": IMAGE}, "t-0"),
        ("python-task", {"container": {**IMAGE, "name": "mine"}}, "mine"),
        ("raw-container", {"container": IMAGE}, None),
        ("pod", {"podTemplate": TWO}, None),
        ("pod", {"podTemplate": TWO, "primaryContainer": "side"}, "side"),
        ("pod", {"podTemplate": {"spec": {"containers": TWO["spec"]["containers"][:1]}}}, "main"),
        ("sidecar", {"podTemplate": TWO, "primaryContainer": "main"}, "main"),
    ],
)
def test_whose_end_is_the_tasks(kind: str, spec: JSON, primary: str | None) -> None:
    """An annotation names that container; without one all of them have to succeed."""
    assert built(kind, spec)["metadata"].get("annotations", {}).get("primary_container_name") == primary


def test_a_name_that_no_container_may_have() -> None:
    """An object's name may be longer than a container's, or have dots."""
    made = built("container", {"container": IMAGE}, generated_name="with.dots")

    assert made["spec"]["containers"][0]["name"] == "main"


REQUEST, LIMIT = {"requests": {"cpu": "2"}}, {"limits": {"cpu": "2"}}
ASKED = [
    ("nothing", {}, {}, "1000m 1024Mi", "1000m 1024Mi"),
    ("a request", REQUEST, {}, "2 1024Mi", "2 1024Mi"),
    ("a limit", LIMIT, {}, "2 1024Mi", "2 1024Mi"),
    ("both", {**REQUEST, "limits": {"cpu": 3}}, {}, "2 1024Mi", "3 1024Mi"),
    ("a request above the limit", {"requests": {"cpu": "3"}, **LIMIT}, {}, "2 1024Mi", "2 1024Mi"),
    ("zero is nothing", {"requests": {"cpu": 0}}, {}, "1000m 1024Mi", "1000m 1024Mi"),
    ("run over task", REQUEST, {"requests": {"cpu": "4"}}, "4 1024Mi", "4 1024Mi"),
    ("run over task, each by itself", REQUEST, {"limits": {"memory": "2Gi"}}, "2 2Gi", "2 2Gi"),
]


@pytest.mark.parametrize(
    ("own", "run", "requests", "limits"), [row[1:] for row in ASKED], ids=[row[0] for row in ASKED]
)
def test_what_a_container_asks_for(own: JSON, run: JSON, requests: str, limits: str) -> None:
    """A request that is missing is the limit, else the default; a limit that is missing is the request."""
    found = resources(own, resources=run)

    assert [f"{each['cpu']} {each['memory']}" for each in found] == [requests, limits]


def test_other_resources_come_in_pairs_only_where_they_are_asked_for() -> None:
    """``gpu`` is the platform's GPU."""
    requests, limits = resources(
        {"limits": {"gpu": "1", "ephemeral-storage": "1Gi"}}, {"gpu-resource-name": "amd.com/gpu"}
    )

    assert requests == limits == {"amd.com/gpu": "1", "ephemeral-storage": "1Gi", "cpu": "1000m", "memory": "1024Mi"}


LEVELS: JSON = {
    "task-resources": {
        "defaults": {"cpu": "500m"},
        "limits": {"cpu": "4", "gpu": "1"},
        "projects": [
            {"project": "p", "domain": "d", "limits": {"cpu": "16"}},
            {"project": "p", "defaults": {"cpu": "750m"}, "limits": {"cpu": "8"}},
        ],
    }
}


@pytest.mark.parametrize(
    ("project", "domain", "default", "most"),
    [("", "", "500m", "4"), ("other", "d", "500m", "4"), ("p", "x", "750m", "8"), ("p", "d", "750m", "16")],
)
def test_levels(project: str, domain: str, default: str, most: str) -> None:
    """A project's words are stronger than the platform's, a domain's stronger than its project's."""
    where = {"project": project, "domain": domain}
    silent = built("container", {"container": IMAGE}, LEVELS, **where)
    greedy = built("container", {"container": {**IMAGE, "resources": {"limits": {"cpu": "100"}}}}, LEVELS, **where)

    assert silent["spec"]["containers"][0]["resources"]["requests"]["cpu"] == default
    assert greedy["spec"]["containers"][0]["resources"]["limits"]["cpu"] == most
    assert greedy["metadata"]["annotations"]["backoff-ctrl.dev/adjusted-resources"] == (
        f"container t-0: limits.cpu lowered from 100 to {most}, the platform's limit"
    )


def test_the_platforms_limit_may_be_refused_instead() -> None:
    """By policy, with the field that asks for too much: the task's, or the run's."""
    strict = {"task-resources": {**LEVELS["task-resources"], "above-limits": "refuse"}}

    with pytest.raises(TaskSpecError, match=r"^spec.container.resources.limits.cpu: 5 is above the platform's limit: "):
        resources({"limits": {"cpu": 5}}, strict)
    with pytest.raises(TaskSpecError, match=r"^spec.resources.requests.nvidia.com/gpu: 2 is above"):
        resources({}, strict, resources={"requests": {"gpu": 2}})
    assert resources({}, {"task-resources": {"limits": {"cpu": "100m"}, "above-limits": "refuse"}})[0]["cpu"] == "100m"


def test_other_containers_are_only_kept_within_limits() -> None:
    """Nothing is added to them; the run's resources and environment go to the primary container."""
    template: JSON = {
        "spec": {
            "containers": [{"name": "main"}, {"name": "side", "resources": {"limits": {"cpu": 9}}}],
            "initContainers": [{"name": "i"}],
        }
    }
    spec: JSON = {
        "podTemplate": template,
        "primaryContainer": "main",
        "resources": {"limits": {"cpu": 2}},
        "env": [{"name": "A"}],
    }
    made = built("sidecar", spec, LEVELS)["spec"]
    main, side = made["containers"]

    assert (main["resources"]["limits"]["cpu"], side["resources"]) == (2, {"limits": {"cpu": "4"}})
    assert (main["env"], "env" in side, "resources" in made["initContainers"][0]) == ([{"name": "A"}], False, False)
    assert "side" not in template["spec"]["containers"][0]  # the task itself is not changed
    assert template["spec"]["containers"][1]["resources"] == {"limits": {"cpu": 9}}


def test_environment() -> None:
    """Defaults give way to the container's variables, those to the run's; later ones may refer to earlier ones."""
    config = {
        "default-env-vars": {"A": "default", "Z": "default"},
        "default-env-from-secrets": ["s"],
        "default-env-from-configmaps": ["c"],
    }
    own = {"env": [{"name": "A", "value": "own"}, {"name": "B", "value": "own"}], "envFrom": [{"prefix": "x"}]}
    made = container_of(own, config, env=[{"name": "B", "value": "run"}, {"name": "C", "value": "$(B)"}])

    assert [(each["name"], each["value"]) for each in made["env"]] == [
        ("A", "own"),
        ("Z", "default"),
        ("B", "run"),
        ("C", "$(B)"),
    ]
    assert made["envFrom"] == [
        {"prefix": "x"},
        {"secretRef": {"name": "s", "optional": True}},
        {"configMapRef": {"name": "c", "optional": True}},
    ]


def test_variables_of_a_run_without_a_primary_container() -> None:
    """They are for all of its containers."""
    made = built("pod", {"podTemplate": TWO, "env": [{"name": "A", "value": "run"}]})

    assert [each["env"] for each in made["spec"]["containers"]] == [[{"name": "A", "value": "run"}]] * 2


BASE: JSON = {
    "template": {
        "metadata": {"labels": {"team": "base", "from": "base"}},
        "spec": {
            "hostIPC": True,
            "schedulerName": "base",
            "tolerations": [{"key": "base"}],
            "containers": [
                {"name": "default", "image": "unused", "args": ["unused"], "env": [{"name": "A", "value": "default"}]},
                {"name": "primary", "image": "unused", "resources": {"limits": {"memory": "2Gi"}}},
                {"name": "side", "image": "unused", "tty": True},
            ],
            "initContainers": [{"name": "default-init", "image": "unused", "stdin": True}],
        },
    }
}


def test_a_pod_on_top_of_a_template_of_the_cluster() -> None:
    """The task's own words win, then the template's, then the settings'; its containers are patterns."""
    template = {
        "metadata": {"labels": {"team": "own"}},
        "spec": {
            "tolerations": [{"key": "own"}],
            "containers": [
                {"name": "main", "image": "a", "args": ["b"], "env": [{"name": "A", "value": "own"}]},
                {"name": "side", "image": "b"},
            ],
            "initContainers": [{"name": "i", "image": "c"}],
        },
    }
    task = TaskMetadata("team", "t", "uid", 0, "t-0")
    config = K8sPluginConfig(scheduler_name="settings", default_tolerations=[{"key": "settings"}])
    spec = {"podTemplate": template, "primaryContainer": "main"}
    made = ENTRIES["sidecar"].plugin.build_resource(TaskContext(task, "sidecar", spec, config, BASE))
    main, side = made["spec"]["containers"]

    assert made["metadata"] == {
        "labels": {"team": "own", "from": "base"},
        "annotations": {"primary_container_name": "main"},
    }
    assert (made["spec"]["hostIPC"], made["spec"]["schedulerName"]) == (True, "base")
    assert made["spec"]["tolerations"] == [{"key": "settings"}, {"key": "base"}, {"key": "own"}]
    assert (main["image"], main["args"], main["env"]) == ("a", ["b"], [{"name": "A", "value": "own"}])
    assert main["resources"] == {key: {"memory": "2Gi", "cpu": "1000m"} for key in ("requests", "limits")}
    assert (side["image"], side["tty"], side["env"]) == ("b", True, [{"name": "A", "value": "default"}])
    assert [(each["name"], each["image"], each["stdin"]) for each in made["spec"]["initContainers"]] == [
        ("i", "c", True)
    ]
    assert len(made["spec"]["containers"]) == 2


def test_where_it_may_run() -> None:
    """An interruptible task goes where others don't; each alternative of an affinity gets the requirement."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"matchFields": []}]
    spot = {"key": "spot", "operator": "In", "values": ["true"]}
    config = {
        "default-affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        },
        "default-node-selector": {"pool": "tasks", "spot": "false"},
        "default-tolerations": [{"key": "team"}],
        "interruptible-tolerations": [{"key": "spot"}],
        "interruptible-node-selector": {"spot": "true"},
        "interruptible-node-selector-requirement": spot,
        "non-interruptible-node-selector-requirement": {**spot, "operator": "NotIn"},
        "resource-tolerations": {"nvidia.com/gpu": [{"key": "gpu"}]},
    }
    spec = {"container": {**IMAGE, "resources": {"limits": {"gpu": 1}}}}
    cheap, dear = (built("container", spec, config, interruptible=each)["spec"] for each in (True, False))
    required = [
        each["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] for each in (cheap, dear)
    ]

    assert [each["nodeSelector"] for each in (cheap, dear)] == [
        {"pool": "tasks", "spot": "true"},
        {"pool": "tasks", "spot": "false"},
    ]
    assert [[one["key"] for one in each["tolerations"]] for each in (cheap, dear)] == [
        ["gpu", "spot", "team"],
        ["gpu", "team"],
    ]
    assert [[term["matchExpressions"][-1]["operator"] for term in each["nodeSelectorTerms"]] for each in required] == [
        ["In"] * 2,
        ["NotIn"] * 2,
    ]
    assert terms == [
        {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
        {"matchFields": []},
    ]  # the settings stay


def test_accelerators() -> None:
    """The device and its partition choose the nodes, and tolerate their taints."""
    spec: JSON = {"container": {**IMAGE, "resources": {"limits": {"gpu": 1}}}}
    part = built("container", {**spec, "accelerator": {"device": "a100", "partitionSize": "1g.5gb"}})["spec"]
    whole = built("container", {**spec, "accelerator": {"device": "a100", "unpartitioned": True}})["spec"]
    label, size = "k8s.amazonaws.com/accelerator", "k8s.amazonaws.com/gpu-partition-size"
    terms = [
        each["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        for each in (part, whole)
    ]
    of_device = {"key": label, "operator": "In", "values": ["a100"]}

    assert terms[0] == [{"matchExpressions": [of_device, {"key": size, "operator": "In", "values": ["1g.5gb"]}]}]
    assert terms[1] == [{"matchExpressions": [of_device, {"key": size, "operator": "DoesNotExist"}]}]
    assert [each["key"] for each in part["tolerations"]] == [label, size]
    assert [each["key"] for each in whole["tolerations"]] == [label]


BAD = [
    ("container", {}, "spec.container", "needs a container"),
    ("container", {"container": []}, "spec.container", "must be an object, not a list"),
    ("container", {"container": {"name": "x"}}, "spec.container.image", "name the image"),
    ("container", {"container": {**IMAGE, "name": "X"}}, "spec.container.name", "at most 63 of a-z"),
    ("container", {"container": {**IMAGE, "env": {"A": "b"}}}, "spec.container.env", "must be a list"),
    ("container", {"container": IMAGE, "env": [{"value": "b"}]}, "spec.env[0]", "must be an object with a name"),
    ("container", {"container": {**IMAGE, "resources": []}}, "spec.container.resources", "must be an object"),
    ("container", {"container": {**IMAGE, "resources": {"limits": [1]}}}, "spec.container.resources.limits", "must be an object"),
    ("container", {"container": IMAGE, "resources": {"limits": {"cpu": "1 Gi"}}}, "spec.resources.limits.cpu", "not a quantity"),
    ("container", {"container": IMAGE, "resources": {"limits": {"cpu": "-1"}}}, "spec.resources.limits.cpu", "0 or more"),
    ("pod", {}, "spec.podTemplate", "needs a pod template"),
    ("pod", {"podTemplate": {}}, "spec.podTemplate.spec.containers", "at least one container"),
    ("pod", {"podTemplate": {"spec": {"containers": []}}}, "spec.podTemplate.spec.containers", "at least one container"),
    ("pod", {"podTemplate": {"spec": {"containers": ["x"]}}}, "spec.podTemplate.spec.containers[0]", "must be an object"),
    ("pod", {"podTemplate": {"spec": {"containers": [{"image": "x"}]}}}, "spec.podTemplate.spec.containers[0].name", "needs a name"),
    ("pod", {"podTemplate": {**TWO, "metadata": {"labels": [1]}}}, "spec.podTemplate.metadata.labels", "must be an object"),
    ("pod", {"podTemplate": TWO, "resources": {"limits": {"cpu": 1}}}, "spec.resources", "no container is the primary one"),
    ("pod", {"podTemplate": TWO, "primaryContainer": "gone"}, "spec.primaryContainer", "there is no container gone: choose one of main, side"),
    ("sidecar", {"podTemplate": TWO}, "spec.primaryContainer", "name the container whose end is the task's, one of main, side"),
    ("container", {"container": IMAGE, "accelerator": {"device": "a100"}}, "spec.accelerator", "no container asks for a GPU"),
    ("container", {"container": IMAGE, "accelerator": "a100"}, "spec.accelerator", "must be an object, not a text"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "spec", "path", "message"), BAD, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_task_that_makes_no_pod(kind: str, spec: JSON, path: str, message: str) -> None:
    """The error names the field and says what would be right."""
    with pytest.raises(TaskSpecError) as caught:
        built(kind, spec)

    assert caught.value.path == path
    assert message in str(caught.value)
