"""One look at an instance: its ceilings, the fullest first, and who waits. Also as the JSON of ``top --json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.api.commands.instance.ceilings import fullest_first, fullness
from backoff_ctrl.api.commands.instance.following import FAILURES, latest
from backoff_ctrl.api.commands.instance.reading import read_time
from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.answers.printing import printable
from backoff_ctrl.k8s.status.shapes.documents import Ceiling, Gate, Waiting

if TYPE_CHECKING:
    from datetime import datetime

    from backoff_ctrl.api.commands.instance.asking import Instance, Listed

WAITING_SHOWN: Final = 1000
"""Waiting creates that the live picture reads."""
DECISIONS: Final = 100
"""Decisions that the JSON document holds, unless ``--limit`` says otherwise."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one time."""

    at: datetime
    ceilings: list[Ceiling]
    """The fullest first."""
    waiting: list[Waiting]
    """The first ones in line."""
    waiting_in_all: int
    """At all gates of the instance, in all namespaces."""
    note: str | None = None
    """That no gate is connected: who waits is not known then."""


def look(instance: Instance, namespace: str | None) -> Look:
    """Look once. Raises ``BadInput``."""
    ceilings: Listed[Ceiling] = instance.everything("/v1/ceilings", {"namespace": namespace}, Ceiling)
    waiting: Listed[Waiting] = instance.everything("/v1/waiting", {"namespace": namespace}, Waiting, WAITING_SHOWN)
    gates: Listed[Gate] = instance.whole("/v1/gates", Gate)
    try:
        order = fullest_first(ceilings.items)
        for each in waiting.items:  # what is drawn later must be readable
            read_time(each.since)
    except ValueError as error:
        raise instance.not_ours(str(error)) from None
    fullest, in_all = [ceilings.items[number] for number in order], sum(gate.waiting for gate in gates.items)
    return Look(ceilings.at, fullest, waiting.items, in_all, waiting.note)


def document(instance: Instance, namespace: str | None, limit: int | None) -> str:
    """Return ceilings, waiting creates and the latest decisions as one JSON document. Raises ``BadInput``."""
    ceilings: Listed[Ceiling] = instance.everything("/v1/ceilings", {"namespace": namespace}, Ceiling)
    waiting: Listed[Waiting] = instance.everything("/v1/waiting", {"namespace": namespace}, Waiting)
    try:
        fullest = [ceilings.documents[number] for number in fullest_first(ceilings.items)]
        decisions = latest(instance, namespace, waiting.at, limit or DECISIONS)
    except FAILURES as error:
        url = instance.place.url
        raise BadInput(printable(f"the decisions of {url} can't be followed ({error}): try again")) from None
    whole: dict[str, Any] = {
        "as_of": ceilings.as_of,
        "ceilings": fullest[:limit],
        "waiting": waiting.documents[:limit],
        "decisions": [vars(each) for each in decisions],
        "more": {
            "ceilings": len(fullest) - len(fullest[:limit]),
            "waiting": len(waiting.documents) - len(waiting.documents[:limit]),
        },
        **({"note": waiting.note} if waiting.note else {}),
    }
    return json.dumps(whole, indent=2)


def share(ceiling: Ceiling) -> float:
    """Return how full a ceiling is, from 0 on; more than 1 where more is used than allowed."""
    return float(fullness(ceiling))
