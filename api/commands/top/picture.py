"""What ``backoff-ctrl top`` draws: ceilings as bars, waiting creates as rows, decisions as lines. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from backoff_ctrl.api.commands.amounts import clock, rounded, span
from backoff_ctrl.api.commands.instance.ceilings import waits_for
from backoff_ctrl.api.commands.instance.reading import read_time
from backoff_ctrl.api.commands.instance.waiting import blocked_by, estimate, place
from backoff_ctrl.engine.quantities import parse_quantity
from backoff_ctrl.k8s.answers.printing import printable
from backoff_ctrl.k8s.creates.wait import reason_words

from .look import share

if TYPE_CHECKING:
    from datetime import datetime

    from backoff_ctrl.k8s.status.shapes.documents import Ceiling, Decision, Waiting

ALMOST_FULL: Final = 0.9
BAR_MIN: Final = 10
BAR_MAX: Final = 40
COLUMNS: Final = ("place", "namespace", "name", "waited", "estimate", "reason", "blocked by")
_USED: Final = "█"
_TAKEN: Final = "▒"  # held by creates on their way, or reserved
_FREE: Final = "·"
_STYLES: Final = {
    "created": "green", "admitted": "cyan", "waits": "yellow", "refused": "yellow", "declined": "red",
    "timed-out": "red", "cancelled": "red", "failed": "red", "failed-open": "bold red",
}  # fmt: skip


def bars(ceilings: list[Ceiling], width: int, at: datetime) -> Text:
    """Draw the ceilings, one a line, in so many columns of the terminal."""
    if not ceilings:
        return Text("No ceilings are known yet: they are read from ResourceQuotas, or from the first refusal.")
    named = [printable(f"{each.namespace}/{each.quota} {each.resource}") for each in ceilings]
    amounts = [_amounts(each) for each in ceilings]
    names, numbers = max(map(len, named)), max(map(len, amounts))
    length = max(BAR_MIN, min(BAR_MAX, width - names - numbers - 32))
    whole = Text()
    for each, name, amount in zip(ceilings, named, amounts, strict=True):
        full = share(each)
        whole.append(f"{name.ljust(names)}  ")
        whole.append_text(_bar(each, length))
        percent = f"{int(100 * full)}%" if parse_quantity(each.limited) else "paused"
        whole.append(f" {percent.rjust(6)}", _style(full))
        whole.append(f"  {amount.ljust(numbers)}")
        blocked = waits_for(each, at)
        whole.append(f"  waits for {blocked}\n" if blocked else "\n", "yellow")
    whole.rstrip()
    return whole


def _bar(ceiling: Ceiling, length: int) -> Text:
    limited = parse_quantity(ceiling.limited)
    if limited <= 0:
        return Text("─" * length, "dim")
    used = min(length, length * parse_quantity(ceiling.used) // limited)
    more = parse_quantity(ceiling.held or "0") + parse_quantity(ceiling.reserved or "0")
    taken = min(length - used, -(-length * more // limited))
    style = _style(share(ceiling))
    return Text.assemble((_USED * used, style), (_TAKEN * taken, style), (_FREE * (length - used - taken), "dim"))


def _style(full: float) -> str:
    return "red" if full >= 1 else "yellow" if full >= ALMOST_FULL else "green"


def _amounts(ceiling: Ceiling) -> str:
    def amount(text: str) -> str:
        return rounded(text, ceiling.resource, ceiling.limited)

    parts = [amount(ceiling.used), *(f"{amount(n)} {word}" for n, word in _extras(ceiling))]
    return printable(f"{' + '.join(parts)} of {amount(ceiling.limited)}")


def _extras(ceiling: Ceiling) -> list[tuple[str, str]]:
    found = ((ceiling.held, "held"), (ceiling.reserved, "reserved"))
    return [(amount, word) for amount, word in found if amount and parse_quantity(amount)]


def row(waiting: Waiting, at: datetime, *, several_gates: bool = False) -> tuple[str, ...]:
    """Return the cells of one waiting create, in the order of ``COLUMNS``. They are safe to print."""
    cells = (
        place(waiting, several_gates=several_gates),
        waiting.namespace,
        f"{waiting.kind}/{waiting.name}",
        span((at - read_time(waiting.since)).total_seconds()),
        estimate(waiting, at),
        reason_words(waiting.reason),
        blocked_by(waiting),
    )
    return tuple(map(printable, cells))


def told(decision: Decision) -> Text:
    """Write one decision as a line. Raises ``ValueError``."""
    line = Text(f"{clock(read_time(decision.at))} ", "dim")
    line.append(f"{printable(decision.event).ljust(11)} ", _STYLES.get(decision.event, ""))
    line.append(printable(f"{decision.namespace} {decision.kind}/{decision.name}"))
    if why := _why(decision):
        line.append(f"  {printable(why)}", "dim")
    return line


def _why(decision: Decision) -> str:
    parts = [reason_words(decision.reason or ""), "a probe" if decision.probe else ""]
    lane = decision.lane or ""
    parts.append(lane if lane not in ("", "quota") else "")
    if decision.quota:
        parts.append(f"{decision.quota} {decision.resource or ''}".strip())
    if decision.waited_seconds is not None:
        parts.append(f"after {span(decision.waited_seconds)}")
    return ", ".join(part for part in parts if part)
