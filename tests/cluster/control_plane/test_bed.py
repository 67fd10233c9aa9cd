"""The test bed: a control plane that comes up, lets its users in, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.control_plane.bed import COMPONENTS, Bed, BedError
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

ROOT = Path(__file__).parents[3]
POD = {"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "main", "image": "busybox:1"}]}}
CORE = "/api/v1/namespaces"

MAY = [
    ("creator", "POST", "pods", 201),
    ("creator", "GET", "pods", 200),
    ("creator", "GET", "resourcequotas", 200),
    ("creator", "POST", "resourcequotas", 403),
    ("creator", "GET", "secrets", 403),
    ("learner", "POST", "pods", 201),
    ("learner", "GET", "pods", 200),
    ("learner", "GET", "resourcequotas", 403),
    ("nobody", "POST", "pods", 403),
    ("nobody", "GET", "pods", 403),
    ("tester", "GET", "secrets", 200),
    ("admin", "GET", "secrets", 200),
]


@pytest.mark.parametrize(("user", "method", "resource", "status"), MAY)
async def test_each_user_may_do_what_a_user_of_that_name_may(
    kubernetes: Server, real_namespace: str, user: str, method: str, resource: str, status: int
) -> None:
    """Creators, learners and the rest have the permissions that real ones have, and no more."""
    body = POD if resource == "pods" else {"metadata": {"generateName": "q-"}, "spec": {"hard": {}}}
    async with Api(kubernetes, user) as api:
        reply = await api.call(method, f"{CORE}/{real_namespace}/{resource}", body if method == "POST" else None)
        assert reply.status == status, reply.text
        if user not in {"admin", "tester"}:
            assert (await api.post(CORE, {"metadata": {"name": f"of-{user}"}})).status == 403


def test_kubectl_finds_the_server_with_its_kubeconfig(kubernetes: Server, binaries: Binaries) -> None:
    """The kubeconfig of a user is all that kubectl needs, and both have the same version."""
    command = [str(binaries.kubectl), f"--kubeconfig={kubernetes.kubeconfig('nobody')}", "version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    versions = re.findall(r"^(?:Client|Server) Version: (\S+)$", done.stdout, re.MULTILINE)
    assert versions == [f"v{binaries.recipe.version}"] * 2


@pytest.mark.scheduled
async def test_a_restarted_server_remembers_its_objects(binaries: Binaries) -> None:
    """Stopped or crashed and started again, a bed has the same address, users and objects, and quotas work on."""
    with Bed(binaries, kcm_qps=500, api_flags=["--default-watch-cache-size=50"]) as bed:
        async with Api(bed.server) as api:
            await api.post(CORE, {"metadata": {"name": "team"}})
            await api.post(f"{CORE}/team/secrets", {"metadata": {"name": "kept"}})
        bed.stop("kube-apiserver", grace=0)
        bed.start("kube-apiserver")
        bed.stop("kube-controller-manager")
        bed.start("kube-controller-manager")
        async with Api(bed.server) as api:
            assert (await api.get(f"{CORE}/team/secrets/kept")).status == 200
            quota = {"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "9"}}}
            await api.post(f"{CORE}/team/resourcequotas", quota)
            await api.until(
                f"{CORE}/team/resourcequotas/q", lambda seen: seen.get("status", {}).get("used") == {"secrets": "1"}
            )
        pids = [bed.pid(component) for component in COMPONENTS]
        folder = bed.server.kubeconfig().parent
    assert not [pid for pid in pids if _lives(pid)]
    assert not folder.exists()


def test_a_bed_that_cannot_start_shows_what_its_components_said(binaries: Binaries, tmp_path: Path) -> None:
    """The error ends with the last lines of the logs, the whole ones are kept, and nothing runs on."""
    with pytest.raises(BedError) as caught, Bed(binaries, api_flags=["--no-such-flag"], logs=tmp_path / "logs"):
        pytest.fail("it came up")
    text = str(caught.value)
    assert text.startswith("kube-apiserver ended with code 1 while the bed waited for kube-apiserver to be ready\n")
    assert "Error: unknown flag: --no-such-flag" in text
    assert text.endswith(f"the whole logs are in {tmp_path / 'logs'}")
    assert "unknown flag" in (tmp_path / "logs" / "kube-apiserver.log").read_text()


@pytest.fixture
def person(binaries: Binaries) -> Iterator[subprocess.Popen[str]]:
    """What runs under `make cluster`, ready, and gone at the end whatever the test does."""
    command = [sys.executable, "-m", "tests.cluster"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        yield process
        process.kill()


@pytest.mark.scheduled
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_process_that_started_it(person: subprocess.Popen[str], end: signal.Signals) -> None:
    """Whether Ctrl-C, a polite end or a crash: no process and no file is left, and the address is free again."""
    assert person.stdout is not None
    kubeconfig = Path(re.fullmatch(r"export KUBECONFIG=(\S+)\n", person.stdout.readline()).group(1))  # type: ignore[union-attr]
    port = int(re.search(r"server: https://127.0.0.1:(\d+)", kubeconfig.read_text()).group(1))  # type: ignore[union-attr]
    assert len(_working_in(kubeconfig.parent)) == len(COMPONENTS)

    person.send_signal(end)

    assert person.wait(PATIENCE) == (-signal.SIGKILL if end == signal.SIGKILL else 0)
    guardian_is_done = person.stdout.read()  # the guardian holds this pipe open until it is done
    assert guardian_is_done == ""
    assert not _working_in(kubeconfig.parent)
    assert not kubeconfig.parent.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _working_in(folder: Path) -> list[str]:
    """The processes whose command line names the folder; the guardian itself is not counted."""
    done = subprocess.run(["ps", "-Awwo", "args"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if f"{folder}/" in line]
