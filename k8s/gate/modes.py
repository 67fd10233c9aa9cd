"""Enforce, shadow or off: how much of the gate a namespace gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Mode = Literal["enforce", "shadow", "off"]
MODES = ("enforce", "shadow", "off")


def mode_of(mode: Mode | Mapping[str, Mode] | Callable[[str], Mode]) -> Callable[[str], Mode]:
    """Turn one mode, modes by namespace (``"*"``: the others) or a function into a function. Raises ValueError."""
    if callable(mode):
        return mode
    if isinstance(mode, str):
        _check_mode(mode)
        return lambda _: mode
    for each in mode.values():
        _check_mode(each)
    others: Mode = mode.get("*", "enforce")
    return lambda namespace: mode.get(namespace, others)


def _check_mode(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
