"""A mode of the installed chart, run as a process: its Deployment's arguments, its account's token, its Secrets."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shlex
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made
from tests.cluster.shipping.rendering import JSON, helm
from tests.cluster.talking import MERGE, Api, Reply
from tests.kit.patience import PATIENCE

_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}", certificate-authority: {trust}}}}}]
users: [{{name: u, user: {{tokenFile: {token}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u, namespace: {namespace}}}}}]
current-context: x
"""
_FLAGS = {
    "inject": ("--listen", "--probe-listen"),
    "gateway": ("--listen", "--probe-listen"),
    "serve": ("--listen",),
    "webhooks": ("--listen", "--probe-listen"),
    "operator": ("--probe-listen",),
}
_KEEP_CERTIFICATES = frozenset({"inject", "webhooks"})
"""Modes that keep certificates in the namespace of their pod."""
_OF_CHART = {"labelSelector": "app.kubernetes.io/name=backoff-ctrl,app.kubernetes.io/instance=backoff-ctrl"}
_COMPONENTS = {"inject": "injection"}
_PORT = re.compile(r"0\.0\.0\.0:\d+")


@dataclass(frozen=True)
class Doctor:
    """What ``doctor`` found."""

    code: int | None
    missing: list[str]
    """The names of the checks that failed."""


@dataclass(frozen=True)
class Account:
    """A service account of the cluster, and a token of it."""

    server: Server
    namespace: str
    name: str
    token: str

    async def ask(self, method: str, path: str, body: JSON | None = None, content_type: str | None = None) -> Reply:
        tokens = {**self.server.tokens, self.name: self.token}
        made = Server(**{**vars(self.server), "tokens": tokens})
        async with Api(made, self.name) as api:
            return await api.call(method, path, body, content_type=content_type)

    async def until(self, right: str, *, allowed: bool) -> None:
        """Wait until the API server gives a right, such as ``list pods``, or not: it hears of changed roles later."""
        verb, _, rest = right.partition(" ")
        kind, _, name = rest.partition("/")
        resource, _, group = kind.partition(".")
        attributes = {"verb": verb, "group": group, "resource": resource, "name": name}
        attributes["namespace"] = self.namespace if group in ("", "coordination.k8s.io", "backoff-ctrl.dev") else ""
        body = {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
        async with asyncio.timeout(PATIENCE):
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            while (await self.ask("POST", path, body)).json["status"]["allowed"] is not allowed:
                pass

    async def doctor(self, words: str, folder: Path) -> Doctor:
        """Run ``backoff-ctrl doctor`` as a pod of this account would."""
        command = [sys.executable, "-m", "backoff_ctrl", *shlex.split(words), "--json"]
        kubeconfig = f"--kubeconfig={self.kubeconfig(folder)}"
        process = await asyncio.create_subprocess_exec(*command, kubeconfig, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        missing = [each["name"] for each in json.loads(out)["checks"] if not each["ok"]]
        return Doctor(process.returncode, missing)

    def kubeconfig(self, folder: Path) -> Path:
        (folder / "token").write_text(self.token)
        path = folder / "kubeconfig"
        path.write_text(
            _KUBECONFIG.format(
                url=self.server.url, trust=self.server.certificate, token=folder / "token", namespace=self.namespace
            )
        )
        return path


@dataclass(frozen=True)
class Mode:
    """A mode that runs."""

    urls: dict[str, str]
    """By the flag that opens it: ``--listen``, ``--probe-listen``."""
    host: str
    """The name of its Service, for which its certificate is."""
    folder: Path
    """With ``ca.crt``, whom its callers trust."""

    async def ask(self, flag: str, path: str, *, token: str = "", body: JSON | None = None) -> tuple[int, str]:
        """Ask it at the address of a flag; return status and text."""
        url = self.urls[flag] + path
        secure = url.startswith("https")
        tls = ssl.create_default_context(cafile=self.folder / "ca.crt") if secure else True
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        name = self.host if secure else None
        method = "GET" if body is None else "POST"
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, url, json=body, ssl=tls, server_hostname=name) as answer,
        ):
            return answer.status, await answer.text()

    async def until(self, flag: str, path: str, holds: Callable[[int, str], object], token: str = "") -> str:
        """Ask again and again until the answer holds; return its text."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            status, text = await self.ask(flag, path, token=token)
            if holds(status, text):
                return text
            assert asyncio.get_running_loop().time() < deadline, (path, status, text)
            await asyncio.sleep(0.1)


def chart(bed: Bed, *words: str, values: JSON | None = None) -> str:
    """Run helm on the bed; return what it says."""
    folder = bed.server.folder
    places = {name: str(folder / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    given = ("--values=-",) if values is not None else ()
    done = helm(*words, *given, stdin=yaml.safe_dump(values), KUBECONFIG=str(bed.server.kubeconfig("admin")), **places)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rights_of(rules: list[JSON]) -> set[str]:
    """Return the rights that rules of a role give, as ``doctor`` names them."""
    return {
        f"{verb} {resource}{f'.{group}' if group else ''}{f'/{name}' if name else ''}"
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


async def granted(api: Api, mode: str) -> set[str]:
    """Return the rights that the installed chart gives a mode, by all its roles."""
    listed = [
        each
        for kind in ("roles", "clusterroles")
        for each in (await api.get(f"/apis/rbac.authorization.k8s.io/v1/{kind}", params=_OF_CHART)).json["items"]
        if each["metadata"]["labels"]["app.kubernetes.io/component"] == _COMPONENTS.get(mode, mode)
    ]
    assert listed
    return {right for each in listed for right in rights_of(each["rules"])}


@contextmanager
def audited(bed: Bed, mode: str) -> Iterator[set[str]]:
    """Yield what will be the rights that a mode's account used meanwhile; nothing that it asked for was refused.

    What any account may do, to ask about its own rights, does not count.
    """
    log = bed.server.folder / "logs" / "kube-apiserver.log"
    begin = log.stat().st_size
    used: set[str] = set()
    yield used
    with log.open("rb") as lines:
        lines.seek(begin)
        events = [json.loads(line) for line in lines if line.startswith(b'{"kind":"Event"')]
    mine = [each for each in events if each["user"]["username"].endswith(f":backoff-ctrl-{mode}")]
    assert mine
    assert [each["requestURI"] for each in mine if each["responseStatus"]["code"] in (401, 403)] == []
    for each in mine:
        asked = each.get("objectRef", {"resource": "selfsubjectaccessreviews"})
        if asked["resource"] != "selfsubjectaccessreviews":
            group = f".{asked['apiGroup']}" if asked.get("apiGroup") else ""
            name = f"/{asked['name']}" if asked.get("name") and mode in _KEEP_CERTIFICATES else ""
            used.add(f"{each['verb']} {asked['resource']}{group}{name}")


async def account(api: Api, namespace: str, name: str) -> Account:
    """Return a service account with a token of the TokenRequest API."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    made = await api.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    assert made.status == 201, made.text
    return Account(api.server, namespace, name, made.json["status"]["token"])


async def account_with(api: Api, namespace: str, name: str, rules: Sequence[JSON]) -> Account:
    """Create a service account that may do this in the whole cluster, and return it once the server knows."""
    made(await api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}}))
    roles = "/apis/rbac.authorization.k8s.io/v1"
    made(await api.post(f"{roles}/clusterroles", {"metadata": {"name": name}, "rules": rules}))
    bound = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    made(await api.post(f"{roles}/clusterrolebindings", bound))
    mine = await account(api, namespace, name)
    await mine.until("list jobs.batch", allowed=True)
    return mine


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on: all are held until the last one is found."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@asynccontextmanager
async def running(api: Api, namespace: str, mode: str, folder: Path) -> AsyncIterator[Mode]:
    """Run what the Deployment of a mode says, as its account, on this machine."""
    free = dict(zip(_FLAGS[mode], free_ports(len(_FLAGS[mode])), strict=True))
    deployment = await api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/backoff-ctrl-{mode}")
    spec = deployment.json["spec"]["template"]["spec"]
    mine = await account(api, namespace, spec["serviceAccountName"])
    (container,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    args = [
        *container["args"],
        *([f"--namespace={namespace}"] if mode in _KEEP_CERTIFICATES else ()),
        *([f"--lease-namespace={namespace}"] if mode == "operator" else ()),
    ]  # a pod finds its own
    for volume in spec["volumes"]:
        files: dict[str, bytes] = {}
        if "secret" in volume:
            secret = await api.get(f"/api/v1/namespaces/{namespace}/secrets/{volume['secret']['secretName']}")
            files = {name: base64.b64decode(value) for name, value in secret.json["data"].items()}
        elif "configMap" in volume:
            config = await api.get(f"/api/v1/namespaces/{namespace}/configmaps/{volume['configMap']['name']}")
            files = {name: value.encode() for name, value in config.json["data"].items()}
        for name, content in files.items():
            (folder / name).write_bytes(content)
        if files:
            args = [each.replace(f"={mounts[volume['name']]}/", f"={folder}/") for each in args]
    urls = {}
    for number, each in enumerate(args):
        flag = each.partition("=")[0]
        if flag in free:
            args[number] = _PORT.sub(f"{'0.0.0.0' if mode == 'serve' else '127.0.0.1'}:{free[flag]}", each)
            urls[flag] = f"{'http' if flag == '--probe-listen' else 'https'}://127.0.0.1:{free[flag]}"
    assert urls.keys() == free.keys()
    log = folder / f"{mode}.log"
    environment = {**os.environ, "KUBECONFIG": str(mine.kubeconfig(folder)), "HOME": str(folder)}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "backoff_ctrl", *args, env=environment, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            said = (await process.stdout.readline()).decode()
        assert said.startswith("listening on "), log.read_text()
        yield Mode(urls, f"backoff-ctrl-{mode}.{namespace}.svc", folder)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0, log.read_text()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def hooks_run(api: Api, namespace: str, folder: Path, *, fail: bool = False) -> AsyncIterator[list[str]]:
    """Be the node for the pods of the chart's hooks: run what they say, as their account; yield what they print.

    ``fail``: let none of them begin, so that the hook's time is over.
    """
    printed: list[str] = []

    async def node() -> None:
        pods, jobs = f"/api/v1/namespaces/{namespace}/pods", f"/apis/batch/v1/namespaces/{namespace}/jobs"
        mine = {"labelSelector": "app.kubernetes.io/component=uninstall"}
        done: set[str] = set()
        while True:
            for pod in (await api.get(pods, params=mine)).json["items"]:
                name = pod["metadata"]["name"]
                if name in done:
                    continue
                done.add(name)
                if fail:
                    job = pod["metadata"]["ownerReferences"][0]["name"]
                    assert (
                        await api.patch(f"{jobs}/{job}", {"spec": {"activeDeadlineSeconds": 1}}, MERGE)
                    ).status == 200
                    continue
                code, said = await _run_hook(api, pod, folder)
                printed.extend(said.splitlines())
                status = {"status": {"phase": "Failed" if code else "Succeeded"}}
                assert (await api.patch(f"{pods}/{name}/status", status, MERGE)).status == 200
            await asyncio.sleep(0.1)

    work = asyncio.create_task(node())
    try:
        yield printed
    finally:
        work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.result()


async def _run_hook(api: Api, pod: JSON, folder: Path) -> tuple[int | None, str]:
    """Run the one container of a hook's pod as a process; return its exit code, and all that it said."""
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    mine = await account(api, namespace, spec["serviceAccountName"])
    await mine.until("list jobs.batch", allowed=True)
    (volume,) = [each for each in spec["volumes"] if "configMap" in each]
    mounted = folder / "config"
    mounted.mkdir(exist_ok=True)
    config = await api.get(f"/api/v1/namespaces/{namespace}/configmaps/{volume['configMap']['name']}")
    for item in volume["configMap"]["items"] if config.status == 200 else ():
        if item["key"] in config.json["data"]:
            (mounted / item["path"]).write_text(config.json["data"][item["key"]])
    args = [each.replace("=/config", f"={mounted}") for each in spec["containers"][0]["args"]]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "backoff_ctrl", *args, f"--kubeconfig={mine.kubeconfig(folder)}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode, out.decode()
