"""Pods that a webhook gets wrong easily: none is refused, stuck or passed by because of the sidecar."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest

from backoff_ctrl.api.webhooks.mutation import INJECTED, Injected, inject
from backoff_ctrl.api.webhooks.review import answer
from backoff_ctrl.api.webhooks.sidecar import ACCOUNT_PATH, NAME, TOKEN_PATH, SidecarSettings, quality_of

Pod = dict[str, Any]
SETTINGS = SidecarSettings(image="gate:1")
TOKEN = {"serviceAccountToken": {"path": "token"}}
AUTHORITY = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
ACCOUNT = {"name": "account", "projected": {"sources": [TOKEN, AUTHORITY]}}


def creator(name: str = "main", volume: str = "account", mount: Pod | None = None, **fields: Any) -> Pod:
    """Return a container that mounts a volume where its account is looked for."""
    mounted = {"name": volume, "mountPath": ACCOUNT_PATH, "readOnly": True, **(mount or {})}
    return {"name": name, "image": "i", "volumeMounts": [mounted], **fields}


def pod(*containers: Pod, volumes: tuple[Pod, ...] = (), annotations: Pod | None = None, **spec: Any) -> Pod:
    """Return a pod with an account."""
    made = {"containers": list(containers) or [creator()], "volumes": [ACCOUNT, *volumes], **spec}
    return {"kind": "Pod", "metadata": {"name": "p", "annotations": annotations or {}}, "spec": made}


def sidecar_of(what: Injected) -> Pod:
    """Return the sidecar of a pod that got one."""
    assert what.pod is not None, what
    first: Pod = what.pod["spec"]["initContainers"][0]
    assert first["name"] == NAME
    return first


@pytest.mark.parametrize(
    ("whole", "kept"),
    [
        ({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}, set()),
        ({"limits": {"cpu": "1"}}, {"memory"}),
        ({"requests": {"memory": "1Gi"}}, {"cpu"}),
    ],
)
def test_of_what_a_pod_asks_for_as_a_whole_the_sidecar_asks_nothing(whole: Pod, kept: set[str]) -> None:
    """The server refuses a pod whose containers together ask for more than the pod does."""
    given = pod(creator(resources={"requests": {"cpu": "1"}}), resources=whole)
    what = inject(given, SETTINGS)
    for amounts in sidecar_of(what)["resources"].values():
        assert set(amounts) == kept
    assert what.pod is not None
    assert quality_of(what.pod["spec"]) == quality_of(given["spec"])


@pytest.mark.parametrize(
    "given",
    [
        pod(creator(NAME)),
        pod(initContainers=[{"name": NAME, "image": "another's"}]),
        pod(volumes=({"name": "backoff-ctrl-account", "emptyDir": {}},)),
        pod(volumes=({"name": "backoff-ctrl-authority", "emptyDir": {}},)),
        pod({**creator(), "volumeMounts": [*creator()["volumeMounts"], {"name": "x", "mountPath": TOKEN_PATH + "/"}]}),
    ],
)
def test_where_a_name_of_the_sidecar_is_taken_its_creator_reads_which(given: Pod) -> None:
    """The server would refuse two of one name. What only has the sidecar's name is none: that would go unseen."""
    what = inject(given, SETTINGS)
    assert (what.outcome, what.pod) == ("taken", None)
    assert "backoff-ctrl put no sidecar into this pod: " in what.warnings[0]


EMPTY = {"name": "empty", "emptyDir": {}}


def test_a_container_that_opted_out_of_its_account_stays_as_it_is() -> None:
    """An emptyDir in its place is how. Its neighbour's account is the sidecar's, whichever comes first."""
    alone = inject(pod(creator(volume="empty"), volumes=(EMPTY,)), SETTINGS)
    assert (alone.outcome, alone.pod) == ("no-account", None)
    out = creator("out", "empty")
    what = inject(pod(out, creator(), volumes=(EMPTY,)), SETTINGS)
    assert sidecar_of(what)["volumeMounts"][-1]["name"] == "account"
    assert what.pod is not None
    assert what.pod["spec"]["containers"][0] == out


@pytest.mark.parametrize("sources", [[TOKEN], [AUTHORITY], [TOKEN, {"downwardAPI": {"items": []}}]])
def test_without_token_or_authority_there_is_no_sidecar(sources: list[Pod]) -> None:
    """It could not find the API server, would never start, and neither would the pod."""
    part = {"name": "part", "projected": {"sources": sources}}
    what = inject(pod(creator(volume="part"), volumes=(part,)), SETTINGS)
    assert (what.outcome, what.pod) == ("no-account", None)
    assert "ca.crt" in what.warnings[0]


def test_a_part_of_a_volume_stays_that_part() -> None:
    """The creator's account directory is the sidecar's whole volume; the token is where it was in its own."""
    what = inject(pod(creator(mount={"subPath": "sa"})), SETTINGS)
    assert sidecar_of(what)["volumeMounts"][-1] == {
        "name": "account", "mountPath": ACCOUNT_PATH, "readOnly": True, "subPath": "sa",
    }  # fmt: skip
    assert what.pod is not None
    directory, token = what.pod["spec"]["containers"][0]["volumeMounts"]
    assert directory == {"name": "backoff-ctrl-account", "mountPath": ACCOUNT_PATH, "readOnly": True}
    assert token == {"name": "account", "mountPath": TOKEN_PATH, "readOnly": True, "subPath": "sa"}


OWN = ("POD_NAME", "POD_NAMESPACE", "POD_UID", "BACKOFF_CTRL_STATUS", "XDG_RUNTIME_DIR")
"""The sidecar's own variables."""


def test_a_variable_of_the_creator_that_its_address_needs_is_there_once() -> None:
    """The API server warns of a name that hides another one."""
    env = [{"name": "POD_NAME", "value": "api"}, {"name": "KUBERNETES_SERVICE_HOST", "value": "$(POD_NAME).example"}]
    names = [each["name"] for each in sidecar_of(inject(pod(creator(env=env)), SETTINGS))["env"]]
    assert sorted(names) == sorted({*OWN, "KUBERNETES_SERVICE_HOST"})


def test_what_the_address_of_the_server_refers_to_comes_with_it() -> None:
    """The sidecar would look for a server called ``$(HOST)`` else. What else the creator has is its own."""
    env = [
        {"name": "PART", "value": "api"},
        {"name": "SECRET", "value": "x"},
        {"name": "HOST", "value": "$(PART).example"},
        {"name": "KUBERNETES_SERVICE_HOST", "value": "$(HOST)"},
    ]
    assert [each["name"] for each in sidecar_of(inject(pod(creator(env=env)), SETTINGS))["env"]] == [
        "PART", "HOST", "KUBERNETES_SERVICE_HOST", *OWN,
    ]  # fmt: skip


def test_variables_that_refer_to_each_other_end() -> None:
    """A circle, as nobody has validated it."""
    env = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": "$(A)"},
        {"name": "A", "value": "$(A)$(B)$(KUBERNETES_SERVICE_HOST)"},
    ]
    env.append({"name": "B", "value": "$(A)"})
    names = [each["name"] for each in sidecar_of(inject(pod(creator(env=env)), SETTINGS))["env"]]
    assert names == ["A", "B", "KUBERNETES_SERVICE_HOST", *OWN]


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"kubernetes.io/os": "windows"}},
        {"nodeSelector": {"beta.kubernetes.io/os": "windows"}},
        {"securityContext": {"windowsOptions": {"runAsUserName": "ContainerUser"}}},
    ],
)
def test_a_pod_for_windows_is_known_by_its_nodes_too(spec: Pod) -> None:
    """Few say ``os``."""
    assert inject(pod(**spec), SETTINGS).outcome == "windows"


def review(given: Pod) -> Pod:
    """Return the webhook's answer to a pod's creation."""
    request = {
        "uid": "u",
        "operation": "CREATE",
        "resource": {"resource": "pods"},
        "namespace": "team",
        "object": given,
    }
    document, _, _ = answer(json.dumps({"apiVersion": "admission.k8s.io/v1", "request": request}).encode(), SETTINGS)
    response: Pod = document["response"]
    return response


def test_what_another_webhook_adds_later_finds_the_sidecar_too() -> None:
    """The server asks again then (``reinvocationPolicy: IfNeeded``): a container of it would create ungated."""
    first = inject(pod(creator(ports=[{"containerPort": 6443}])), SETTINGS).pod
    assert first is not None
    assert inject(first, SETTINGS) == Injected("present")
    later = copy.deepcopy(first)
    later["spec"]["initContainers"].insert(0, creator("before"))
    later["spec"]["containers"].append(creator("beside"))
    response = review(later)
    steps = {step["path"]: step["value"] for step in json.loads(base64.b64decode(response["patch"]))}
    init, main = steps["/spec/initContainers"], steps["/spec/containers"]
    assert [each["name"] for each in init] == [NAME, "before"]  # it asks the sidecar, which must run by then
    assert [each["name"] for each in main] == ["main", "beside"]
    for each in (init[1], *main):
        assert [mount["name"] for mount in each["volumeMounts"]] == ["backoff-ctrl-account", "account"]
        assert each["env"][:2] == main[0]["env"]
    assert init[0] == first["spec"]["initContainers"][0]
    assert main[0]["env"][1]["value"] == "6444"  # not the default: where this sidecar listens


def test_a_sidecar_that_was_written_by_hand_is_left_as_it_is() -> None:
    """With whatever its author lets pass by."""
    by_hand = {"name": NAME, "image": "i", "restartPolicy": "Always", "args": ["proxy", "--listen", "127.0.0.1:1"]}
    assert inject(pod(initContainers=[by_hand]), SETTINGS) == Injected("present")
    forged = pod(initContainers=[by_hand], annotations={INJECTED: "x"})
    assert inject(forged, SETTINGS) == Injected("present")


def test_mode_and_amounts_of_one_sidecar_come_from_annotations() -> None:
    """A LimitRange of its namespace may forbid the platform's amounts; a first creator may begin in shadow mode."""
    wanted = {
        "backoff-ctrl.dev/mode": "shadow",
        "backoff-ctrl.dev/requests": "cpu=100m, memory=128Mi",
        "backoff-ctrl.dev/limits": "cpu=500m",
    }
    resources = {"limits": {"cpu": "1"}}
    what = inject(pod(creator(resources=resources), annotations=wanted), SETTINGS)
    assert what.warnings == ()
    sidecar = sidecar_of(what)
    assert sidecar["env"][-1] == {"name": "BACKOFF_CTRL_MODE", "value": "shadow"}
    assert sidecar["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("mode", "shdow", "must be enforce, shadow or off, not 'shdow'"),
        ("requests", "cpu=2", "cpu 2 is more than its limit, 1"),
        ("requests", "cpu", "must be like cpu=100m,memory=128Mi"),
        ("limits", "gpu=1", "'gpu' is not one of cpu, memory"),
        ("limits", "memory=0", "memory must be more than 0"),
        ("limits", "memory=lots", "memory: "),
        ("requests", "cpu=-1", "cpu must be 0 or more"),
    ],
)
def test_an_annotation_that_would_have_the_pod_refused_is_warned_of(name: str, value: str, why: str) -> None:
    """The default holds."""
    burstable = creator(resources={"limits": {"cpu": "1"}})
    what = inject(pod(burstable, annotations={f"backoff-ctrl.dev/{name}": value}), SETTINGS)
    assert why in what.warnings[0]
    assert sidecar_of(what) == sidecar_of(inject(pod(burstable), SETTINGS))
