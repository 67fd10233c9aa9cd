"""A forked child has neither the threads nor the waiters of its parent: its creates wait as in a new program."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Seen, scripted_server

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
    from tests.kit.scripted_server import Reply

PROGRAM = """
    import asyncio, os, sys, threading, time, warnings
    from kubernetes import client
    from backoff_ctrl import GatedApiClient, waiting
    from backoff_ctrl.k8s.gate.clients.client import WaitTimeout
    warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads

    core = client.CoreV1Api(GatedApiClient(client.Configuration(host=sys.argv[1])))
    spec = {"containers": [{"name": "c", "image": "i"}]}
    def pod(name): return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    core.create_namespaced_pod("team", pod("first"), async_req=True).get(30)  # the parent's pool has threads now

    met = threading.Event()
    def wait_in_vain():
        try:
            with waiting(timeout=600, on_wait=lambda _: met.set()):
                core.create_namespaced_pod("team", pod("second"))
        except BaseException as error:
            print("the parent's", type(error).__name__, flush=True)
    threading.Thread(target=wait_in_vain, daemon=True).start()
    met.wait()

    def blocking(): core.create_namespaced_pod("team", pod("third"))
    def later(): core.create_namespaced_pod("team", pod("third"), async_req=True).get(30)
    child = os.fork()
    if child == 0:
        try:
            with waiting(timeout=0.2):
                {create}()
        except WaitTimeout:
            print("timed out", flush=True)
        sys.exit(0)  # with its atexit hooks, which close the client
    _, status = os.waitpid(child, 0)
    print("the child ended with", os.waitstatus_to_exitcode(status), flush=True)
    os._exit(0)
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("create", ["blocking", "later"])
def test_the_time_limit_of_a_childs_create_holds(sandbox: BackgroundSandbox, create: str) -> None:
    """The quota is full, a create of the parent waits for it, and the parent's pool and timers have run before."""
    sandbox.create_quota("team", "q", {"pods": "1"})
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM).replace("{create}", create), sandbox.url],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (done.stdout, done.returncode) == ("timed out\nthe child ended with 0\n", 0), done.stderr


MIDST = """
    import os, sys, threading
    from kubernetes import client
    from backoff_ctrl import GatedApiClient, waiting
    from backoff_ctrl.k8s.gate.clients.client import WaitTimeout

    core = client.CoreV1Api(GatedApiClient(client.Configuration(host=sys.argv[1])))
    spec = {"containers": [{"name": "c", "image": "i"}]}
    def create(name, timeout):
        try:
            with waiting(timeout=timeout):
                core.create_namespaced_pod("team", {"metadata": {"name": name}, "spec": spec})
        except WaitTimeout:
            print("timed out", flush=True)

    begun, goes_on = threading.Event(), threading.Event()
    class Slow:
        @staticmethod
        def find_spec(name, *_):  # what the watch of quotas loads
            if name == "aiohttp" and not begun.is_set():
                begun.set()
                goes_on.wait()
    sys.meta_path.insert(0, Slow)
    create("first", None)
    threading.Thread(target=create, args=("second", 600), daemon=True).start()
    begun.wait()
    os.register_at_fork(before=goes_on.set)  # the last one is called first; loading takes a tenth of a second more
    child = os.fork()
    if child == 0:
        create("third", 0.2)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    print("the child ended with", os.waitstatus_to_exitcode(status), flush=True)
    os._exit(0)
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_waits_for_what_is_being_loaded(sandbox: BackgroundSandbox) -> None:
    """A child could never load a module that a thread of its parent was loading: that thread keeps it locked."""
    sandbox.create_quota("team", "q", {"pods": "1"})
    program = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(MIDST), sandbox.url]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert (done.stdout, done.returncode) == ("timed out\nthe child ended with 0\n", 0), done.stderr


BOTH_ASK = """
    import os, sys
    from kubernetes import client
    from backoff_ctrl import GatedApiClient

    core = client.CoreV1Api(GatedApiClient(client.Configuration(host=sys.argv[1])))
    core.read_namespaced_pod("before", "team")  # its connection stays open, for the next call
    child = os.fork()
    core.read_namespaced_pod("parent" if child else "child", "team")
    if child == 0:
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_has_connections_of_its_own() -> None:
    """On a connection of both, each could read the other's answer, and the other one would wait in vain."""

    def answer(seen: Seen) -> Reply:
        return 200, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": seen.path.rpartition("/")[2]}}

    with scripted_server(answer) as script:
        program = [sys.executable, "-c", textwrap.dedent(BOTH_ASK), script.url]
        subprocess.run(program, timeout=PATIENCE, check=True)

    ports = {seen.path.rpartition("/")[2]: seen.port for seen in script.seen}
    assert ports["parent"] == ports["before"]
    assert ports["child"] != ports["parent"]
