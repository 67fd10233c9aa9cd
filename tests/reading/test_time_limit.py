"""A call that blocks has a time limit: its result, its error, or ``TimeoutError``."""

from __future__ import annotations

import threading

import pytest

from backoff_ctrl.k8s.kube.time_limit import within


def test_the_result_and_the_error_of_a_call_are_its_own() -> None:
    def fail() -> None:
        raise KeyError("absent")

    assert within(60, lambda: 7) == 7
    with pytest.raises(KeyError, match="absent"):
        within(60, fail)


def test_a_call_that_hangs_is_abandoned_in_a_thread_that_does_not_keep_the_program_from_ending() -> None:
    begun, ends = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def hang() -> None:
        threads.append(threading.current_thread())
        begun.set()
        ends.wait()

    with pytest.raises(TimeoutError, match=r"incomplete after 0\.05 s"):
        within(0.05, hang)
    begun.wait()
    ends.set()
    assert threads[0].daemon
