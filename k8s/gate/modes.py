"""The modes of a namespace: enforce, shadow (decide and count, but send everything) or off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Mode = Literal["enforce", "shadow", "off"]
MODES = ("enforce", "shadow", "off")


def mode_of(mode: Mode | Mapping[str, Mode] | Callable[[str], Mode]) -> Callable[[str], Mode]:
    """Return a function of the namespace, whichever way the mode was given (``"*"``: the other namespaces).

    Raises ``ValueError`` for an unknown mode.
    """
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
