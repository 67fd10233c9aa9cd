"""The servers under test: the sandbox and a real Kubernetes, each started once a run, when the first test asks."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries, wanted
from tests.cluster.control_plane.servers import USERS, Server
from tests.cluster.faults.storm import hung_up
from tests.cluster.kubectl.terminals import Terminal, Terminals
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import Api
from tests.kit.building import Building

Say = Callable[[str], None]

LOGS = Path(__file__).parents[2] / "build" / "cluster-logs"
KINDS = ("sandbox", "kubernetes")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for ``server`` against both, or against the real one alone where its marker says so."""
    if "server" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("only_kubernetes")
    kinds = KINDS[1:] if only else KINDS
    metafunc.parametrize("server", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Print a line to the person at the terminal."""
    building = request.config.pluginmanager.get_plugin("building")
    assert isinstance(building, Building)
    return building.say


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """Return kubectl and the others, of the version under test."""
    return wanted()


@pytest.fixture(scope="session")
def kubernetes(request: pytest.FixtureRequest, binaries: Binaries, say: Say) -> Iterator[Server]:
    """A real control plane, for the whole run; its logs are kept when a test failed."""
    with _logged_bed(request, "shared", binaries, say=say) as bed:
        yield bed.server


@pytest.fixture(scope="module")
def breakable(request: pytest.FixtureRequest, binaries: Binaries, say: Say) -> Iterator[Bed]:
    """A control plane that the tests of one module break; indirect parameters are flags for its API server."""
    flags = getattr(request, "param", ())
    with _logged_bed(request, request.path.stem, binaries, kcm_qps=500, say=say, api_flags=flags) as bed:
        yield bed


@pytest.fixture
async def bed(breakable: Bed) -> AsyncIterator[Bed]:
    """The module's control plane; the test ends with no connection left half closed, of which the next would hear."""
    yield breakable
    await hung_up()


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The sandbox, in a thread, for the whole run; it lets everybody do everything."""
    tokens = {user: user for user in USERS}
    with running_sandbox(seed=7) as running:
        folder, compact = tmp_path_factory.mktemp("sandbox"), lambda: running.call(lambda sandbox: sandbox.compact())
        yield Server("sandbox", 36, running.url, None, folder, tokens, compact)


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def api(server: Server) -> AsyncIterator[Api]:
    async with Api(server) as made:
        yield made


@pytest.fixture
async def real_api(kubernetes: Server) -> AsyncIterator[Api]:
    """Plain HTTP to the real one, as "tester"."""
    async with Api(kubernetes) as made:
        yield made


@pytest.fixture
async def namespace(api: Api) -> AsyncIterator[str]:
    """A namespace of the test's own, on either."""
    async with _namespace(api) as name:
        yield name


@pytest.fixture
def room(api: Api, namespace: str) -> Room:
    """What tests of quota do in a namespace, on either."""
    return Room(api, namespace)


@pytest.fixture
async def real_namespace(real_api: Api) -> AsyncIterator[str]:
    """A namespace of the test's own, on the real one."""
    async with _namespace(real_api) as name:
        yield name


@pytest.fixture
def kubectl(sandbox: Server, kubernetes: Server, binaries: Binaries) -> Iterator[Terminals]:
    """kubectl on both, in a new namespace of the same name."""
    name = f"test-{secrets.token_hex(5)}"
    ours, real = (Terminal(server, binaries.kubectl, name) for server in (sandbox, kubernetes))
    both = Terminals(ours, real, name)
    both("create", "namespace", name)
    yield both
    both.each("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@contextmanager
def _logged_bed(request: pytest.FixtureRequest, name: str, binaries: Binaries, **options: Any) -> Iterator[Bed]:
    """A bed whose logs are kept when a test failed while it ran."""
    failed_before = request.session.testsfailed
    with Bed(binaries, logs=LOGS / os.environ.get("PYTEST_XDIST_WORKER", "") / name, **options) as bed:
        yield bed
        if request.session.testsfailed > failed_before:
            options["say"](f"a test failed: the logs of the Kubernetes server are in {bed.keep_logs()}")


@asynccontextmanager
async def _namespace(api: Api) -> AsyncIterator[str]:
    name = f"test-{secrets.token_hex(5)}"
    made = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made.status == 201, made.text
    yield name
    if api.server.kind == "kubernetes":
        return  # it goes with the bed: clearing hundreds away would keep the controllers busy for minutes
    gone = await api.delete(f"/api/v1/namespaces/{name}")
    assert gone.status in {200, 404}, gone.text
