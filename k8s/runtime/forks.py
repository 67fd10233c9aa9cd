"""The one fork hook of this package: what is renewed in a forked child, in the order in which it was registered."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

_RENEWALS: list[Callable[[], Callable[[], object] | None]] = []


def after_fork(renew: Callable[[], object]) -> None:
    """Call ``renew`` in each forked child. An object whose method it is, is not kept alive by that."""
    bound: Any = getattr(renew, "__self__", None)
    _RENEWALS[:] = [each for each in _RENEWALS if each() is not None]
    _RENEWALS.append((lambda: renew) if bound is None else weakref.WeakMethod(renew))


def _renew() -> None:
    for each in _RENEWALS:
        renew = each()
        if renew is not None:
            renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
