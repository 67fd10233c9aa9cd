"""A time limit for a call that blocks and can't be cancelled, as one that waits for each chunk of an endless answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of a call, or raise its error. Raises ``TimeoutError`` after ``seconds`` and abandons the call.

    It goes on in a daemon thread, which doesn't keep the program from ending.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again below
            answer.set_exception(error)

    threading.Thread(target=run, name="backoff-ctrl-ask", daemon=True).start()
    if not wait([answer], timeout=seconds).done:
        raise TimeoutError(f"incomplete after {seconds:g} s")
    return answer.result()
