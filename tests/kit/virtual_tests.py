"""Tests whose clock is virtual: what takes hours there takes a moment here."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec

from backoff_ctrl.k8s.lab.replay.virtual_time import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

P = ParamSpec("P")


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test on a loop that skips the time in which nothing happens."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run
