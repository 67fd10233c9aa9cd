"""Options of a gated create, set around the call: the client's generated methods accept no arguments of ours.

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
    """Set options for the creates in this block. An option that is not given keeps the value of the enclosing block.

    ``timeout``: seconds a create may wait; then it fails with an error that is both the client's ``ApiException`` and
    a ``TimeoutError``. ``priority``: an integer, higher is admitted first. ``key``: the idempotency key of one create:
    a repetition with the same key, in another process too, finds the object instead of creating a second.
    ``on_wait``: called with the engine's Explanation (or None) each time a create starts to wait in line. Raises
    ``ValueError`` or ``TypeError`` at once for an invalid option.
    """
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout must be a number of seconds, 0 or more, not {timeout!r}")
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise TypeError(f"priority must be an integer, not {priority!r}")
    given: dict[str, Any] = {"timeout": timeout, "priority": priority, "key": key, "on_wait": on_wait}
    options = replace(_OPTIONS.get(), **{name: value for name, value in given.items() if value is not None})
    token = _OPTIONS.set(options)
    try:
        yield
    finally:
        _OPTIONS.reset(token)


def current_options() -> Options:
    """Return the options of the caller's context. Pool threads do not inherit it: call this in the caller's thread."""
    return _OPTIONS.get()
