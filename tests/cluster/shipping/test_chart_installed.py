"""The chart on a real Kubernetes: every manifest is taken, and its modes work with its rights, and no others."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.objects import made, pod
from tests.cluster.shipping.installed import Doctor, account, audited, chart, granted, rights_of, running
from tests.cluster.shipping.rendering import CHART, DATA, JSON, MONITORING, rendered, sets
from tests.cluster.talking import MERGE, Api
from tests.kit.patience import PATIENCE

ROLES = "/apis/rbac.authorization.k8s.io/v1"
TAKEN = {
    "inject": ("list pods", "lacks the right to list pods in all namespaces: labelled pods without a sidecar"),
    "gateway": (
        "watch resourcequotas",
        "lacks the right to list resourcequotas in gates: the gate learns from rejections instead",
    ),
    "serve": ("list limitranges", "lacks the right to list limitranges in all namespaces: `explain` does not know"),
}
"""By mode: a right that it loses while it runs, and what its /readyz says of that."""
NAMED_WHERE_THEY_LACK = {
    f"list {kind}"
    for kind in (
        "persistentvolumeclaims", "services", "deployments.apps", "replicasets.apps", "statefulsets.apps", "jobs.batch",
        "cronjobs.batch",
    )
}  # fmt: skip
"""What only `holders` needs: values choose these kinds, and its answer has those that it could not read."""
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
AUDIT = ("--audit-log-path=-", f"--audit-policy-file={DATA / 'audit.yaml'}")
"""The API server's log has every request of the chart's accounts."""
pytestmark = [pytest.mark.long, pytest.mark.parametrize("breakable", [AUDIT], ids=["audited"], indirect=True)]


def kubectl(bed: Bed, binaries: Binaries, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(binaries.kubectl), "--kubeconfig", str(bed.server.kubeconfig("admin")), *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=PATIENCE)


def _is_hook(manifest: JSON) -> bool:
    return "helm.sh/hook" in manifest["metadata"].get("annotations", {})


async def test_the_server_takes_every_manifest(bed: Bed, installed: Api, binaries: Binaries) -> None:
    """Each set of values, strictly: a field that the server does not know is an error."""
    words = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    for name, values in sets().items():
        found = rendered(values, MONITORING, namespace="dry")
        assert any(not _is_hook(each) for each in found) == (name != "nothing")
        manifests = yaml.safe_dump_all(found)
        if not manifests:
            continue
        done = await asyncio.to_thread(kubectl, bed, binaries, *words, stdin=manifests)
        assert (done.returncode, done.stderr) == (0, ""), (name, done.stderr)


async def test_injection_keeps_its_certificates_answers_and_counts(bed: Bed, installed: Api, tmp_path: Path) -> None:
    """With the rights of its account alone, and with each of them: it has no certificates at first."""
    base = "/api/v1/namespaces/gates"
    lease = "/apis/coordination.k8s.io/v1/namespaces/gates/leases/backoff-ctrl-inject"
    for path, nothing in ((f"{base}/secrets/backoff-ctrl-inject", {"data": None}), (lease, {"spec": None})):
        assert (await installed.patch(path, nothing, MERGE)).status == 200
    labelled = pod("bare", labels={"backoff-ctrl.dev/inject": "true"})
    made = await installed.post("/api/v1/namespaces/team-b/pods", labelled)
    assert made.status == 201, made.text  # the webhook can't be reached: pods are created all the same
    with audited(bed, "inject") as used:
        async with running(installed, "gates", "inject", tmp_path) as mode:
            await mode.until("--probe-listen", "/readyz", lambda status, _: status == 200)
            await _trust(installed, "backoff-ctrl-inject-gates", tmp_path)
            given = pod("p")
            given["spec"]["containers"][0]["volumeMounts"] = [
                {"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
            ]
            given["spec"]["volumes"] = [{"name": "t", "secret": {"secretName": "token"}}]
            request = {"uid": "u", "operation": "CREATE", "resource": {"resource": "pods"}, "object": given}
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
            status, text = await mode.ask("--listen", "/inject", body=review)
            assert (status, json.loads(text)["response"]["patchType"]) == (200, "JSONPatch")
            wanted = 'backoff_ctrl_injection_pods_without_sidecar{namespace="team-b"} 1'
            text = await mode.until("--probe-listen", "/metrics", lambda _, text: wanted in text)
    assert 'backoff_ctrl_injection_reviews_total{namespace="",outcome="injected"} 1' in text
    assert used == await granted(installed, "inject")


async def _trust(api: Api, webhook: str, folder: Path) -> str:
    """Write what the API server is to trust where callers look; return it as it stands in the configuration."""
    bundle: str = (await api.get(f"{HOOKS}/{webhook}")).json["webhooks"][0]["clientConfig"]["caBundle"]
    await asyncio.to_thread((folder / "ca.crt").write_bytes, base64.b64decode(bundle))
    return bundle


async def test_the_gateway_holds_a_create_and_makes_it(bed: Bed, installed: Api, tmp_path: Path) -> None:
    """A creator's own token creates; the gateway's account watches quota and pods, and creates nothing."""
    base = "/api/v1/namespaces/gates"
    made = await installed.post(f"{base}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    assert made.status == 201, made.text
    await installed.until(f"{base}/resourcequotas/q", lambda seen: seen.get("status", {}).get("used"))
    token = installed.server.token("tester")
    told = (await installed.get(f"{base}/configmaps/backoff-ctrl-gateway-ca")).json["data"]["ca.crt"]
    with audited(bed, "gateway") as used:
        async with running(installed, "gates", "gateway", tmp_path) as mode:
            assert (tmp_path / "ca.crt").read_text() == told  # whom creators are to trust, by the Service's name
            await mode.until("--probe-listen", "/readyz", lambda status, _: status == 200)
            status, text = await mode.ask("--listen", f"{base}/pods", token=token, body=pod("first"))
            assert status == 201, text
            second = asyncio.create_task(mode.ask("--listen", f"{base}/pods", token=token, body=pod("second")))
            watched = 'backoff_ctrl_watch_healthy{namespace="gates"} 1'
            text = await mode.until("--probe-listen", "/metrics", lambda _, text: watched in text and _waits(text))
            assert not second.done()
            assert (await installed.delete(f"{base}/pods/first", {"gracePeriodSeconds": 0})).status == 200
            status, text = await second
            assert status == 201, text
            status, text = await mode.ask("--listen", f"{base}/pods")
            assert (status, "system:anonymous" in text) == (403, True)  # no token: the gateway lends none
    assert used == await granted(installed, "gateway")


def _waits(metrics: str) -> bool:
    """Say whether the metrics have a create that waits."""
    return any(
        line.startswith("backoff_ctrl_waiting{") and not line.endswith((" 0", " 0.0")) for line in metrics.splitlines()
    )


KINDS = ("pods", "persistentvolumeclaims", "services", "count/deployments.apps", "count/replicasets.apps",
         "count/statefulsets.apps", "count/jobs.batch", "count/cronjobs.batch")  # fmt: skip


async def _claims_devices(installed: Api) -> JSON:
    """Return a Job whose pod claims a device by a template, which is there with its class."""
    resources = "/apis/resource.k8s.io/v1"
    made(await installed.post(f"{resources}/deviceclasses", {"metadata": {"name": "any"}, "spec": {}}))
    asks = {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "any"}}]}}
    template = {"metadata": {"name": "one"}, "spec": {"spec": asks}}
    made(await installed.post(f"{resources}/namespaces/team-a/resourceclaimtemplates", template))
    claims = [{"name": "device", "resourceClaimTemplateName": "one"}]
    spec = {**pod("claiming")["spec"], "restartPolicy": "Never", "resourceClaims": claims}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "claiming", "namespace": "team-a"},
        "spec": {"template": {"spec": spec}},
    }


async def test_serve_observes_explains_and_asks_who_may_see(bed: Bed, installed: Api, tmp_path: Path) -> None:
    """Everything of the page with the chart's roles, for people with rights of their own."""
    base = "/api/v1/namespaces/team-a"
    quota = {"metadata": {"name": "q"}, "spec": {"hard": dict.fromkeys(KINDS, "1")}}
    assert (await installed.post(f"{base}/resourcequotas", quota)).status == 201
    await installed.until(f"{base}/resourcequotas/q", lambda seen: seen.get("status", {}).get("used"))
    assert (await installed.post(f"{base}/pods", pod("holder"))).status == 201
    claiming = await _claims_devices(installed)
    await _gate_runs(installed)
    viewer, everybody, nobody = (installed.server.token(user) for user in ("creator", "tester", "nobody"))
    with audited(bed, "serve") as used:
        async with running(installed, "gates", "serve", tmp_path) as mode:

            async def asked(path: str, token: str = viewer, body: JSON | None = None) -> Any:
                status, text = await mode.ask("--listen", path, token=token, body=body)
                assert status == 200, (path, text)
                return json.loads(text)

            await mode.until("--listen", "/readyz", lambda status, _: status == 200)
            where = "namespace=team-a"
            full = await mode.until("--listen", f"/v1/ceilings?{where}", lambda _, text: '"used":"1"' in text, viewer)
            assert {each["resource"] for each in json.loads(full)["items"]} == set(KINDS)
            holders = await asked(f"/v1/holders?{where}")
            assert (holders["unread"], "holder" in json.dumps(holders["quotas"])) == ({}, True)
            assert (await asked("/v1/holders?namespace=platform"))["quotas"] == []
            explained = await asked(f"/v1/explain?{where}", body=pod("another"))
            assert explained["verdict"] == "wait"
            assert (await asked(f"/v1/explain?{where}", body=claiming))["verdict"] in {"now", "wait"}
            await mode.until("--listen", "/v1/ceilings", lambda _, text: "http://127.0.0.1:9" in text, everybody)
            for path in ("namespaces", "waiting", "gates", "overload", "policy"):
                found = await asked(f"/v1/{path}", everybody)
                assert [each["gate"] for each in found["unreachable"]] == ["http://127.0.0.1:9"], path
            assert "team-a" in (await mode.ask("--listen", "/", token=everybody))[1]
            assert "backoff_ctrl_ceiling_used{" in (await mode.ask("--listen", "/metrics", token=viewer))[1]
            assert (await mode.ask("--listen", f"/v1/ceilings?{where}", token=nobody))[0] == 403
            assert (await mode.ask("--listen", f"/v1/ceilings?{where}", token="unknown"))[0] == 401
    assert used == await granted(installed, "serve")


async def _gate_runs(api: Api) -> None:
    """Let a pod of namespace platform say that a gate is in it, though nobody answers there."""
    gate = pod("gate", labels={"backoff-ctrl.dev/gate": "true"}, annotations={"backoff-ctrl.dev/status-port": "9"})
    assert (await api.post("/api/v1/namespaces/platform/pods", gate)).status == 201
    status = {"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
    said = await api.patch("/api/v1/namespaces/platform/pods/gate/status", status, MERGE)
    assert said.status == 200, said.text


@pytest.mark.parametrize("mode", ["inject", "gateway", "serve"])
async def test_a_missing_right_is_named_by_doctor_and_readyz(
    bed: Bed, installed: Api, tmp_path: Path, mode: str
) -> None:
    """By the command that NOTES has: nothing is missing, then one right while it runs, then all of the mode's rules."""
    notes = chart(bed, "get", "notes", "backoff-ctrl", "--namespace=gates")
    (words,) = re.findall(rf"kubectl -n gates exec deployment/backoff-ctrl-{mode} -- backoff-ctrl (doctor .*)", notes)
    where = {"inject": "NAMESPACE exec POD -c backoff-ctrl", "gateway": "gates exec deployment/backoff-ctrl-gateway"}
    assert mode not in where or f"kubectl -n {where[mode]} -- backoff-ctrl waiting" in notes
    asks = await account(installed, "gates", f"backoff-ctrl-{mode}")
    assert await asks.doctor(words, tmp_path) == Doctor(0, [])
    roles = [f"{ROLES}/clusterroles/backoff-ctrl-{mode}-gates"]
    roles += [f"{ROLES}/namespaces/gates/roles/backoff-ctrl-inject"] if mode == "inject" else []
    rules = {role: (await installed.get(role)).json["rules"] for role in roles}
    lost, named = TAKEN[mode]
    kept = [rule for rule in rules[roles[0]] if rule["resources"] != [lost.partition(" ")[2]]]
    assert len(kept) == len(rules[roles[0]]) - 1
    await _ruled(installed, roles[0], kept)
    await asks.until(lost, allowed=False)
    async with running(installed, "gates", mode, tmp_path) as process:
        flag = "--listen" if mode == "serve" else "--probe-listen"
        await process.until(flag, "/readyz", lambda status, text: status == 200 and f"ok\n{named}" in text)
    for role in roles:
        await _ruled(installed, role, [])
    wanted = {right for found in rules.values() for right in rights_of(found)}
    for right in wanted:
        await asks.until(right, allowed=False)
    said = await asks.doctor(words, tmp_path)
    for role in roles:
        await _ruled(installed, role, rules[role])
    for right in wanted:
        await asks.until(right, allowed=True)
    assert (said.code, set(said.missing)) == (1, wanted - NAMED_WHERE_THEY_LACK)


async def test_a_webhook_without_its_secret_says_so_instead_of_being_ready(installed: Api, tmp_path: Path) -> None:
    """The API server's own sentence, and which right is missing."""
    own = f"{ROLES}/namespaces/gates/roles/backoff-ctrl-inject"
    before = (await installed.get(own)).json["rules"]
    await _ruled(installed, own, [])
    asks = await account(installed, "gates", "backoff-ctrl-inject")
    await asks.until("get secrets/backoff-ctrl-inject", allowed=False)
    async with running(installed, "gates", "inject", tmp_path) as mode:
        status, text = await mode.ask("--probe-listen", "/readyz")
    await _ruled(installed, own, before)
    for right in rights_of(before):
        await asks.until(right, allowed=True)
    assert (status, "cannot get resource" in text) == (503, True)
    assert "lacks the right to get secrets/backoff-ctrl-inject in gates" in text


async def _ruled(api: Api, role: str, rules: list[JSON]) -> None:
    answer = await api.patch(role, {"rules": rules}, MERGE)
    assert answer.status == 200, answer.text


POD, QUOTA = {"metadata": {"name": "x"}}, {"metadata": {"name": "x"}, "spec": {"hard": {"pods": "1"}}}
FORBIDDEN: list[tuple[str, str, str, JSON | None]] = [
    ("inject", "POST", "/api/v1/namespaces/gates/pods", pod("x")),
    ("inject", "GET", "/api/v1/namespaces/gates/secrets", None),
    ("inject", "GET", "/api/v1/namespaces/gates/secrets/backoff-ctrl-gateway-tls", None),
    ("inject", "POST", "/api/v1/namespaces/gates/secrets", POD),
    ("inject", "GET", HOOKS, None),
    ("inject", "DELETE", f"{HOOKS}/backoff-ctrl-inject-gates", None),
    ("inject", "PUT", "/apis/coordination.k8s.io/v1/namespaces/gates/leases/another", POD),
    ("gateway", "POST", "/api/v1/namespaces/gates/pods", pod("x")),
    ("gateway", "GET", "/api/v1/namespaces/gates/secrets/backoff-ctrl-gateway-tls", None),
    ("gateway", "GET", "/api/v1/namespaces/team-a/resourcequotas", None),
    ("gateway", "GET", "/api/v1/resourcequotas", None),
    ("gateway", "DELETE", "/api/v1/namespaces/gates/pods/second", None),
    ("serve", "POST", "/api/v1/namespaces/team-a/pods", pod("x")),
    ("serve", "GET", "/api/v1/namespaces/team-a/secrets", None),
    ("serve", "POST", "/api/v1/namespaces/team-a/resourcequotas", QUOTA),
    ("serve", "GET", "/api/v1/namespaces/team-a/pods/holder/log", None),
    ("serve", "GET", "/api/v1/nodes", None),
]


async def test_what_no_mode_needs_is_refused(installed: Api) -> None:
    """Each of these, by the API server."""
    accounts = {
        name: await account(installed, "gates", f"backoff-ctrl-{name}") for name in ("inject", "gateway", "serve")
    }
    for who, method, path, body in FORBIDDEN:
        answer = await accounts[who].ask(method, path, body)
        assert (answer.status, answer.json["reason"]) == (403, "Forbidden"), (who, method, path, answer.text)
        assert f"system:serviceaccount:gates:backoff-ctrl-{who}" in answer.json["message"]


async def test_the_helm_test_asks_each_mode(bed: Bed, installed: Api, tmp_path: Path) -> None:
    """The command of its pod, as a process: it prints what is ready, and fails while a mode is not."""
    hooks = list(yaml.safe_load_all(chart(bed, "get", "hooks", "backoff-ctrl", "--namespace=gates")))
    (hook,) = [each for each in hooks if each["metadata"]["annotations"]["helm.sh/hook"] == "test"]
    python, *command = hook["spec"]["containers"][0]["command"]
    assert python == "python"
    for mode in ("inject", "gateway", "serve"):
        (tmp_path / mode).mkdir()
    async with (
        running(installed, "gates", "inject", tmp_path / "inject") as inject,
        running(installed, "gates", "gateway", tmp_path / "gateway") as gateway,
        running(installed, "gates", "serve", tmp_path / "serve") as serve,
    ):
        here = {
            "http://backoff-ctrl-inject.gates.svc:9096": inject.urls["--probe-listen"],
            "http://backoff-ctrl-gateway.gates.svc:9096": gateway.urls["--probe-listen"],
            "https://backoff-ctrl-serve.gates.svc": serve.urls["--listen"].replace("127.0.0.1", "localhost"),
        }
        words = [here.get(each.removesuffix("/readyz"), each.removesuffix("/readyz")) for each in command[2:]]
        assert sorted(words) == sorted(here.values())
        variables = {**os.environ, "SSL_CERT_FILE": str(tmp_path / "serve" / "ca.crt")}

        async def asked(*urls: str) -> tuple[int | None, str]:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command[:2], *urls, stdout=asyncio.subprocess.PIPE, env=variables
            )
            out, _ = await process.communicate()
            return process.returncode, out.decode()

        code, said = await asked(*(f"{each}/readyz" for each in words))
        assert (code, said.count("ok  ")) == (0, 3), said


async def test_an_upgrade_keeps_what_the_webhook_wrote_and_uninstall_leaves_nothing(
    bed: Bed, installed: Api, binaries: Binaries, tmp_path: Path
) -> None:
    """Install, upgrade, rollback, uninstall: caBundle and certificates stay, the rest follows the values."""
    values: JSON = {"gateway": {"enabled": True}}
    here = ("backoff-ctrl", "--namespace=life")
    chart(bed, "install", *here, str(CHART), values=values)
    async with running(installed, "life", "inject", tmp_path) as mode:
        await mode.until("--probe-listen", "/readyz", lambda status, _: status == 200)

    async def kept() -> list[Any]:
        secrets = [
            (await installed.get(f"/api/v1/namespaces/life/secrets/backoff-ctrl-{name}")).json["data"]
            for name in ("inject", "gateway-tls")
        ]
        return [*secrets, await _trust(installed, "backoff-ctrl-inject-life", tmp_path)]

    async def timeout() -> int:
        found: int = (await installed.get(f"{HOOKS}/backoff-ctrl-inject-life")).json["webhooks"][0]["timeoutSeconds"]
        return found

    before = await kept()
    assert all(before)
    assert await timeout() == 2
    changed = {**values, "injection": {"timeoutSeconds": 7, "replicas": 3}}
    chart(bed, "upgrade", *here, str(CHART), values=changed)
    assert (await timeout(), await kept() == before) == (7, True)
    chart(bed, "rollback", *here, "1", "--no-hooks")  # no node runs the hook's pod here
    assert (await timeout(), await kept() == before) == (2, True)
    chart(bed, "uninstall", *here)
    kinds = "all,secrets,configmaps,leases,roles,rolebindings,serviceaccounts,poddisruptionbudgets,networkpolicies"
    whole = "clusterroles,clusterrolebindings,mutatingwebhookconfigurations"
    for asked in ((kinds, "--namespace=life", "-lapp.kubernetes.io/name=backoff-ctrl"), (whole, "-oname")):
        done = await asyncio.to_thread(kubectl, bed, binaries, "get", *asked)
        assert "backoff-ctrl-inject-life" not in done.stdout
        assert done.returncode == 0
        assert asked[0] == whole or done.stdout == ""
