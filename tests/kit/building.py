"""Builds what the chosen tests run, beside the tests that run nothing of it.

There are sets of programs, each built from Go once per machine: the control plane, and others (Helm, Prometheus,
Kubernetes' own end-to-end suite, JobSet's controller, programs on client-go). A test asks for one by a fixture. It is
then ``real``, and ``go`` as well if the set is one of the others: ``make test`` leaves those to ``make test-go``.

In one process, all is built before the first test. Where several processes share the tests, what needs no build goes
first, and a test that needs one waits for it before its time limit begins. What is not built yet is found out once, by
the process that shares the tests out: all others have to order them alike.
"""

from __future__ import annotations

import queue
import sys
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.admitting.programs import JOBSET, KUBEFLOW, KUBERAY, SPARK, TRAINER
from tests.cluster.control_plane import binaries
from tests.cluster.control_plane.go_programs import GoPrograms, ProgramsError
from tests.cluster.proxying.conformance.suite import SUITE
from tests.cluster.proxying.programs.creators import CREATORS
from tests.cluster.shipping.helm.programs import HELM
from tests.monitoring.prometheus.programs import PROMETHEUS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Say = Callable[[str], None]


class ControlPlane:
    """The programs of the bed, as a set like the others."""

    title = "Kubernetes server"

    @property
    def missing(self) -> list[str]:
        """Those that are not there yet."""
        return binaries.wanted().missing

    @property
    def is_ready_made(self) -> bool:
        """Say whether the environment names their folder."""
        return binaries.is_ready_made()

    def build(self, say: Say) -> None:
        """Build what is missing. Raises ``BinariesError``."""
        binaries.build(binaries.wanted(), say)


OTHERS: Final = {
    "creators": CREATORS,
    "conformance": SUITE,
    "helm_program": HELM,
    "programs": PROMETHEUS,
    "jobset_programs": JOBSET,
    "kubeflow_programs": KUBEFLOW,
    "kuberay_programs": KUBERAY,
    "spark_programs": SPARK,
    "trainer_programs": TRAINER,
}
"""By the fixture through which a test asks for them."""
_ALL: Final[list[ControlPlane | GoPrograms]] = [ControlPlane(), *OTHERS.values()]
SETS: Final = {each.title: each for each in _ALL}
"""All sets, by title, in the order they are built in."""
REAL_TIMEOUT: Final = 900
"""Seconds until a test that is `real` hangs: it may start a server, or break one, on a machine ten times as slow."""


def asks_for_kubernetes(item: pytest.Function) -> bool:
    """Say whether a test runs on the Kubernetes server that a process has for the whole run."""
    asked = getattr(item, "callspec", None)
    return "kubernetes" in item.fixturenames or (asked is not None and asked.params.get("server") == "kubernetes")


def needs(item: pytest.Item) -> list[str]:
    """Name the sets of programs that a test runs, the control plane first."""
    if not isinstance(item, pytest.Function):
        return []
    first = [ControlPlane.title] if asks_for_kubernetes(item) or "binaries" in item.fixturenames else []
    return first + [programs.title for fixture, programs in OTHERS.items() if fixture in item.fixturenames]


def _built(title: str, say: Say) -> str:
    """Build what is missing of a set; return why that failed."""
    try:
        SETS[title].build(say)
    except (binaries.BinariesError, ProgramsError) as error:
        return str(error)
    return ""


@dataclass
class _Build:
    """One that goes on in a thread of its own."""

    title: str
    said: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    error: str = ""

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.error = _built(self.title, self.said.put)


class Building:
    """The plugin of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._builds: dict[str, _Build] = {}
        self._why_not = ""
        self._unbuilt: list[str] | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Tell a new process what is not built yet."""
        self._unbuilt = self.unbuilt
        node.workerinput["unbuilt"] = self._unbuilt  # type: ignore[attr-defined]

    @property
    def unbuilt(self) -> list[str]:
        """The sets of programs that were not built when the run began, in the order they are built in."""
        if self._unbuilt is None:
            told: list[str] | None = getattr(self._config, "workerinput", {}).get("unbuilt")
            self._unbuilt = told if told is not None else [title for title, each in SETS.items() if each.missing]
        return self._unbuilt

    def after(self, item: pytest.Item) -> int:
        """Count the builds that come before a test: 0 if all that it runs was there when the run began."""
        return max((1 + self.unbuilt.index(title) for title in needs(item) if title in self.unbuilt), default=0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark what needs more than Python, before `-m` looks at the marks."""
        for item in items:
            asked = needs(item)
            if asked:
                item.add_marker("real")
            if asked[:1] == [ControlPlane.title] and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(REAL_TIMEOUT))
            if set(asked) - {ControlPlane.title}:
                item.add_marker("go")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Build what the chosen tests need, or begin to; end the run where that fails."""
        asked = {title for item in session.items for title in needs(item)}
        if session.config.option.collectonly:
            return
        alone = not hasattr(session.config, "workerinput")
        for title in [each for each in self.unbuilt if each in asked]:
            if not (alone or SETS[title].is_ready_made):
                self._builds[title] = _Build(title)
            elif error := _built(title, self.say):
                self._why_not = f"{error}\n(nothing was tested; `make test-quick` runs what needs no {title})"
                if alone:  # a worker of xdist that exits here is a riddle
                    pytest.exit(self._why_not, returncode=pytest.ExitCode.INTERNAL_ERROR)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Let a worker of xdist that can't have its programs run nothing: it says why, and ends the whole run."""
        if self._why_not:
            session.shouldstop = self._why_not
            return True
        return None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Wait for what a test runs, before its time limit begins; where it can't be built, end the run."""
        for title in needs(item):
            if title in self._builds and (error := self._wait(self._builds[title])):
                item.session.shouldstop = f"{error}\n(`make test-quick` runs what needs no {title})"
        self._pass_on()
        return (yield)

    def _wait(self, build: _Build) -> str:
        while build.thread.is_alive():
            build.thread.join(1.0)
            self._pass_on()
        return build.error

    def _pass_on(self) -> None:
        """Print what the builds have said: from this thread, since pytest's capture is not made for several."""
        for build in self._builds.values():
            while not build.said.empty():
                self.say(build.said.get())

    def say(self, line: str) -> None:
        """Print a line to the person at the terminal, past pytest's capture."""
        capture = self._config.pluginmanager.get_plugin("capturemanager")  # absent with -p no:capture
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            print(f"\n{line}", end="", file=sys.stderr, flush=True)  # noqa: T201
