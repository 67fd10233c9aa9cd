"""The servers under test: the sandbox and a real Kubernetes, each started once a run, when the first test asks."""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.k8s.sandbox import running_sandbox
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries, BinariesError, build, wanted
from tests.cluster.control_plane.servers import USERS, Server
from tests.cluster.faults.storm import hung_up
from tests.cluster.kubectl.terminals import Terminal, Terminals
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import Api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    Say = Callable[[str], None]

LOGS = Path(__file__).parents[2] / "build" / "cluster-logs"
KINDS = ("sandbox", "kubernetes")
NEEDS_BINARIES = {"kubernetes", "binaries"}
"""Fixtures that need what only Go builds: a test that asks for one is `real`."""

WHY_NOT = pytest.StashKey[str]()
"""Why there are no binaries."""
REAL_TIMEOUT = 900
"""Seconds until a test that is `real` hangs: it may start a server, or break one, on a machine ten times as slow."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for ``server`` against both, or against the real one alone where its marker says so."""
    if "server" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("only_kubernetes")
    kinds = KINDS[1:] if only else KINDS
    metafunc.parametrize("server", kinds, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `real` whatever needs more than Python, before `-m` looks at the marks."""
    for item in items:
        asked = getattr(item, "callspec", None)
        if (asked and asked.params.get("server") == "kubernetes") or NEEDS_BINARIES & set(_fixtures_of(item)):
            item.add_marker("real")
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(REAL_TIMEOUT))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the selected tests need, here where no test's time limit runs; end the run where that fails."""
    chosen = any(item.get_closest_marker("real") for item in session.items)
    if not chosen or session.config.option.collectonly:
        return
    try:
        build(wanted(), _teller(session.config))
    except BinariesError as error:
        reason = f"{error}\n(nothing was tested; `make test-quick` runs what needs no Kubernetes server)"
        if not hasattr(session.config, "workerinput"):
            pytest.exit(reason, returncode=pytest.ExitCode.INTERNAL_ERROR)
        session.config.stash[WHY_NOT] = reason  # a worker of xdist that exits here is a riddle


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Let a worker of xdist that can't have its programs run nothing: it says why, and ends the whole run."""
    session.shouldstop = session.config.stash.get(WHY_NOT, False)
    return True if session.shouldstop else None


def _fixtures_of(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []


def _teller(config: pytest.Config) -> Say:
    """Print lines to the person at the terminal, past pytest's capture."""
    capture = config.pluginmanager.get_plugin("capturemanager")  # absent with -p no:capture

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            print(f"\n{line}", end="", file=sys.stderr, flush=True)  # noqa: T201

    return say


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Print a line to the person at the terminal."""
    return _teller(request.config)


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
        yield Server("sandbox", 36, running.url, None, wanted(), folder, tokens, compact)


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Server:
    """Return the one, then the other."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def api(server: Server) -> AsyncIterator[Api]:
    """Plain HTTP to either, as "tester"."""
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
def kubectl(sandbox: Server, kubernetes: Server) -> Iterator[Terminals]:
    """kubectl on both, in a new namespace of the same name."""
    name = f"test-{secrets.token_hex(5)}"
    both = Terminals(Terminal(sandbox, name), Terminal(kubernetes, name), name)
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
