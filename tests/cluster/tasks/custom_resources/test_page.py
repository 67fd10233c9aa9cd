"""docs/how-to/tasks-with-kubectl.md, typed: each command prints what the page shows, on both servers."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from backoff_ctrl.k8s.tasks.builtin import registry
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.objects import made
from tests.cluster.talking import MERGE, Api
from tests.cluster.tasks.custom_resources.conftest import managed, path
from tests.cluster.tasks.custom_resources.test_owning import pod_of
from tests.kit.pages import ROOT, blocks, typed
from tests.kit.patience import PATIENCE

PAGE = "docs/how-to/tasks-with-kubectl.md"
COMMANDS = {each.command: each.printed for each in typed(PAGE)}
(TASK,) = (block.text for block in blocks(PAGE, "yaml"))


async def test_its_commands_do_what_it_says(kind: Api, binaries: Binaries, namespace: str, tmp_path: Path) -> None:
    """In the order of the page; between two of them there is room in the quota, and the pod ends."""
    (tmp_path / "train.yaml").write_text(TASK)
    wrong = yaml.safe_load(TASK)
    wrong["metadata"]["name"], wrong["spec"]["retries"] = "wrong", {"users": 1}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
    (tmp_path / "helm").symlink_to(ROOT / "helm")
    config = yaml.safe_load(kind.server.kubeconfig("admin").read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    programs = {"kubectl": [str(binaries.kubectl)], "backoff-ctrl": [sys.executable, "-m", "backoff_ctrl"]}

    async def run(command: str) -> str:
        name, *words = shlex.split(command)
        done = await asyncio.to_thread(
            subprocess.run, [*programs[name], *words], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE,
            check=False, env={**os.environ, "KUBECONFIG": str(tmp_path / "config")},
        )  # fmt: skip
        assert done.returncode == 0 or "wrong" in command, done
        return str(done.stdout + done.stderr)

    quotas, place = f"/api/v1/namespaces/{namespace}/resourcequotas", path(namespace, "train")
    made(await kind.post(quotas, {"metadata": {"name": "compute"}, "spec": {"hard": {"pods": "0"}}}))
    await kind.until(f"{quotas}/compute", lambda found: (found.get("status") or {}).get("hard") == {"pods": "0"})
    first = True
    async with managed(kind.server, namespace, registry()):
        for command, printed in COMMANDS.items():
            ends = None
            if command.startswith("kubectl get"):
                await kind.until(place, lambda found: (found.get("status") or {}).get("waitsFor"))
            elif command.startswith(("kubectl wait", "backoff-ctrl task run")):
                made(await kind.patch(f"{quotas}/compute", {"spec": {"hard": {"pods": "1"}}}, MERGE))
                ends = asyncio.create_task(end_pod(kind, namespace))
            elif command.startswith("kubectl apply -f helm") and not first:
                continue
            said = await run(command)
            first = False
            if ends is not None:
                await ends
            if printed:
                assert same(said, namespace) == same(printed, "default"), command
            if command == "kubectl delete task train":  # its pod has ended, and goes with it
                await kind.until(f"/api/v1/namespaces/{namespace}/pods", lambda found: not found["items"])


async def test_a_name_means_the_task_of_the_namespace_that_one_works_in(
    kind: Api, namespace: str, tmp_path: Path
) -> None:
    """As with kubectl, although another namespace has a task of that name, too."""
    other = f"{namespace}-too"
    made(await kind.post("/api/v1/namespaces", {"metadata": {"name": other}}))
    body = yaml.safe_load(TASK)
    for each in (namespace, other):
        made(await kind.post(path(each), body))
    config = yaml.safe_load(kind.server.kubeconfig("admin").read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "backoff_ctrl", "task", "show", "train", "--store", "cluster"]
    shown = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE, check=False,
        env={**os.environ, "KUBECONFIG": str(tmp_path / "config")},
    )  # fmt: skip
    made(await kind.delete(f"/api/v1/namespaces/{other}"))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"{namespace}/train" in shown.stdout


async def end_pod(api: Api, namespace: str) -> None:
    pod = (await pod_of(api, namespace, "train"))["metadata"]["name"]
    made(
        await api.patch(f"/api/v1/namespaces/{namespace}/pods/{pod}/status", {"status": {"phase": "Succeeded"}}, MERGE)
    )


def same(text: str, namespace: str) -> list[list[str]]:
    """Return the words of a text without ages, in whatever namespace."""
    text = re.sub(r"\b\d+[smh]\b", "AGE", text.replace(f"from {namespace} namespace", "from NAMESPACE"))
    return [line.split() for line in text.strip().splitlines()]
