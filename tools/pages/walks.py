"""The walks of ARCHITECTURE.md: which modules a create, a task or a question passes through, in order.

Each is what a trace saw (`benchmarks.calls`), a module where it is called first. So a walk can't be outdated: the
page is not current where one has changed.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import groupby
from typing import Final

from benchmarks import calls

WALKS: Final[Mapping[str, Callable[[], calls.Calls]]] = {
    "create": calls.free_create,
    "sidecar": lambda: asyncio.run(calls.sidecar_create()),
    "task": lambda: asyncio.run(calls.task_create()),
    "quota": lambda: asyncio.run(calls.admitting_event()),
    "status": calls.status_request,
}
"""What is traced for each walk."""


@cache
def walk(name: str) -> str:
    """Return a walk as text: the rooms in order, in each of them its modules."""
    return shown(dict.fromkeys(module for module, _ in WALKS[name]()))


def shown(modules: Iterable[str]) -> str:
    """Return modules in order, those of a room that follow each other behind its name."""
    places = (module.removeprefix("k8s/").rpartition("/") for module in modules)
    rooms = (
        f"**{room}** {', '.join(f'`{name}`' for _, _, name in found)}"
        for room, found in groupby(places, lambda place: place[0])
    )
    return textwrap.fill(" → ".join(rooms), 120, break_on_hyphens=False) + "\n"
