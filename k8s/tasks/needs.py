"""Tasks that need others: which circles there are, and what a need means for who waits for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .model import TaskStatus


def circle(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a circle of names, its first one again at its end; empty: there is none. In linear time."""
    done: set[str] = set()
    for start in needs:
        path: dict[str, None] = {}
        stack: list[tuple[str, Iterable[str]]] = [(start, iter(()))] if start not in done else []
        while stack:
            name, rest = stack.pop()
            if name not in path:
                path[name] = None
                rest = iter(needs.get(name, ()))
            following = next((each for each in rest if each not in done), None)
            if following is None:
                done.add(name)
                del path[name]
                continue
            stack.append((name, rest))
            if following in path:
                names = list(path)
                return [*names[names.index(following) :], following]
            stack.append((following, ()))
    return []


@dataclass(frozen=True, slots=True)
class Verdict:
    """What its needs mean for a task: it may begin, it waits, or it has failed; ``reason`` says for which of them."""

    ready: bool = False
    failed: bool = False
    reason: str = ""


def verdict(needs: Iterable[str], found: Mapping[str, TaskStatus | None]) -> Verdict:
    """Say what the needs of a task mean; ``found`` has the status of each, None where there is no such task."""
    waiting = ""
    for name in needs:
        status = found.get(name)
        if status is None:
            waiting = waiting or f"needs task {name}, which does not exist yet"
        elif status.phase == "Success":
            continue
        elif status.phase in ("PermanentFailure", "Aborted"):
            code = f" ({status.code})" if status.code else ""
            return Verdict(failed=True, reason=f"task {name}, which it needs, ended as {status.phase}{code}")
        else:
            waiting = waiting or f"needs task {name}, which is {status.phase}"
    return Verdict(ready=not waiting, reason=waiting)
