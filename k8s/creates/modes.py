"""The modes of a namespace: enforce, shadow (decide and count, but send everything) or off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from backoff_ctrl.k8s.creates.creation import OptionError

Mode = Literal["enforce", "shadow", "off"]
Modes: TypeAlias = Mode | Mapping[str, Mode] | Callable[[str], Mode]
"""One mode for all, modes by namespace (``"*"`` for the others), or a function of the namespace."""
MODES: Final[tuple[Mode, ...]] = ("enforce", "shadow", "off")


def mode_of(mode: Modes) -> Callable[[str], Mode]:
    """Return a function of the namespace, whichever way the mode was given (``"*"``: the other namespaces).

    Raises ``OptionError`` for an unknown mode; so does the returned function if the caller's own returns one.
    """
    if isinstance(mode, str):
        _check_mode(mode)
        return lambda _: mode
    if isinstance(mode, Mapping):
        modes = dict(mode)
        for each in modes.values():
            _check_mode(each)
        others: Mode = modes.get("*", "enforce")
        return lambda namespace: modes.get(namespace, others)
    if not callable(mode):
        _check_mode(mode)
    return lambda namespace: _checked(mode(namespace))


def _checked(mode: Mode) -> Mode:
    _check_mode(mode)
    return mode


def _check_mode(mode: Any) -> None:
    if mode not in MODES:
        raise OptionError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
