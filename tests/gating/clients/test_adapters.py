"""Which official client is used, and what one reads where none fits."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from kubernetes import client as sync

from backoff_ctrl import AsyncGate, AsyncGatedApiClient
from backoff_ctrl.api.commands.doctor import command as doctor
from backoff_ctrl.k8s.gate.clients import generations
from tests.kit.official import AIO, aio
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

ROOT = Path(__file__).parents[3]
only_with_kubernetes_asyncio = pytest.mark.skipif(AIO != "kubernetes_asyncio", reason="make test-clients runs it")


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own: what it imports is its own, too."""
    program = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)


WITHOUT = """
    import sys

    class Hidden:  # an environment without some packages
        def find_spec(self, name, path=None, target=None):
            if name in sys.argv[2].split(","):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Hidden())
"""


# -- the package for asyncio ---------


async def test_a_client_is_of_the_package_of_its_configuration() -> None:
    """It is that package's ``ApiClient``, and ours under our name."""
    async with AsyncGatedApiClient(aio.Configuration(host="http://127.0.0.1:9"), gate=AsyncGate()) as api:
        assert isinstance(api, AsyncGatedApiClient)
        assert isinstance(api, aio.ApiClient)
        assert type(api).__name__ == "AsyncGatedApiClient"


async def test_a_subclass_keeps_its_methods_and_may_have_a_configuration_of_a_subclass() -> None:
    """Callers may extend both."""

    class Mine(AsyncGatedApiClient):
        def hello(self) -> str:
            return f"hello {self.configuration.host}"

    class Theirs(aio.Configuration):  # type: ignore[misc]
        pass

    async with Mine(Theirs(host="http://127.0.0.1:9"), gate=AsyncGate()) as api:
        assert api.hello() == "hello http://127.0.0.1:9"
        assert isinstance(api, Mine)


def test_a_configuration_for_threads_is_refused_with_a_sentence() -> None:
    """It would fail at the first request, with a riddle."""
    with pytest.raises(TypeError, match=r"needs a configuration of .* or kubernetes_asyncio, not kubernetes"):
        AsyncGatedApiClient(sync.Configuration())


@pytest.mark.parametrize(
    ("imported", "configured", "want"),
    [
        (("kubernetes.aio",), (), "kubernetes.aio"),
        (("kubernetes_asyncio",), (), "kubernetes_asyncio"),
        (("kubernetes.aio", "kubernetes_asyncio"), ("kubernetes_asyncio",), "kubernetes_asyncio"),
        (("kubernetes.aio", "kubernetes_asyncio"), ("kubernetes.aio",), "kubernetes.aio"),
        (("kubernetes.aio", "kubernetes_asyncio"), (), None),
        (("kubernetes.aio", "kubernetes_asyncio"), ("kubernetes.aio", "kubernetes_asyncio"), None),
    ],
)
def test_without_a_configuration_the_package_that_the_program_uses_is_meant(
    imported: tuple[str, ...], configured: tuple[str, ...], want: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one with a default configuration, else the one that is imported; of two nothing is guessed."""
    for package in generations.ASYNCIO:
        monkeypatch.delitem(sys.modules, f"{package}.client", raising=False)
    for package in imported:
        default = object() if package in configured else None
        module = SimpleNamespace(Configuration=SimpleNamespace(_default=default))
        monkeypatch.setitem(sys.modules, f"{package}.client", module)

    if want is None:
        with pytest.raises(TypeError, match=r"both .* and kubernetes_asyncio are in use here"):
            generations.asyncio_package(None)
    else:
        assert generations.asyncio_package(None) == want


@only_with_kubernetes_asyncio
def test_an_environment_with_kubernetes_asyncio_alone_is_enough(sandbox: BackgroundSandbox) -> None:
    """Nothing on the way of a create imports ``kubernetes``: not the client, the watch, the events or the memory."""
    sandbox.create_quota("team", "q", {"pods": "1"})
    done = run(
        WITHOUT
        + """
    import asyncio
    from kubernetes_asyncio import client
    from backoff_ctrl import AsyncGatedApiClient, waiting

    spec = {"containers": [{"name": "c", "image": "i"}]}
    async def main():
        async with AsyncGatedApiClient(client.Configuration(host=sys.argv[1]), events=True) as api:
            core, met = client.CoreV1Api(api), asyncio.Event()
            first = await core.create_namespaced_pod("team", {"metadata": {"generateName": "p-"}, "spec": spec})
            with waiting(on_wait=lambda _: met.set()):
                second = asyncio.ensure_future(
                    core.create_namespaced_pod("team", {"metadata": {"generateName": "p-"}, "spec": spec}))
            await met.wait()
            while getattr(api.sight.of("team"), "state", "") != "watching quotas":  # the watch works, too
                await asyncio.sleep(0.01)
            await core.delete_namespaced_pod(first.metadata.name, "team", grace_period_seconds=0)
            await second
            print("in", "kubernetes" in sys.modules)
    asyncio.run(main())
    """,
        sandbox.url,
        "kubernetes",
    )

    assert (done.stdout, done.stderr) == ("in False\n", "")


# -- what is missing, or not supported ---------


def test_where_there_is_no_client_a_sentence_says_what_to_install() -> None:
    """At the import of the one, at the first use of the other."""
    threads = run(WITHOUT + "    from backoff_ctrl import GatedApiClient", "", "kubernetes")
    loop = run(
        WITHOUT + "    from backoff_ctrl import AsyncGatedApiClient\n    AsyncGatedApiClient()",
        "",
        "kubernetes,kubernetes_asyncio",
    )

    assert threads.stderr.splitlines()[-1] == (
        "ImportError: GatedApiClient needs kubernetes 31 to 37: pip install 'kubernetes>=31,<38'"
    )
    assert loop.stderr.splitlines()[-1] == (
        "ImportError: AsyncGatedApiClient needs kubernetes_asyncio 31 to 36 or kubernetes 31 to 37: "
        "pip install 'kubernetes_asyncio>=31,<37'"
    )


def test_a_client_that_offers_nothing_to_gate_by_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of letting its creates pass in silence."""

    class Other:
        """An ``ApiClient`` of some later generation."""

    monkeypatch.setattr("kubernetes.client.ApiClient", Other)
    with pytest.raises(ImportError, match=r"this version of kubernetes has no method .* use kubernetes 31 to 37; pip"):
        generations.is_since_37("kubernetes")


@pytest.mark.parametrize(("version", "warned"), [("30.1.0", 1), ("31.0.0", 0), ("37.9.9", 0), ("38.0.0", 1), ("x", 1)])
def test_a_version_that_fits_but_is_not_tested_is_used_with_one_warning(
    version: str, warned: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A platform must not stop because of a number."""
    monkeypatch.setattr("kubernetes.__version__", version)
    generations._warn_if_untested.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            generations.is_since_37("kubernetes")
    generations._warn_if_untested.cache_clear()

    said = [record.getMessage() for record in caplog.records]
    want = f"kubernetes {version} is not supported: kubernetes 31 to 37 is; pip install 'kubernetes>=31,<38'"
    assert said == [want] * warned


# -- what is written about it ---------


def test_pip_and_the_docs_say_the_same_as_the_code() -> None:
    """The range of the dependency, and the rows of the table."""
    project: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    oldest, newest = generations.SUPPORTED["kubernetes"]
    assert any(re.match(rf"kubernetes>={oldest},<{newest + 1}$", each) for each in project["dependencies"])

    page = (ROOT / "docs" / "clients.md").read_text("utf-8")
    for name, (first, last) in generations.SUPPORTED.items():
        assert re.search(rf"^\| `{name}` {first} to {last} \|", page, re.MULTILINE)


def test_doctor_names_the_clients_and_says_which_is_not_supported(
    monkeypatch: pytest.MonkeyPatch, sandbox: BackgroundSandbox
) -> None:
    """A line of its own, with what to install instead; the other checks still run."""
    found = {"backoff-ctrl": "0.1.0", "kubernetes": "30.1.0", "kubernetes_asyncio": "36.1.0"}
    monkeypatch.setattr("importlib.metadata.version", found.__getitem__)
    monkeypatch.setattr(generations, "version", found.__getitem__)
    done = CliRunner().invoke(doctor, ["--apiserver", sandbox.url, "-n", "team", "--json"], standalone_mode=False)

    first = json.loads(done.stdout)["checks"][0]
    assert first["ok"] is False
    assert "backoff-ctrl 0.1.0, kubernetes 30.1.0, kubernetes_asyncio 36.1.0, Python" in first["detail"]
    want = "kubernetes 30.1.0 is not supported: kubernetes 31 to 37 is; pip install 'kubernetes>=31,<38'"
    assert first["remedy"] == want
