"""A task of the type signal is paused until its signal comes, and ends by its time limit if none does."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.executing import check
from backoff_ctrl.k8s.tasks.model import TaskEvent, TaskStatus, shown
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.signal import SignalPlugin, flaw_of_signal
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.stepping import Stepper
from tests.tasks.tasks_written import NAMESPACE, until, wish
from tests.tasks.webapi.test_core_plugins import ended, managed

BEGUN = 1_790_000_000.0
NOWHERE = Configuration(host="http://127.0.0.1:1")


async def test_each_way_out_of_the_pause(tmp_path: Path) -> None:
    """Signalled while it waits, before it begins, by its own manifest; and aborted. No cluster is asked."""
    async with SqliteStore(tmp_path / "t.db") as store, managed(store, registry()):

        def ask(name: str, **spec: object) -> object:
            return wish(name, type="signal", container=None, **spec)

        await store.create([ask("now"), ask("early", needs=["now"]), ask("given", signal=0), ask("never")])  # type: ignore[list-item]
        await store.signal(NAMESPACE, "early", [None])

        async def paused() -> bool:
            tasks = [await store.get(NAMESPACE, name) for name in ("now", "never")]
            return all(task.status.phase == "Paused" for task in tasks)

        await until(paused)
        assert "backoff-ctrl task signal now" in (await store.get(NAMESPACE, "now")).status.reason
        await store.signal(NAMESPACE, "now", {"ok": True})
        await store.request_abort(NAMESPACE, "never", "ada")
        over = {name: await ended(store, name) for name in ("now", "early", "given", "never")}
    assert {name: (status.phase, status.outputs) for name, status in over.items()} == {
        "now": ("Success", {"value": {"ok": True}}),
        "early": ("Success", {"value": [None]}),
        "given": ("Success", {"value": 0}),
        "never": ("Aborted", None),
    }
    assert "Paused" not in [event.phase for event in over["early"].history]
    asked = r"aborted: its signal is no longer waited for; asked for by ada at 2\S+"
    assert re.fullmatch(asked, over["never"].reason)
    assert over["never"].history[-1].reason == over["never"].reason


@pytest.mark.parametrize(
    ("after", "limit", "signal", "ends"),
    [
        (59, "1m", None, ("Paused", None)),
        (61, "1m", None, ("PermanentFailure", "ConditionTimedOut")),
        (10**7, None, None, ("Paused", None)),
        (59, "1m", True, ("Success", None)),
        (61, "1m", True, ("Success", None)),
    ],
)
async def test_its_timeout_counts_from_the_pause(
    tmp_path: Path, after: float, limit: str | None, signal: object, ends: tuple[str, str | None]
) -> None:
    """It is the user's failure, and not retried. A signal that is there counts, however late it is looked at."""
    more = {} if limit is None else {"timeout": limit}
    async with SqliteStore(tmp_path / "t.db") as store:
        ((task, _),) = await store.create([wish("s", type="signal", container=None, retries={"user": 3}, **more)])
        if signal is not None:
            task = await store.signal(NAMESPACE, "s", signal)
    paused = TaskEvent("Paused", shown(BEGUN), 0)
    status = TaskStatus(phase="Paused", since=paused.at, plugin_state={"stage": "Paused"}, history=[paused])
    stepper = Stepper(SignalPlugin(), "s", K8sPluginConfig, lambda: BEGUN + after, random.Random(1))
    step = await stepper.step(task.with_status(status, 1), {})
    assert (step.status.phase, step.status.code) == ends
    if ends[0] == "Paused" and limit is not None:
        assert step.again is not None
        assert step.again <= 60 - after + 0.5


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"type": "signal", "container": None, "signal": "x" * 20_000},
            r"spec\.signal: it can't be kept \(20013 bytes as JSON",
        ),
        ({"signal": True}, r"spec\.signal: only tasks of the type signal take one"),
        ({"type": "signal", "container": None, "signalled": {}}, r"spec\.signalled: it is written with spec\.signal"),
        ({"aborted": {}}, r"spec\.aborted: it is written with spec\.abort"),
    ],
)
def test_a_wrong_signal_is_refused_before_it_is_stored(spec: dict[str, object], said: str) -> None:
    with pytest.raises(TaskSpecError, match=said):
        check(wish("s", **spec), registry(), K8sPluginConfig())


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        ([[[]]], ""),
        (2**63 - 1, ""),
        (2**63, "a whole number of more than 64 bits"),
        (float("inf"), "the number inf"),
        (json.loads("[" * 49 + "]" * 49), ""),
        (json.loads("[" * 50 + "]" * 50), "more than 50 levels in one another"),
        (json.loads("[" * 300 + "]" * 300), "more than 50 levels in one another"),
        pytest.param("x" * 20_000, "20013 bytes as JSON, more than 16384", id="long"),
        ("\ud800", "can't be stored as JSON"),
    ],
)
def test_a_signal_can_be_kept_as_an_output(value: object, flaw: str) -> None:
    """In 50 levels together with the output that it becomes, in 64 bits, as finite numbers."""
    said = flaw_of_signal(value)
    assert flaw in said
    assert bool(said) == bool(flaw)
