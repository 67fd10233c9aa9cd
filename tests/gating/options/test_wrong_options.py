"""Wrong options are errors at once, by name, before anything is sent: keys, time limits, callbacks, modes."""

from __future__ import annotations

import math
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from backoff_ctrl import Gate, GatedApiClient, OptionError, WaitedTooLong, waiting
from backoff_ctrl.k8s.gate.creates.creation import Creation
from tests.kit.gated_creates import Met, core_of, fill, pod
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox


async def asynchronous(_: object) -> None:
    """No callback: nobody would await it."""


def _title(wrong: dict[str, Any]) -> str:
    return ", ".join(f"{name}={getattr(value, '__name__', value)!r}" for name, value in wrong.items())


VALUES: dict[str, tuple[Any, ...]] = {
    "timeout": (-1, math.nan, "5", True, []),
    "priority": (1.5, True, "high", 2**40),
    "on_wait": ("print", 5, asynchronous),
}
WRONG = [{option: value} for option, values in VALUES.items() for value in values]


@pytest.mark.parametrize("wrong", [*WRONG, {"key": ""}, {"key": " "}, {"key": 17}, {"key": b"k"}], ids=_title)
def test_a_wrong_option_is_refused_where_it_is_given(wrong: Any) -> None:
    """Callers may catch ``ValueError`` or ``TypeError``; the sentence says what is right."""
    for kind in (OptionError, ValueError, TypeError):
        with pytest.raises(kind, match=f"^{next(iter(wrong))} must be "), waiting(**wrong):
            pass
    with pytest.raises(OptionError):
        Creation("s", "c", "team", "pods", {}, **wrong)


@pytest.mark.parametrize("wrong", WRONG, ids=_title)
def test_a_client_refuses_it_too(wrong: Any) -> None:
    """It would fail at the first create."""
    with pytest.raises(OptionError, match="must be"):
        GatedApiClient(client.Configuration(host="http://127.0.0.1:9"), **wrong)


@pytest.mark.parametrize("mode", ["on", {"team": "enforced"}, 5])
def test_a_wrong_mode_is_refused_where_it_is_given(mode: Any) -> None:
    """By a gate, and by a client."""
    with pytest.raises(OptionError, match="must be one of enforce, shadow, off, not"):
        Gate(mode=mode)
    with pytest.raises(OptionError, match="must be one of enforce, shadow, off, not"):
        GatedApiClient(client.Configuration(host="http://127.0.0.1:9"), mode=mode)


def test_infinity_is_no_limit(sandbox: BackgroundSandbox, core: Any) -> None:
    """It overrides a limit from outside the block."""
    name, met, ends = fill(sandbox, core), Met(), []

    def work() -> None:
        with waiting(timeout=0.01), waiting(timeout=math.inf, on_wait=met):
            ends.append(core.create_namespaced_pod("team", pod("second")).metadata.name)

    thread = threading.Thread(target=work)
    thread.start()
    assert met.wait(PATIENCE)
    core.delete_namespaced_pod(name, "team", grace_period_seconds=0)
    thread.join(PATIENCE)
    assert ends == ["second"]


def test_options_of_a_client_hold_in_all_threads_and_those_of_a_block_only_in_its_own(
    sandbox: BackgroundSandbox, core: Any
) -> None:
    """``copy_context().run`` takes a block's options into another thread."""
    fill(sandbox, core)
    caught: list[BaseException] = []

    def work(core: Any) -> None:
        with pytest.raises(WaitedTooLong) as error:
            core.create_namespaced_pod("team", pod())
        caught.append(error.value)

    configuration = client.Configuration(host=sandbox.url)
    with GatedApiClient(configuration, gate=Gate(), timeout=0.01) as hurried:
        _in_thread(work, core_of(hurried))
        with waiting(timeout=0.02):
            _in_thread(copy_context().run, work, core)
            work(core_of(hurried))

    assert [str(each).partition(", the")[0][-12:] for each in caught] == [
        "after 0.01 s",
        "after 0.02 s",
        "after 0.02 s",
    ]


def _in_thread(work: Any, *arguments: Any) -> None:
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    thread.join(PATIENCE)
