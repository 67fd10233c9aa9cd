"""The settings of the engine, validated: each with its unit, its default and the reason for the default."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from .errors import PolicyError

OnNeverFits = Literal["fail", "wait"]
GangBlind = Literal["refuse", "one_by_one"]

# Inclusive ranges; a setting that is not listed here has its own check in Policy.__post_init__.
_RANGES: dict[str, tuple[float, float]] = {
    "base": (0.001, 3600),
    "cap": (0.001, 86_400),
    "retry_after_window": (0, 3600),
    "overtakes_max": (0, 4096),
    "overtaken_for_max": (0, 86_400),
    "overtaken_at_most": (0, 86_400),
    "keep_stalled": (0.001, 86_400),
    "age_step": (0.001, 86_400),
    "settle_time": (0, 10),
    "settle_max": (0, 60),
    "answered_hold": (0, 60),
    "release_lag": (0, 60),
    "ends_lag": (0, 60),
    "unproven_max": (1, 4096),
    "overload_start": (1, 4096),
    "overload_max": (1, 65_536),
    "overload_cut": (0.1, 0.99),
    "brake_base": (0.001, 60),
    "race_base": (0.001, 60),
    "never_confirm": (0, 3600),
    "never_probe": (1, 86_400),
    "waiters_max": (1, 100_000_000),
    "wait_max": (0.001, 31_536_000),
    "ticket_max": (1, 86_400),
    "idle_ttl": (1, 86_400),
    "scan_max": (1, 1_000_000),
    "seat_ttl": (0, 86_400),
    "seats_max": (0, 1_000_000),
    "gang_limit": (0.001, 86_400),
}
_WHOLE = {
    "overtakes_max",
    "unproven_max",
    "overload_start",
    "overload_max",
    "waiters_max",
    "scan_max",
    "seats_max",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the engine waits. Times are seconds. Raises a ``PolicyError`` that names the setting and its range."""

    base: float = 1.0
    """First delay of a block: a full quota seldom has room sooner."""
    cap: float = 20.0
    """Longest delay of a block: as in Flyte, whose 10 minutes had hurt its users before (flyte#1749)."""
    retry_after_window: float = 1.0
    """Spread added to a server's Retry-After, so that creates with the same one are not sent again all at once."""
    overtakes_max: int = 32
    """How often a waiter may be overtaken before room is kept for it, if it was also ``overtaken_for_max``."""
    overtaken_for_max: float = 60.0
    """How long since the first that passed a waiter may be overtaken, if it was also ``overtakes_max`` times."""
    overtaken_at_most: float = 600.0
    """So long after the first that passed, room is kept in any case: one small create an hour passes but once."""
    keep_stalled: float = 60.0
    """Keeping pauses when the kept room has not grown for this long, or five mean times between releases."""
    age_step: float = 30.0
    """Waiting this long counts as one step of priority."""
    settle_time: float = 0.002
    """Wait after a report of room: the server's admission cache trails its own watch by 1-2 ms (seen on 1.36)."""
    settle_max: float = 0.1
    """The longest settle time that is learned."""
    answered_hold: float = 0.05
    """An answered hold ends this long after its 201 while the watch is healthy; charges were seen <= 5 ms late."""
    release_lag: float = 0.01
    """Initial time from an own pod's end to room at the server; learned from probes that came too early."""
    ends_lag: float = 1.0
    """Where gangs keep their room: news of room waits so long for the news whose it is, if no end explains it yet."""
    unproven_max: int = 16
    """Most creates in flight in a namespace of which no quota is known."""
    overload_start: int = 16
    """Creates in flight at first, per server, credential and priority level."""
    overload_max: int = 256
    """Most creates in flight that additive increase leads to."""
    overload_cut: float = 0.7
    """Factor by which an overload answer cuts the window, once for all creates in flight."""
    brake_base: float = 0.1
    """First pause of a namespace whose webhooks fail, or whose quotas are not evaluated in time."""
    race_base: float = 0.01
    """First pause of a namespace whose creates lost a race to update a quota object: such races take milliseconds."""
    never_confirm: float = 2.0
    """A learned never-fits needs a second refusal this much later: the quota may have been about to change."""
    never_probe: float = 300.0
    """Under ``on_never_fits="wait"`` without a watch: how often such a shape is sent again."""
    on_never_fits: OnNeverFits = "fail"
    """What happens to a request that is larger than the limit of a quota that applies to it."""
    waiters_max: int = 100_000
    """Waiting requests per namespace; one more is refused as too-many-waiting (600 bytes each)."""
    wait_max: float = 86_400.0
    """Longest wait; then the request is refused as waited-too-long."""
    ticket_max: float = 120.0
    """A ticket not settled by then is expired: a create ends on the server at 34 s, look-ups follow."""
    idle_ttl: float = 600.0
    """Idle namespaces, shapes and learned ceilings are forgotten after this."""
    scan_max: int = 64
    """Rows of the waiting line per scan, 1-2 us each; the rest follow at the next ``advance``."""
    seat_ttl: float = 10.0
    """How long, at least, the place of a caller that went away with a seat is kept: most come again within seconds."""
    seats_max: int = 10_000
    """Empty seats per namespace; of more, those that end first are given up (400 bytes each)."""

    gang_limit: float = 300.0
    """What a gang reserved is given back when this long no member was drawn: it would only keep others out."""
    gang_blind: GangBlind = "refuse"
    """What happens to a gang where quotas can't be read, so that it is unknown whether the whole of it fits."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name not in ("on_never_fits", "gang_blind"):
                _check_number(field.name, getattr(self, field.name))
        if self.on_never_fits not in ("fail", "wait"):
            raise PolicyError(f'on_never_fits must be "fail" or "wait", not {self.on_never_fits!r}')
        if self.gang_blind not in ("refuse", "one_by_one"):
            raise PolicyError(f'gang_blind must be "refuse" or "one_by_one", not {self.gang_blind!r}')
        for low, high in (("base", "cap"), ("settle_time", "settle_max"), ("overload_start", "overload_max")):
            if getattr(self, low) > getattr(self, high):
                raise PolicyError(
                    f"{low} ({getattr(self, low)}) must not be greater than {high} ({getattr(self, high)})"
                )

    def until_kept(self) -> str:
        """Say when room is kept for one that is overtaken: pages and dashboards have their figures from here."""
        return (
            f"after {self.overtakes_max} times and {self.overtaken_for_max:g} s, and at the latest "
            f"{self.overtaken_at_most / 60:g} minutes after the first"
        )


def _check_number(name: str, value: object) -> None:
    low, high = _RANGES[name]
    if isinstance(value, bool) or not isinstance(value, int if name in _WHOLE else (int, float)):
        raise PolicyError(f"{name} must be a {'whole ' if name in _WHOLE else ''}number, not {value!r}")
    assert isinstance(value, (int, float))
    if not (math.isfinite(value) and low <= value <= high):
        raise PolicyError(f"{name} must be between {low:g} and {high:g}, not {value!r}")
