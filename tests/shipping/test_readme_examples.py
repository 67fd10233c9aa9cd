"""The code in README and ARCHITECTURE runs unchanged, so that readers can copy it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from kubernetes import config
from kubernetes.client import Configuration

from backoff_ctrl.k8s.sandbox import running_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.sandbox import BackgroundSandbox

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"


def example(word: str, page: Path = README) -> str:
    """Return the one Python example that contains this word."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = (block for block in blocks if word in block)
    return str(found)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundSandbox]:
    """A sandbox with the README's namespace, as the cluster of the default kubeconfig."""
    with running_sandbox() as sandbox:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": sandbox.url}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
        }
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        sandbox.create_namespace("team-a")
        sandbox.create_quota("team-a", "pods", {"requests.cpu": "2"})
        yield sandbox
        Configuration.set_default(None)


def test_the_engine_example_runs_as_it_stands() -> None:
    """Its own assertion holds, and the probe belongs to the rejected request."""
    names: dict[str, object] = {}
    exec(compile(example("Rejected", ARCHITECTURE), str(ARCHITECTURE), "exec"), names)
    ticket, probe = names["ticket"], names["probe"]
    assert getattr(ticket, "request", None) is getattr(probe, "request", 0)
    assert getattr(probe, "probe", False) is True


def test_the_gated_client_example_creates_its_pod(cluster: BackgroundSandbox) -> None:
    """As pasted, with the default kubeconfig and a key: run twice, it still creates one pod."""
    names: dict[str, object] = {}
    for _ in range(2):
        exec(compile(example("GatedApiClient"), str(README), "exec"), names)
    listed = getattr(names["core"], "list_namespaced_pod")("team-a")  # noqa: B009 - names come from the example
    assert len(listed.items) == 1
