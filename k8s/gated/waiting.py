"""Options of a gated create, set around the call: the client's generated methods accept no arguments of ours.

with waiting(timeout=600, priority=5):
    core.create_namespaced_pod("team", pod)

Tasks of asyncio inherit them. Threads of a pool do not: set them inside the task, submit
``contextvars.copy_context().run``, or give them to the client, for all of its creates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from backoff_ctrl.k8s.creates.creation import Options, check_options
from backoff_ctrl.k8s.creates.wait import Wait
from backoff_ctrl.k8s.gate.gangs.admitted import AdmittedGang

DEFAULTS: Final = Options()
_IN_CALLBACK: ContextVar[bool] = ContextVar("backoff_ctrl_in_callback", default=False)
_GIVEN: ContextVar[Mapping[str, Any]] = ContextVar("backoff_ctrl_waiting", default=MappingProxyType({}))


@contextmanager
def waiting(
    *,
    timeout: float | None = None,
    priority: int | None = None,
    key: str | None = None,
    on_wait: Callable[[Wait], object] | None = None,
) -> Iterator[None]:
    """Set options for the creates in this block. An option that is not given keeps the value of the enclosing block.

    ``timeout``: seconds a create may wait; then it fails with an error that is both the client's ``ApiException`` and
    a ``TimeoutError``. ``priority``: an integer, higher is admitted first. ``key``: the idempotency key of one create:
    a repetition with the same key, in another process too, finds the object instead of creating a second.
    ``on_wait``: called with a ``Wait`` each time a create starts to wait in line; it must not block. Raises
    ``OptionError``, which is a ``ValueError`` and a ``TypeError``, at once for an invalid option.
    """
    token = _GIVEN.set({**_GIVEN.get(), **given_options(timeout, priority, key, on_wait)})
    try:
        yield
    finally:
        _GIVEN.reset(token)


@contextmanager
def drawing(gang: AdmittedGang) -> Iterator[None]:
    """Let the creates in this block draw from what is reserved for a gang, where they are members of it."""
    token = _GIVEN.set({**_GIVEN.get(), "gang": gang})
    try:
        yield
    finally:
        _GIVEN.reset(token)


def given_options(
    timeout: float | None = None,
    priority: int | None = None,
    key: str | None = None,
    on_wait: Callable[[Wait], object] | None = None,
) -> dict[str, Any]:
    """Return the options that are not None by name. Raises ``OptionError`` for a wrong one."""
    check_options(timeout, priority, key, on_wait)
    named = {"timeout": timeout, "priority": priority, "key": key, "on_wait": on_wait}
    return {name: value for name, value in named.items() if value is not None}


def current_options(defaults: Options = DEFAULTS) -> Options:
    """Return the options of the caller's context, else the defaults. Pool threads do not inherit the context."""
    given = _GIVEN.get()
    options = replace(defaults, **given) if given else defaults
    if options.on_wait is None:
        return options
    if _IN_CALLBACK.get():
        return replace(options, key=None, on_wait=None)
    return replace(options, on_wait=partial(_call_back, options.on_wait))


def _call_back(on_wait: Callable[[Wait], object], wait: Wait) -> None:
    """Call back. What the callback itself creates has neither this callback nor the key, or it would nest for ever."""
    token = _IN_CALLBACK.set(True)
    try:
        on_wait(wait)
    finally:
        _IN_CALLBACK.reset(token)
