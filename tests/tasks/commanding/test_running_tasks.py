"""``backoff-ctrl task run`` on the sandbox: to the end, left with Ctrl-C, killed and taken up again, aborted."""

from __future__ import annotations

import getpass
import json
import re
import signal
import socket
import subprocess
from collections import Counter
from typing import Any

import pytest

from tests.kit.gated_creates import pod
from tests.kit.patience import PATIENCE
from tests.serve.serving import serving, until
from tests.status.asking import ask
from tests.tasks.commanding.conftest import COMMAND, Desk, several
from tests.tasks.tasks_written import NAMESPACE, manifest

pytestmark = pytest.mark.long


def uids(desk: Desk) -> Counter[str]:
    return Counter(pod.metadata.labels["backoff-ctrl.dev/task-uid"] for pod in desk.pods())


def in_line(desk: Desk) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in desk.listed().items() if each["wait"] is not None}


def test_tasks_wait_for_quota_and_succeed(desk: Desk) -> None:
    """Five tasks and a quota of two pods: a line for each change, all succeed, one pod each, none is refused."""
    said = desk.task("run", "-f", desk.write(*several(4), manifest("last", needs=["t0"])))
    assert said.endswith("5 tasks: 5 Success\n")
    assert "WaitingForResources  quota q: pods asks 1, 0 of 2 left; place" in said
    listed = desk.listed()
    assert {each["name"]: each for each in json.loads(desk.task("list", "--json"))["items"]} == listed
    assert {each["phase"] for each in listed.values()} == {"Success"}
    assert all(not each["unfinished"] and each["ended_at"] for each in listed.values())
    assert uids(desk) == Counter(each["uid"] for each in listed.values())
    shown = desk.task("show", "last", "-n", NAMESPACE)
    assert "needs task t0" in shown
    assert f"object     Pod last-{listed['last']['uid'][:8]}-0 (v1)" in shown
    again = json.loads(desk.task("run", "-f", desk.write(*several(4)), "--json"))  # attaches: nothing is made again
    assert {each["uid"] for each in again["items"]} <= {each["uid"] for each in listed.values()}
    assert sum(uids(desk).values()) == 5
    assert desk.task("run") == "all tasks have ended: backoff-ctrl task run -f FILE runs more\n"


def test_ctrl_c_leaves_and_the_next_run_goes_on(lasting: Desk) -> None:
    """It says how to come back; the pods run on; another process lists and shows meanwhile; none is made twice."""
    file = lasting.write(*several(3))
    with lasting.running("-f", file) as process:
        until(lambda: len(lasting.pods()) == 2)
        until(lambda: len(in_line(lasting)) == 1)
        until(lambda: sum(bool(each["object"]) for each in lasting.listed().values()) == 2)  # both pods are known
        (waiting,) = in_line(lasting).values()
        assert (waiting["wait"]["quota"], waiting["wait"]["place"]) == ("q", 1)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1, told
        assert "3 tasks are unfinished: 2 run on in the cluster, 1 waits until you continue." in told
        place = f"--store {lasting.store} --apiserver {lasting.sandbox.url}"
        assert f"Continue with: backoff-ctrl task run {place}" in told
    before = {pod.metadata.uid for pod in lasting.pods()}
    assert len(before) == 2
    with lasting.running() as process:
        until(lambda: all(each["phase"] != "NotReady" for each in lasting.listed().values()))
        lasting.core.delete_namespaced_resource_quota("q", NAMESPACE)
        until(lambda: len(lasting.pods()) == 3)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    assert before < {pod.metadata.uid for pod in lasting.pods()}
    assert set(uids(lasting).values()) == {1}


def test_a_killed_run_is_taken_up_again(desk: Desk) -> None:
    """SIGKILL again and again on the way: every task succeeds in the end, and has one pod."""
    file = desk.write(*several(12))
    kills = 0
    while kills < 4:
        with desk.running("-f", file) as process:
            until(lambda kills=kills: len(desk.pods()) > 2 * kills or process.poll() is not None)  # type: ignore[misc]
            process.kill()
            kills += 1
    said = desk.task("run", "-f", file)
    assert said.endswith("12 tasks: 12 Success\n")
    listed = desk.listed()
    assert uids(desk) == Counter(each["uid"] for each in listed.values())
    assert {each["attempt"] for each in listed.values()} == {0}


def test_an_abort_is_carried_out_by_whoever_can(lasting: Desk) -> None:
    """By the manager that runs, else by the command itself; of a task that waits nothing is made."""
    with lasting.running("-f", lasting.write(*several(3))) as process:
        until(lambda: len(lasting.pods()) == 2)
        until(lambda: len(in_line(lasting)) == 1)
        (waiting,) = in_line(lasting)
        said = lasting.task("abort", waiting)
        assert said == f"task {NAMESPACE}/{waiting} has ended: Aborted\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    (first, second) = (name for name, each in lasting.listed().items() if each["unfinished"])
    assert lasting.task("abort", first) == f"task {NAMESPACE}/{first} has ended: Aborted\n"
    until(lambda: len([pod for pod in lasting.pods() if not pod.metadata.deletion_timestamp]) == 1)
    assert lasting.listed()[second]["unfinished"]
    asked = {name: each["reason"].partition("asked for ")[2] for name, each in lasting.listed().items()}
    assert asked[waiting].startswith(f"by {getpass.getuser()} at 2")
    assert asked[first].startswith(f"by {getpass.getuser()} at 2")
    assert "has not ended: abort it first" in lasting.failing("delete", second)
    assert lasting.task("delete", first) == f"task {NAMESPACE}/{first} is forgotten\n"
    assert first not in lasting.listed()
    assert "there is no task nobody" in lasting.failing("abort", "nobody")


def test_abort_on_exit_takes_everything_along(lasting: Desk) -> None:
    """Ctrl-C aborts all that was run, and waits for it."""
    with lasting.running("-f", lasting.write(*several(3)), "--abort-on-exit") as process:
        until(lambda: len(lasting.pods()) == 2)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1, told
        assert "unfinished" not in told  # there is nothing to come back to
    assert {each["phase"] for each in lasting.listed().values()} == {"Aborted"}
    assert all(f"asked for by {getpass.getuser()} at 2" in each["reason"] for each in lasting.listed().values())
    until(lambda: not lasting.pods())


def test_two_runs_share_a_store(desk: Desk) -> None:
    """The second carries nothing out itself, and ends with its own tasks; the first one does their work."""
    with desk.running("-f", desk.write(*several(6))) as first:
        until(lambda: desk.store.exists() and len(desk.pods()) >= 2)
        said = desk.task("run", "-f", desk.write(manifest("mine")))
        assert said.endswith("1 task: 1 Success\n")
        out, err = first.communicate(timeout=PATIENCE)
        assert (first.returncode, out.endswith("6 tasks: 6 Success\n")) == (0, True), err
    assert set(uids(desk).values()) == {1}
    assert len(desk.pods()) == 7


def test_what_is_refused_is_named_and_nothing_is_stored(desk: Desk) -> None:
    """Unknown type, no image, a typo, a circle, another spec: exit code 2, and no task of the file."""
    desk.task("run", "-f", desk.write(manifest("there")))
    cases = {
        "spec.container": manifest("x", container=None),
        "spec.retries.usr: unknown; did you mean user?": manifest("x", retries={"usr": 1}),
        "spec.container.comand: unknown; did you mean command?": manifest(
            "x", container={"image": "x", "comand": ["a"]}
        ),
        "spec.resources.request: unknown; did you mean requests?": manifest("x", resources={"request": {"memory": 1}}),
        "b -> c -> b": (manifest("b", needs=["c"]), manifest("c", needs=["b"])),
        "task team/there exists with another spec (spec.priority is not set there": manifest("there", priority=5),
        "apiVersion: this is v1 Pod": {"apiVersion": "v1", "kind": "Pod"},
    }
    for said, wrong in cases.items():
        wrongs = wrong if isinstance(wrong, tuple) else (wrong,)
        assert said in desk.task("run", "-f", desk.write(manifest("good"), *wrongs), code=2)
    assert set(desk.listed()) == {"there"}
    assert "cannot be read" in desk.task("run", "-f", "/nowhere.yaml", code=2)
    desk.store.write_text("not a database, but long enough to be looked at" * 100)
    assert "is no store of tasks" in desk.task("list", code=2)


def test_a_failed_task_is_exit_code_1(desk: Desk) -> None:
    """With its reason in the list, for a pod that asks for more than the quota can ever give."""
    desk.sandbox.create_quota(NAMESPACE, "cpu", {"requests.cpu": "1"})
    large = {"image": "busybox", "resources": {"requests": {"cpu": "4"}}}
    small = {"image": "busybox", "resources": {"requests": {"cpu": "100m"}}}
    file = desk.write(manifest("large", container=large), manifest("small", container=small),
                      manifest("after", container=small, needs=["large"]))  # fmt: skip
    desk.task("run", "-f", file, code=1)
    listed = desk.listed()
    assert (listed["small"]["phase"], listed["large"]["phase"]) == ("Success", "PermanentFailure")
    assert listed["after"]["code"] == "DependencyFailed"
    assert len(desk.pods()) == 1


def test_the_gate_of_a_run_can_be_asked(lasting: Desk) -> None:
    """``--admin``: who waits, at an address of this machine alone."""
    assert "--admin" in lasting.task("run", "--admin", "0.0.0.0:9095", code=2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with lasting.running("-f", lasting.write(*several(3)), "--admin", f"127.0.0.1:{port}"):
        until(lambda: len(in_line(lasting)) == 1)
        (waiting,) = in_line(lasting)
        text = ask(f"http://127.0.0.1:{port}", "/metrics").body.decode()
        assert 'backoff_ctrl_tasks{phase="WaitingForResources"} 1' in text
        (told,) = ask(f"http://127.0.0.1:{port}", f"/v1/waiting?namespace={NAMESPACE}").json["items"]
        assert told["name"].startswith(f"{waiting}-")


def test_what_has_ended_is_not_run_again_and_says_how_it_would_be(desk: Desk) -> None:
    """The same file after a failure: how long ago it ended, and the command that runs it again."""
    desk.sandbox.create_quota(NAMESPACE, "cpu", {"requests.cpu": "1"})
    file = desk.write(manifest("web", container={"image": "busybox", "resources": {"requests": {"cpu": "4"}}}))
    desk.task("run", "-f", file, code=1)
    said = desk.task("run", "-f", file, code=1)
    place = f"--store {desk.store} --apiserver {desk.sandbox.url}"
    again = f"`backoff-ctrl task run --again web -n {NAMESPACE} {place}`"
    assert re.search(rf"ended \d+ s ago; {re.escape(again)} to run it again \(ResourceRequestsExceedLimits: ", said), (
        said
    )
    desk.task("delete", "web")
    desk.core.delete_namespaced_resource_quota("cpu", NAMESPACE)
    assert "to run it again" not in desk.task("run", "-f", file)
    assert re.search(r"team/web is Success, ended \d+ s ago; ", desk.task("run", "-f", file))


def test_the_log_of_a_task_is_read_from_its_pods(desk: Desk) -> None:
    """While somebody runs the tasks and afterwards; where there is none, why, and what to do."""
    file = desk.write(manifest("one"), manifest("after", needs=["never"]))
    with desk.running("-f", file):
        until(lambda: desk.store.exists() and desk.listed().get("one", {}).get("phase") == "Success")
        container = desk.pods()[0].spec.containers[0].name
        for options in ((), ("-f",), ("-c", container), ("-n", NAMESPACE)):
            assert "there is no container, and so no log." in desk.task("logs", "one", *options)
        assert "has no object yet, it is NotReady: wait for it with -f" in desk.failing("logs", "after")
        assert "container none is not valid" in desk.failing("logs", "one", "-c", "none")
    assert "there is no task nobody" in desk.failing("logs", "nobody")
    desk.core.delete_namespaced_pod(desk.pods()[0].metadata.name, NAMESPACE, grace_period_seconds=0)
    assert "a log is deleted with its pod" in desk.failing("logs", "one")


def test_while_a_retry_waits_the_log_of_the_attempt_before_is_printed(lasting: Desk) -> None:
    """Here and at a server; stdout has the log alone, and stderr says whose it is, and why."""
    with lasting.running("-f", lasting.write(manifest("one", retries={"user": 1}))):
        until(lambda: lasting.store.exists() and lasting.listed().get("one", {}).get("phase") == "Running")
        (first,) = lasting.pods()
        lasting.core.create_namespaced_pod(NAMESPACE, pod("other"))
        hard = {"spec": {"hard": {"pods": "1"}}}
        lasting.core.patch_namespaced_resource_quota("q", NAMESPACE, hard)
        lasting.core.patch_namespaced_pod_status(first.metadata.name, NAMESPACE, {"status": {"phase": "Failed"}})
        until(lambda: lasting.listed()["one"]["attempt"] == 1 and lasting.listed()["one"]["wait"])
        note = "task team/one has no object yet, it is WaitingForResources; this is the log of attempt 1\n"
        words = lasting.words("logs", "one")
        with serving("--apiserver", lasting.sandbox.url, "--store", str(lasting.store), quiet=False) as url:
            for each in (words, [*COMMAND, "logs", "one", "-n", NAMESPACE, "--gate", url]):
                done = subprocess.run(each, capture_output=True, text=True, timeout=PATIENCE, check=False)
                assert (done.returncode, done.stderr) == (0, note), done
                assert "there is no container, and so no log." in done.stdout
        assert "no object yet" not in lasting.task("logs", "one")


def test_a_task_runs_again_with_other_resources(desk: Desk) -> None:
    """What never fits fits with less: one command, under the same name; a wrong change leaves the task as it was."""
    desk.sandbox.create_quota(NAMESPACE, "cpu", {"requests.cpu": "1"})
    cpu = {"image": "busybox", "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}}
    desk.task("run", "-f", desk.write(manifest("web", container=cpu)), code=1)
    first = desk.listed()["web"]["uid"]
    path = "spec.container.resources"
    wrong = desk.task("run", "--again", "web", "--set", "spec.retries.usr=1", code=2)
    assert "spec.retries.usr: unknown; did you mean user?" in wrong
    assert "fields of a task are changed with --again" in desk.task("run", "--set", "spec.priority=1", code=2)
    assert desk.listed()["web"]["uid"] == first
    desk.task("run", "--again", "web", "--set", f"{path}.requests.cpu=500m", "--set", f"{path}.limits.cpu=1")
    web = desk.listed()["web"]
    assert (web["phase"], web["uid"] != first) == ("Success", True)


def test_a_signal_ends_the_wait_of_a_task_and_of_those_that_need_it(desk: Desk) -> None:
    """Given by another command, while ``run`` carries them out; the value is the output that ``show`` prints."""
    waits = manifest("approve", type="signal", container=None)
    with desk.running("-f", desk.write(waits, manifest("after", needs=["approve"]))) as running:
        while desk.listed().get("approve", {}).get("phase") != "Paused":
            assert running.poll() is None
        assert "Paused" in desk.task("list")
        assert "not JSON" in desk.task("signal", "approve", "--value", "yes", code=2)
        desk.task("signal", "approve", "--value", '{"by": "ada"}')
        assert running.wait(PATIENCE) == 0
    shown = desk.task("show", "approve")
    assert 'output     value: {"by": "ada"}' in shown
    assert f"it was signalled by {getpass.getuser()} at 2" in shown
    assert "has had its signal" in desk.failing("signal", "approve", "--value", "1")
    assert "only tasks of the type signal take signals" in desk.failing("signal", "after")
