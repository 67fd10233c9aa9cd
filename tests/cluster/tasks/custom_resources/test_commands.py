"""The commands about tasks in the cluster, for a user with rights in one namespace, as most have."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from backoff_ctrl.api.status.served_tasks import ServedTasks
from backoff_ctrl.k8s.status.token import Token
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.platform import Platform
from tests.cluster.objects import made
from tests.cluster.talking import Api
from tests.cluster.tasks.custom_resources.conftest import configured, managed, path, task
from tests.kit.patience import PATIENCE

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"
RULE = {"apiGroups": ["backoff-ctrl.dev"], "resources": ["tasks"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"]}  # fmt: skip
NAP: dict[str, Any] = {"type": "sleep", "container": None, "custom": {"seconds": 0}}


class Person:
    """Somebody at a terminal, with a context whose namespace is the test's."""

    def __init__(self, api: Api, namespace: str, folder: Path, user: str) -> None:
        config = yaml.safe_load(api.server.kubeconfig(user).read_text())
        config["contexts"][0]["context"]["namespace"] = namespace
        self.config = folder / "config"
        self.config.write_text(yaml.safe_dump(config))
        self.folder = folder

    async def there(self, *words: str, code: int = 0) -> str:
        """Run a command on the cluster of the person's kubeconfig, which is named; return all that it prints."""
        where = ["--store", "cluster", "--kubeconfig", str(self.config)]
        command = [sys.executable, "-m", "backoff_ctrl", "task", *words, *where]
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, check=False,
            env={**os.environ, "KUBECONFIG": "/dev/null"},
        )  # fmt: skip
        assert done.returncode == code, done
        return str(done.stdout + done.stderr)


@pytest.mark.only_kubernetes("the sandbox lets everybody do everything")
async def test_rights_in_one_namespace_are_enough(kind: Api, namespace: str, tmp_path: Path) -> None:
    """For all of the commands: they list the tasks of other namespaces only if asked."""
    async with Api(kind.server, "admin") as admin:
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tasks"}
        made(await admin.post(f"{RBAC.format(namespace)}/roles", {"metadata": {"name": "tasks"}, "rules": [RULE]}))
        bound = {"metadata": {"name": "tasks"}, "roleRef": role, "subjects": [subject]}
        made(await admin.post(f"{RBAC.format(namespace)}/rolebindings", bound))
    async with Api(kind.server, "nobody") as nobody, asyncio.timeout(PATIENCE):
        while (await nobody.get(path(namespace))).status != 200:  # noqa: ASYNC110 - the server takes notice
            await asyncio.sleep(0.05)
    me = Person(kind, namespace, tmp_path, "nobody")
    spec = {name: value for name, value in NAP.items() if value is not None}
    nap = {**task("nap"), "spec": spec}
    (tmp_path / "nap.yaml").write_text(yaml.safe_dump(nap))
    made(await kind.post(path(namespace), {**task("go"), "spec": {"type": "signal"}}))
    async with managed(kind.server, namespace, registry()):
        assert "Success" in await me.there("run", "-f", "nap.yaml")
        assert "Success" in await me.there("run", "--again", "nap", "--set", "spec.priority=0")
        listed = await me.there("list")
        assert {line.split()[1] for line in listed.splitlines()[1:]} == {"nap", "go"}
        assert "Success" in await me.there("show", "nap")
        await me.there("signal", "go")
        await kind.until(path(namespace, "go"), lambda found: found["status"].get("endedAt"))
        assert "all tasks have ended" in await me.there("run")
        assert "has ended: Success" in await me.there("abort", "go")
        await me.there("delete", "nap")
    served = ServedTasks(
        None, Platform(None), configured(kind.server, "nobody"), "http://127.0.0.1:1", Token(1), [namespace]
    )
    async with served.running():
        assert [each.name for each in await served.store.list()] == ["go"]
    assert "allow list and watch on tasks.backoff-ctrl.dev" in await me.there("list", "-A", code=2)


async def test_another_namespace_and_all_are_chosen(kind: Api, namespace: str, tmp_path: Path) -> None:
    made(await kind.post(path(namespace), {**task("go"), "spec": {"type": "signal"}}))
    elsewhere = Person(kind, "default", tmp_path, "admin")
    assert "go" not in await elsewhere.there("list")
    assert namespace in await elsewhere.there("list", "-n", namespace)
    assert namespace in await elsewhere.there("list", "-A")
    assert "give only one of them" in await elsewhere.there("list", "-A", "-n", "default", code=2)
    assert "there is no task default/go" in await elsewhere.there("show", "go", code=1)
    assert "signal" in await elsewhere.there("show", "go", "-n", namespace)
    named = (await elsewhere.there("list", "-n", namespace, "-o", "name")).strip()
    assert "signal" in await elsewhere.there("show", named, "-n", namespace)
    assert "signal" in await elsewhere.there("show", f"{namespace}/go")
    assert "namespace taem does not exist" in await elsewhere.there("list", "-n", "taem")
    assert "does not exist" not in await elsewhere.there("list")


async def test_the_shell_completes_names_of_the_cluster(kind: Api, namespace: str, tmp_path: Path) -> None:
    words = "task signal --kubeconfig config --store cluster g"
    made(await kind.post(path(namespace), {**task("go"), "spec": {"type": "signal"}}))
    made(await kind.post(path(namespace), task("grow")))
    Person(kind, namespace, tmp_path, "admin")
    env = {**os.environ, "_BACKOFF_CTRL_COMPLETE": "bash_complete", "COMP_WORDS": f"backoff-ctrl {words}",
           "COMP_CWORD": str(len(words.split()))}  # fmt: skip
    command = [str(Path(sys.executable).parent / "backoff-ctrl")]
    async with asyncio.timeout(PATIENCE):
        while True:  # it offers nothing after some seconds, which a busy machine may take: Tab is pressed again
            done = await asyncio.to_thread(
                subprocess.run, command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )
            if done.stdout:
                break
    assert done.stdout.splitlines() == ["plain,go"], done
