"""What the webhook makes of a pod, and which pods it leaves as they are."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.api.webhooks.mutation import INJECTED, inject, with_account
from backoff_ctrl.api.webhooks.review import ReviewError, answer
from backoff_ctrl.api.webhooks.sidecar import (
    ACCOUNT_PATH,
    AUTHORITY_VOLUME,
    NAME,
    TOKEN_PATH,
    Quality,
    SidecarSettings,
    quality_of,
)
from backoff_ctrl.k8s.kube.charges.footprint import footprint

Pod = dict[str, Any]
SETTINGS = SidecarSettings(
    image="gate:1", requests={"cpu": "20m", "memory": "96Mi"}, limits={"cpu": "1", "memory": "1Gi"}
)
MODEST = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
GUARANTEED = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}}


def container(name: str = "main", **fields: Any) -> Pod:
    """Return a container as the ServiceAccount admission leaves it."""
    mount = {"name": "kube-api-access-x", "mountPath": ACCOUNT_PATH, "readOnly": True}
    return {"name": name, "image": "i", "volumeMounts": [mount], **fields}


def pod(*containers: Pod, **spec: Any) -> Pod:
    """Return a pod with a projected token."""
    volumes = [{"name": "kube-api-access-x", "projected": {"sources": []}}]
    made = {"containers": list(containers) or [container()], "volumes": volumes, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "creator"}, "spec": made}


def injected(given: Pod, settings: SidecarSettings = SETTINGS) -> Pod:
    """Return the pod with its sidecar; it has one."""
    what = inject(given, settings)
    assert (what.outcome, what.pod is not None) == ("injected", True)
    assert what.pod is not None
    return what.pod


def sidecar_of(given: Pod) -> Pod:
    """Return the sidecar: the first of the init containers."""
    first: Pod = given["spec"]["initContainers"][0]
    assert first["name"] == NAME
    return first


def env_of(each: Pod) -> dict[str, str]:
    """Return the values of a container's environment, by name: the last of two counts, as for the kubelet."""
    return {entry["name"]: entry.get("value") for entry in each.get("env", [])}


def mounts_of(each: Pod) -> dict[str, str]:
    """Return the volumes by where they are mounted."""
    found = [(mount["mountPath"], mount["name"]) for mount in each["volumeMounts"]]
    assert len(dict(found)) == len(found), "two mounts at one path are invalid"
    return dict(found)


def test_the_sidecar_comes_first_and_outlives_the_creator() -> None:
    """A native sidecar: a container that starts before all others, init containers included, and ends after them."""
    made = injected(pod(initContainers=[container("prepare")]))
    first = sidecar_of(made)
    assert [each["name"] for each in made["spec"]["initContainers"]] == [NAME, "prepare"]
    assert first["restartPolicy"] == "Always"
    assert "startupProbe" in first
    assert "readinessProbe" not in first  # it would take the creator out of its Services
    assert made["metadata"]["annotations"] == {INJECTED: "gate:1"}


def test_a_creator_finds_the_sidecar_where_it_would_find_the_api_server() -> None:
    """Its account directory is the sidecar's, its real token is mounted elsewhere, and reached through a link."""
    made = injected(pod(container(), container("second")))
    for each in made["spec"]["containers"]:
        assert mounts_of(each) == {ACCOUNT_PATH: "backoff-ctrl-account", TOKEN_PATH: "kube-api-access-x"}
        assert env_of(each) == {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert mounts_of(sidecar_of(made))[ACCOUNT_PATH] == "kube-api-access-x"
    creators = {name for each in made["spec"]["containers"] for name in mounts_of(each).values()}
    assert "backoff-ctrl-authority" not in creators  # its key is the sidecar's alone
    assert f"--tls-token-volume={TOKEN_PATH}" in sidecar_of(made)["args"]


def test_a_container_without_a_service_account_stays_as_it_is() -> None:
    """It asks the API server nothing."""
    plain = {"name": "plain", "image": "i", "env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "x"}]}
    made = injected(pod(container(), plain))
    assert made["spec"]["containers"][1] == plain


def test_where_a_creator_named_its_server_that_becomes_the_sidecars() -> None:
    """By whatever way it was given: a value, or a reference."""
    server = [
        {"name": "KUBERNETES_SERVICE_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        {"name": "KUBERNETES_SERVICE_PORT", "value": "8443"},
    ]
    made = injected(pod(container(env=[*server, {"name": "A", "value": "$(KUBERNETES_SERVICE_PORT)"}])))
    assert sidecar_of(made)["env"][:2] == server
    own = made["spec"]["containers"][0]["env"]
    assert [entry["name"] for entry in own] == ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "A"]
    assert own[0]["value"] == "127.0.0.1"


def test_two_creators_of_different_servers_are_told_that_one_serves_both() -> None:
    """A warning, and the pod is created."""
    one, other = (container(name, env=[{"name": "KUBERNETES_SERVICE_HOST", "value": name}]) for name in ("a", "b"))
    what = inject(pod(one, other), SETTINGS)
    assert what.outcome == "injected"
    assert "different API servers" in what.warnings[0]


def test_ports_that_the_pod_uses_are_left_to_it() -> None:
    """All containers of a pod share its addresses."""
    made = injected(pod(container(ports=[{"containerPort": 6443}, {"containerPort": 9096}, {"containerPort": 9097}])))
    first = sidecar_of(made)
    assert first["args"][1:3] == ["--listen=127.0.0.1:6444", "--probe-listen=0.0.0.0:9098"]
    assert first["startupProbe"]["httpGet"]["port"] == first["ports"][0]["containerPort"] == 9098
    assert env_of(made["spec"]["containers"][0])["KUBERNETES_SERVICE_PORT"] == "6444"
    assert env_of(first)["BACKOFF_CTRL_STATUS"] == "127.0.0.1:9099"


def test_commands_in_the_sidecar_find_its_status_wherever_it_is() -> None:
    """At the address of the platform's ``--admin``, if it has one; the token lies where only the sidecar can read."""
    for args, address in (((), "127.0.0.1:9097"), (("--admin=127.0.0.1:9000",), "127.0.0.1:9000")):
        made = inject(pod(container()), replace(SETTINGS, args=args)).pod
        assert made is not None
        env = env_of(sidecar_of(made))
        assert env["BACKOFF_CTRL_STATUS"] == address
        mounted = {each["mountPath"]: each["name"] for each in sidecar_of(made)["volumeMounts"]}
        assert mounted[env["XDG_RUNTIME_DIR"]] == AUTHORITY_VOLUME
        others = [each for each in made["spec"]["containers"] if each["name"] != NAME]
        assert AUTHORITY_VOLUME not in {mount["name"] for each in others for mount in each.get("volumeMounts", ())}


@pytest.mark.parametrize(
    ("resources", "quality", "asked"),
    [
        (None, "BestEffort", {}),
        ({"limits": {"cpu": "0"}}, "BestEffort", {}),  # nothing is nothing
        (MODEST, "Burstable", {"requests": SETTINGS.requests, "limits": SETTINGS.limits}),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort", {}),  # only cpu and memory count
        (GUARANTEED, "Guaranteed", {"requests": SETTINGS.limits, "limits": SETTINGS.limits}),
        ({"limits": GUARANTEED["limits"]}, "Guaranteed", {"requests": SETTINGS.limits, "limits": SETTINGS.limits}),
    ],
)
def test_the_quality_of_service_stays_and_the_charge_grows_by_what_the_sidecar_asks(
    resources: Pod | None, quality: str, asked: Pod
) -> None:
    """Quotas may be scoped by it, and quotas of limits demand amounts of every container."""
    given = pod(container() if resources is None else container(resources=resources))
    made = injected(given)
    assert quality_of(given["spec"]) == quality_of(made["spec"]) == Quality(quality)
    assert sidecar_of(made)["resources"] == asked
    before, after = footprint(given).amounts, footprint(made).amounts
    for kind, amounts in asked.items():
        for name, amount in amounts.items():
            alone = footprint(pod({"name": "a", "image": "i", "resources": {kind: {name: amount}}})).amounts
            key = f"{kind}.{name}"
            assert after[key] - before[key] == alone[key]


def test_resources_of_the_pod_as_a_whole_count_for_its_quality() -> None:
    """Kubernetes 1.34 and later; then they bound the sidecar, too."""
    assert quality_of({"containers": [container()], "resources": GUARANTEED}) is Quality.GUARANTEED
    assert quality_of({"containers": [container()], "resources": MODEST}) is Quality.BURSTABLE


@pytest.mark.parametrize(
    ("given", "server", "outcome", "said"),
    [
        (pod(hostNetwork=True), None, "host-network", "the node's network"),
        (pod(os={"name": "windows"}), None, "windows", "Linux"),
        (pod(), (1, 28), "old-server", "1.28 has no native sidecars"),
        (pod({"name": "main", "image": "i"}), None, "no-account", "mounts a service account"),
    ],
)
def test_a_pod_that_can_not_have_a_sidecar_is_created_without_and_its_creator_reads_why(
    given: Pod, server: tuple[int, int] | None, outcome: str, said: str
) -> None:
    """A warning shows in kubectl; nothing is refused."""
    what = inject(given, SETTINGS, server)
    assert (what.outcome, what.pod) == (outcome, None)
    assert said in what.warnings[0]


def test_a_pod_that_has_the_sidecar_is_left_as_it_is() -> None:
    """The webhook is asked again where another one changed the pod."""
    made = injected(pod())
    assert inject(made, SETTINGS).outcome == "present"


def test_options_of_one_pod_come_from_its_annotations() -> None:
    """What says nothing sensible is warned of, and the default holds."""
    given = pod()
    given["metadata"]["annotations"] = {
        "backoff-ctrl.dev/hold": "20",
        "backoff-ctrl.dev/hold-total": "long",
        "backoff-ctrl.dev/answer": "quota",
    }
    what = inject(given, SETTINGS)
    assert what.pod is not None
    assert sidecar_of(what.pod)["args"][-2:] == ["--hold=20", "--answer=quota"]
    assert [warning.partition(":")[0] for warning in what.warnings] == ["annotation backoff-ctrl.dev/hold-total"]


def test_a_manifest_gets_its_account_as_the_server_would_give_it() -> None:
    """For ``backoff-ctrl inject -f``, where no admission has mounted a token yet."""
    bare = {"kind": "Pod", "spec": {"containers": [{"name": "main", "image": "i"}]}}
    assert injected(with_account(bare))["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] == ACCOUNT_PATH
    bare["spec"] = {"automountServiceAccountToken": False, **bare["spec"]}  # type: ignore[dict-item]
    assert with_account(bare) == bare


def review(given: object, **request: Any) -> bytes:
    """Return the API server's question about a pod."""
    asked = {"uid": "u", "operation": "CREATE", "resource": {"resource": "pods"}, "namespace": "team", "object": given}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "request": {**asked, **request}}).encode()


def patched(given: Pod, response: Pod) -> Pod:
    """Apply the answer's patch: every step adds or replaces a member of an object."""
    made = copy.deepcopy(given)
    for step in json.loads(base64.b64decode(response["patch"])):
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        at = made
        for part in way:
            at = at[part]
        assert step["op"] == "add"
        at[last] = step["value"]
    return made


@pytest.mark.parametrize("metadata", [{"name": "a"}, {"annotations": {"x": "y"}}, None])
def test_the_patch_makes_exactly_the_injected_pod(metadata: Pod | None) -> None:
    """Whatever was there before."""
    given = {**pod(), "metadata": metadata}
    document, namespace, _ = answer(review(given), SETTINGS)
    assert document["response"]["allowed"] is True
    assert (document["response"]["uid"], namespace) == ("u", "team")
    assert patched(given, document["response"]) == injected(given)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"apiVersion":"admission.k8s.io/v1","request":{}}', b"[" * 9999])
def test_what_is_no_review_is_refused_with_a_sentence(body: bytes) -> None:
    """The API server then goes on without the webhook."""
    with pytest.raises(ReviewError):
        answer(body, SETTINGS)


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["spec", "containers", "initContainers", "volumeMounts", "env", "ports", "name", "metadata",
                         "mountPath", "resources", "limits", "cpu", "annotations", "os", "volumes", "containerPort"]),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JUNK)
def test_no_pod_is_ever_refused_whatever_it_holds(junk: object) -> None:
    """The server has not validated it yet. A broken pod is the server's affair."""
    document, _, _ = answer(review(junk), SETTINGS)
    assert document["response"]["allowed"] is True


LEAF: st.SearchStrategy[Any] = (
    st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=1) | st.just({})
)
ODD = {
    "ports": st.lists(st.fixed_dictionaries({}, optional={"containerPort": LEAF}), max_size=2) | LEAF,
    "env": st.lists(st.fixed_dictionaries({}, optional={"name": LEAF, "value": LEAF}), max_size=2) | LEAF,
    "volumeMounts": st.lists(st.fixed_dictionaries({}, optional={"mountPath": LEAF, "name": LEAF}), max_size=2) | LEAF,
    "resources": st.fixed_dictionaries({}, optional={"limits": st.dictionaries(st.just("cpu"), LEAF) | LEAF}) | LEAF,
}


@given(st.fixed_dictionaries({}, optional=ODD), st.fixed_dictionaries({}, optional={"os": LEAF, "hostNetwork": LEAF}))
def test_nonsense_within_a_container_stops_nothing(odd: Pod, spec: Pod) -> None:
    """The same, deeper: none of it meets an error of ours."""
    document, _, what = answer(review(pod(container(), {"name": "odd", **odd}, **spec)), SETTINGS)
    assert document["response"]["allowed"] is True
    assert what.outcome != "failed"


def test_a_bug_of_ours_lets_the_pod_through(caplog: pytest.LogCaptureFixture) -> None:
    """And says so in the log."""
    bound = {"metadata": {"annotations": {"backoff-ctrl.dev/hold": ["x"], "backoff-ctrl.dev/answer": ["x"]}}, **pod()}
    bound["metadata"] = {"annotations": {"backoff-ctrl.dev/answer": ["unhashable"]}}
    document, _, what = answer(review(bound), SETTINGS)
    assert (document["response"], what.outcome) == ({"uid": "u", "allowed": True}, "failed")
    assert "could not be given its sidecar" in caplog.text
