"""Options of a gated create: generated client methods validate their arguments, so options go around them.

with waiting(timeout=600, priority=5):
    core.create_namespaced_pod("team", pod)
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.creates.creation import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_NONE = Options()
_OPTIONS: ContextVar[Options] = ContextVar("backoff_ctrl_waiting", default=_NONE)


@contextmanager
def waiting(
    *,
    timeout: float | None = None,
    priority: int | None = None,
    key: str | None = None,
    on_wait: Callable[[Any], object] | None = None,
) -> Iterator[None]:
    """Give the creates in this block options; what is not given stays as the block around it has it.

    ``timeout``: seconds a create may wait before an error that is the client's ApiException and ``TimeoutError``.
    ``priority``: higher goes first. ``key``: the idempotency key of one create, which makes a retry of it, in
    another process too, find its object instead of making a second. ``on_wait``: called with the engine's
    Explanation (or None) whenever a create stands in line. Raises ``ValueError`` and ``TypeError`` at once.
    """
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout must be seconds, 0 or more, not {timeout!r}")
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise TypeError(f"priority must be a whole number, not {priority!r}")
    given: dict[str, Any] = {"timeout": timeout, "priority": priority, "key": key, "on_wait": on_wait}
    options = replace(_OPTIONS.get(), **{name: value for name, value in given.items() if value is not None})
    token = _OPTIONS.set(options)
    try:
        yield
    finally:
        _OPTIONS.reset(token)


def current_options() -> Options:
    """Return the options of the caller's context; threads of a pool do not inherit it, so ask in the call itself."""
    return _OPTIONS.get()
