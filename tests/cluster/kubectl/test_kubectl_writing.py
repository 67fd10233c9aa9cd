"""kubectl writes: create, both kinds of apply, patch, label, annotate, scale, replace, delete."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from backoff_ctrl.api.main import cli
from tests.cluster.kubectl.terminals import Terminals, manifest, pod

pytestmark = pytest.mark.go


def test_create_makes_objects_and_refuses_invalid_ones(kubectl: Terminals) -> None:
    """From a file. A taken name, an unknown field and an invalid name are refused with the same messages."""
    misspelt = {**pod("b"), "spec": {"containers": [{"name": "a", "image": "b", "imagee": "c"}]}}

    assert kubectl("create", "-f", "-", stdin=pod("a")) == "pod/a created\n"
    assert "already exists" in kubectl("create", "-f", "-", stdin=pod("a"), code=1)
    assert 'unknown field "spec.containers[0].imagee"' in kubectl("create", "-f", "-", stdin=misspelt, code=1)
    assert "RFC 1123 subdomain" in kubectl("create", "-f", "-", stdin=pod("Bad"), code=1)
    assert kubectl("create", "--dry-run=server", "-f", "-", stdin=pod("c")) == "pod/c created (server dry run)\n"
    assert "not found" in kubectl("get", "pod", "c", code=1)


def test_create_makes_objects_from_flags(kubectl: Terminals) -> None:
    """These commands send protobuf; the stored objects are the same, defaults included."""
    for arguments, name in (
        (("quota", "x", "--hard=pods=5,services=2"), "quota/x"),
        (("configmap", "x", "--from-literal=a=b"), "configmap/x"),
        (("secret", "generic", "x", "--from-literal=a=b"), "secret/x"),
        (("serviceaccount", "x"), "serviceaccount/x"),
        (("cronjob", "x", "--image=busybox", "--schedule=0 0 * * *", "--", "true"), "cronjob/x"),
        (("deployment", "x", "--image=nginx", "--replicas=2"), "deployment/x"),
        (("role", "x", "--verb=get", "--resource=pods"), "role/x"),
        (("rolebinding", "x", "--role=x", "--user=jane"), "rolebinding/x"),
    ):
        kubectl("create", *arguments)
        kubectl("get", name, "-o", "jsonpath={.spec}{.data}{.type}{.rules}{.roleRef}{.subjects}")
    kubectl("create", "job", "x", "--image=busybox", "--", "true")
    assert "busybox" in kubectl("get", "job", "x", "-o", "jsonpath={.spec}")
    assert kubectl("run", "x", "--image=busybox", "--", "true") == "pod/x created\n"


def test_apply_keeps_fields_set_by_others(kubectl: Terminals) -> None:
    """Created, unchanged, configured: a field removed from the file is removed, one that another client set stays."""
    one = manifest("ConfigMap", "m", data={"a": "1", "b": "2"})
    less = {**one, "data": {"a": "3"}}

    assert kubectl("apply", "-f", "-", stdin=one) == "configmap/m created\n"
    assert kubectl("apply", "-f", "-", stdin=one) == "configmap/m unchanged\n"
    kubectl("patch", "configmap", "m", "--type=merge", "-p", '{"data":{"other":"x"}}')
    assert kubectl("diff", "-f", "-", stdin=less, code=1).count("\n- ") == 2
    assert kubectl("apply", "--dry-run=server", "-f", "-", stdin=less) == "configmap/m configured (server dry run)\n"
    assert kubectl("apply", "-f", "-", stdin=less) == "configmap/m configured\n"
    assert json.loads(kubectl("get", "configmap", "m", "-o", "json"))["data"] == {"a": "3", "other": "x"}
    assert '"a": "3"' in kubectl("apply", "view-last-applied", "configmap/m", "-o", "json")
    assert kubectl("diff", "-f", "-", stdin=less) == ""


def test_apply_merges_lists_by_their_keys(kubectl: Terminals) -> None:
    """A container of a Deployment gets another image; one that is removed from the file is removed."""
    first, second = {"name": "a", "image": "one"}, {"name": "b", "image": "two"}

    def deployment(*containers: object) -> object:
        template = {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": containers}}
        return manifest(
            "Deployment", "d", {"selector": {"matchLabels": {"x": "y"}}, "template": template}, api="apps/v1"
        )

    images = "jsonpath={.spec.template.spec.containers[*].image}"
    kubectl("apply", "-f", "-", stdin=deployment(first, second))
    assert kubectl("set", "image", "deployment/d", "b=three") == "deployment.apps/d image updated\n"
    assert kubectl("get", "deployment", "d", "-o", images) == "one three"
    kubectl("apply", "-f", "-", stdin=deployment({**first, "image": "four"}))
    assert kubectl("get", "deployment", "d", "-o", images) == "four"


def test_server_side_apply_respects_the_owners_of_fields(kubectl: Terminals) -> None:
    """Another manager's value is a conflict that names its owner; `--force-conflicts` takes the field over."""
    one = manifest("ConfigMap", "m", data={"a": "1", "b": "2"})
    other = manifest("ConfigMap", "m", data={"a": "9"})
    apply = ("apply", "--server-side", "-f", "-")

    assert kubectl(*apply, stdin=one) == "configmap/m serverside-applied\n"
    assert kubectl(*apply, stdin={**one, "data": {"a": "1"}}) == "configmap/m serverside-applied\n"
    refused = kubectl(*apply, "--field-manager=else", stdin=other, code=1)
    assert 'conflict with "kubectl": .data.a' in refused
    kubectl(*apply, "--field-manager=else", "--force-conflicts", stdin=other)
    assert 'conflict with "else"' in kubectl(*apply, stdin=one, code=1)
    assert json.loads(kubectl("get", "configmap", "m", "-o", "json"))["data"] == {"a": "9"}
    assert "manager: else" in kubectl("get", "configmap", "m", "-o", "yaml", "--show-managed-fields")


def test_patch_and_label_and_annotate_change_objects(kubectl: Terminals) -> None:
    """With all three patch types. An existing label is replaced only on request; an immutable field is named."""
    kubectl("create", "-f", "-", stdin=pod("a", labels={"app": "x"}))
    image = '{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}'

    assert kubectl("patch", "pod", "a", "-p", image) == "pod/a patched\n"
    assert kubectl("patch", "pod", "a", "-p", image) == "pod/a patched (no change)\n"
    kubectl("patch", "pod", "a", "--type=merge", "-p", '{"metadata":{"labels":{"more":"z"}}}')
    gone = '[{"op":"remove","path":"/metadata/labels/app"}]'
    kubectl("patch", "pod", "a", "--type=json", "-p", gone)
    kubectl("patch", "pod", "a", "--type=json", "-p", gone, code=1)
    assert kubectl("label", "pod", "a", "tier=web") == "pod/a labeled\n"
    assert "--overwrite is false" in kubectl("label", "pod", "a", "tier=db", code=1)
    kubectl("label", "pods", "--all", "tier=db", "--overwrite")
    assert kubectl("label", "pod", "a", "more-") == "pod/a unlabeled\n"
    assert kubectl("annotate", "pod", "a", "note=hello") == "pod/a annotated\n"
    found = json.loads(kubectl("get", "pod", "a", "-o", "json"))
    assert (found["metadata"]["labels"], found["metadata"]["annotations"]) == ({"tier": "db"}, {"note": "hello"})
    real, ours = kubectl.each("patch", "pod", "a", "-p", '{"spec":{"nodeName":"n"}}')
    assert real.err.splitlines()[0] == ours.err.splitlines()[0]
    assert "may not change fields other than" in ours.err


def test_scale_sets_the_number_of_replicas(kubectl: Terminals) -> None:
    """On request only if the current number is the expected one; the scale can be read."""
    kubectl("create", "deployment", "d", "--image=nginx", "--replicas=2")

    assert kubectl("scale", "deployment/d", "--replicas=5") == "deployment.apps/d scaled\n"
    assert "Expected replicas to be 3, was 5" in kubectl(
        "scale", "deployment/d", "--replicas=5", "--current-replicas=3", code=1
    )
    assert kubectl("get", "deployment", "d", "--subresource=scale").splitlines()[1] == "d 5 0 AGE"
    assert kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas} {.metadata.generation}") == "5 2"


def test_replace_needs_an_existing_object(kubectl: Terminals) -> None:
    """It replaces an object as a whole, and never creates one."""
    kubectl("create", "-f", "-", stdin=manifest("ConfigMap", "m", data={"a": "1"}))

    assert kubectl("replace", "-f", "-", stdin=manifest("ConfigMap", "m", data={"z": "1"})) == "configmap/m replaced\n"
    assert json.loads(kubectl("get", "configmap", "m", "-o", "json"))["data"] == {"z": "1"}
    assert "not found" in kubectl("replace", "-f", "-", stdin=manifest("ConfigMap", "gone"), code=1)


@pytest.mark.long
def test_delete_waits_for_finalizers(kubectl: Terminals) -> None:
    """A pod without a node is deleted at once, even with a grace period; a finalizer keeps an object until removed."""
    for name in ("a", "b", "c"):
        kubectl("create", "-f", "-", stdin=pod(name))
    kubectl("create", "-f", "-", stdin=manifest("ConfigMap", "held", metadata={"finalizers": ["example.com/keep"]}))

    assert "deleted" in kubectl("delete", "pod", "a", "--timeout=60s")
    assert "force deleted" in kubectl("delete", "pod", "b", "--grace-period=0", "--force")
    assert "deleted" in kubectl("delete", "pods", "--all", "--now")
    assert "not found" in kubectl("delete", "pod", "a", code=1)
    assert kubectl("delete", "pod", "a", "--ignore-not-found") == ""
    assert "timed out waiting" in kubectl("delete", "configmap", "held", "--timeout=5s", code=1)
    assert "deletionTimestamp" in kubectl("get", "configmap", "held", "-o", "yaml")
    kubectl("patch", "configmap", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert "not found" in kubectl("get", "configmap", "held", code=1)


def test_a_namespace_is_deleted_with_everything_in_it(kubectl: Terminals) -> None:
    """`kubectl delete namespace` ends when everything in the namespace is gone."""
    kubectl("create", "-f", "-", stdin=pod("a"))
    kubectl("create", "configmap", "m")

    assert "deleted" in kubectl("delete", "namespace", kubectl.namespace)
    assert "No resources found" in kubectl("get", "pods")
    assert "not found" in kubectl("create", "-f", "-", stdin=pod("late"), code=1)


def test_what_inject_prints_can_be_applied(kubectl: Terminals) -> None:
    """A volume with a token is invalid in a pod that names no account."""
    asked = {**pod("a"), "metadata": {"name": "a", "labels": {"backoff-ctrl.dev/inject": "true"}}}
    printed = CliRunner().invoke(cli, ["inject", "-f", "-"], input=json.dumps(asked))
    assert printed.exit_code == 0, printed.stderr
    assert kubectl("apply", "-f", "-", stdin=printed.stdout) == "pod/a created\n"
    assert kubectl("get", "pod", "a", "-o", "jsonpath={.spec.initContainers[*].name}") == "backoff-ctrl"
