"""The chart under Helm: what each major version of it does with a release, from nothing and back to nothing, again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.node.objects import job, limited
from tests.node.release import CHART, HERE, IMAGE, NAMESPACE
from tests.node.user import CommandError, User

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]
WHOLE = ("operator.enabled=true", "serve.enabled=true", "gateway.enabled=true")
"""All modes: each of their objects comes and goes."""
REPLICATED = ("injection", "operator", "webhooks")
KINDS = ("clusterroles", "clusterrolebindings", "mutatingwebhookconfigurations", "validatingwebhookconfigurations")


@pytest.fixture(params=[4, 3])
def typist(request: pytest.FixtureRequest, user: User) -> Iterator[User]:
    """A user with Helm of this major version, and nothing of the chart in the cluster."""
    remove(user)
    yield user.with_helm(request.param)
    remove(user)


def remove(user: User) -> None:
    user.helm("uninstall", *HERE, "--wait", "--ignore-not-found")
    user.kubectl("delete", "crd", "tasks.backoff-ctrl.dev", "--ignore-not-found")


def left(user: User) -> list[str]:
    """Return what is there of the release, but the definition of Tasks, which is to stay."""
    within = user.kubectl(
        "get", "all,secrets,configmaps,leases,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets",
        f"--namespace={NAMESPACE}", "--output=name",
    )  # fmt: skip
    cluster = user.kubectl("get", ",".join(KINDS), "--output=name")
    own = [each for each in within.split() if each.partition("/")[2] not in {"kube-root-ca.crt", "default"}]
    return [*own, *(each for each in cluster.split() if "backoff-ctrl" in each)]


def test_a_release_comes_and_goes_three_times(typist: User) -> None:
    """helm install, test, uninstall, three times; nothing but the definition of Tasks and the TLS Secrets is left."""
    modes = [f"--set={each}" for each in (*WHOLE, *(f"{mode}.replicas=1" for mode in REPLICATED))]
    for _ in range(3):
        typist.helm("install", *HERE, CHART, "--create-namespace", "--wait", IMAGE, *modes)
        said = typist.helm("test", *HERE, "--logs")
        assert "Phase:          Succeeded" in said
        assert "POD LOGS: backoff-ctrl-test" in said
        assert "ok  " in said
        typist.helm("uninstall", *HERE, "--wait")
        # Helm 3 could not read the log of a pod that it deletes once it has succeeded: there it stays.
        typist.kubectl("delete", "pods", f"--namespace={NAMESPACE}", "--selector=app.kubernetes.io/component=test")
        typist.until("the pods to be gone", lambda: not typist.all("pods", NAMESPACE))
        assert [each for each in left(typist) if "-tls" not in each and "-ca" not in each] == []


def test_a_release_is_upgraded_and_rolled_back(typist: User, namespace: str) -> None:
    """helm install, upgrade with all modes, test, rollback and forth; uninstall lets a Job go that waits."""
    one = [f"--set={mode}.replicas=1" for mode in REPLICATED]
    typist.helm("install", *HERE, CHART, "--create-namespace", "--wait", IMAGE, *one)
    modes = [f"--set={each}" for each in WHOLE]
    typist.helm("upgrade", *HERE, CHART, "--wait", "--reuse-values", *modes)
    assert "Phase:          Succeeded" in typist.helm("test", *HERE)
    typist.helm("rollback", *HERE, "1", "--wait")
    assert "Phase:          Succeeded" in typist.helm("test", *HERE)
    names = {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in typist.all("deployments", NAMESPACE)}
    assert names == {"injection"}
    forth(typist)
    assert "Phase:          Succeeded" in typist.helm("test", *HERE)
    names = {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in typist.all("deployments", NAMESPACE)}
    assert names == {"injection", "operator", "webhooks", "serve", "gateway"}
    limited(typist, namespace, 0)
    typist.apply(job("waits", namespace))
    assert suspended(typist, namespace)
    typist.helm("uninstall", *HERE, "--wait")
    assert not suspended(typist, namespace)


def suspended(user: User, namespace: str) -> bool:
    found = user.find("job", "waits", namespace)
    assert found
    return bool(found["spec"]["suspend"])


def forth(typist: User) -> None:
    """Go back to the second revision; Helm 3 can't, since it has the definition of Tasks, and the third has not."""
    if typist.major > 3:
        typist.helm("rollback", *HERE, "2", "--wait")
        return
    with pytest.raises(CommandError, match="cannot patch"):
        typist.helm("rollback", *HERE, "2", "--wait")
    modes = [f"--set={each}" for each in WHOLE]
    typist.helm("upgrade", *HERE, CHART, "--wait", "--reuse-values", *modes)
