"""The shapes of what ``serve`` alone answers: pages that say which gates they lack, and what gates say of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from backoff_ctrl.k8s.status.shapes.documents import Ceiling, Gate, Mode, Overload

Item = TypeVar("Item")


@dataclass
class Unreachable:
    """A gate that does not answer."""

    gate: str
    """Its URL."""
    why: str


@dataclass
class SeenPage(Generic[Item]):
    """A part of a list, as far as the gates that answer tell it. ``next`` is the cursor of the following part."""

    as_of: str
    items: list[Item]
    next: str | None = None
    unreachable: list[Unreachable] = field(default_factory=list)
    note: str | None = None
    """That no gate is connected; else null."""


@dataclass
class SeenCeiling(Ceiling):
    """One ceiling, and the gate that told it."""

    gate_url: str | None = None
    """Null: ``serve`` watches the quota itself. Else the gate that heard of it last."""


@dataclass
class SeenGate(Gate):
    """One gate, and where it is."""

    gate_url: str = ""


@dataclass
class SeenOverload(Overload):
    """One overload window, and the gate that has it."""

    gate_url: str = ""


@dataclass
class SeenPolicy:
    """The settings in force at one gate; ``mode`` is by namespace, and ``*`` stands for the others."""

    gate_url: str
    mode: dict[str, Mode]
    policy: dict[str, Any]
