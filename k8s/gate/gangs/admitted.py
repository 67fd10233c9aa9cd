"""A gang that was admitted: its members are created one by one from what is reserved for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.demand import Demand
from backoff_ctrl.engine.gangs import Draw, Gang
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.gate.expected_pods import ExpectedGang, with_label
from backoff_ctrl.k8s.gate.ledger import Ledger

from .asked import GangAsked


class AdmittedGang:
    """Room for a whole gang: create its members with ``create``, then leave the ``with`` block.

    ``gate`` is the gate that it waited at. Without ``gang`` nothing is reserved: the gate does not enforce, or failed;
    its members are then created like any others.
    """

    def __init__(
        self, gate: Any, ledger: Ledger, asked: GangAsked, gang: Gang | None, engine: Controller | None
    ) -> None:
        """``engine`` is the one that admitted it: after an internal error there is a new one, which knows no gang."""
        self.gate = gate
        self.asked = asked
        self.namespace = asked.creation.namespace
        self.label = uuid4().hex[:16]  # the value of ``GANG_LABEL`` in what others make of it
        self.gang = gang
        self.engine = engine
        self._ledger = ledger
        if gang is not None and engine is not None and asked.pods_made:
            ledger.expect(ExpectedGang(self.label, gang, engine, asked.templates, asked.pods_made))

    @property
    def name(self) -> str:
        """What people know it by."""
        return self.asked.creation.name

    @property
    def whole(self) -> bool:
        """Whether the whole was found to fit. False: quotas can't be read, or nothing is reserved."""
        return self.gang is not None and self.gang.whole

    @property
    def drawn(self) -> int:
        """The number of members that were sent and not refused."""
        return 0 if self.gang is None else self.gang.drawn

    @property
    def undrawn(self) -> int:
        """The number of members that may still be created from what is reserved."""
        return 0 if self.gang is None or self.gang.end is not None else self.gang.left

    @property
    def given_back(self) -> int:
        """The number of members that were given back: its limit has passed, or its block was left."""
        return self.gang.left if self.gang is not None and self.gang.end in ("limit", "given-back") else 0

    @property
    def over(self) -> bool:
        """Whether nothing is reserved any more: all were drawn, it was given back, or its limit has passed."""
        return self.gang is None or self.gang.end is not None

    def create(self, creation: Creation, transport: Any) -> Any:
        """Create a member as ``gate.create`` does (await it on an ``AsyncGate``). What is no member waits in line."""
        return self.gate.create(replace(creation, gang=self), transport)

    def appeared(self, uid: str, manifest: Mapping[str, Any], resource: str = "pods") -> bool:
        """Note a member that somebody else created, by its uid and its manifest as stored; say whether it counts."""
        if self.gang is None or self.engine is None:
            return False
        return self._ledger.appeared(self.gang, self.engine, uid, manifest, resource)

    def stored(self, manifest: Mapping[str, Any], resource: str) -> None:
        """Note an object that was created for this gang, as it is stored: its pods may be known by who owns them."""
        if resource != "pods" and self.asked.pods_made and not self.over:
            self._ledger.gang_stored(self.label, self.namespace, manifest, resource)

    def labelled(self, resource: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return what is created with the gang's label where others make pods from it."""
        for path in self.asked.templates.get(resource, ()):
            body = with_label(body, path.split("."), self.label)
        return body

    def leave(self, *, failed: bool) -> None:
        """Give back what is undrawn, unless others are still to make it of what was created."""
        if failed or not self.asked.pods_made or not (self.drawn or self.asked.made_from):
            self.give_back()

    def give_back(self) -> None:
        """Give back what is undrawn. Twice is no error."""
        if self.gang is not None and self.engine is not None and not self.over:
            self._ledger.give_back(self.gang, self.engine)

    def member(self, engine: Controller, _: float, number: str, demand: Demand, flow: str) -> Draw | None:
        """Describe a create of this demand as a draw; None: it is no member, or none is left. The lock is held."""
        gang = self.gang
        if gang is None or engine is not self.engine:
            return None
        for part, shape in enumerate(gang.shapes):
            if shape.demand.key == demand.key and (gang.end in ("given-back", "limit") or gang.may_draw(part)):
                return Draw(number, gang, part, flow)
        return None
