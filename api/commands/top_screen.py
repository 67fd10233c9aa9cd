"""The screen of ``backoff-ctrl top``: three panes over one feed, for ceilings, waiting creates and decisions.

Imported only when it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import DataTable, Footer, RichLog, Static

from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.gate.creates.wait import reason_words
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.status.amounts import clock, rounded, span
from backoff_ctrl.k8s.status.client import Instance, read_time
from backoff_ctrl.k8s.status.shapes import Ceiling, Decision

from .ceilings import fullness, how_full, waits_for
from .jobs import row_of
from .top_look import Feed, Look
from .waiting import cells

if TYPE_CHECKING:
    from .top_look import Jobs

BARS_MAX: Final = 200
"""Ceilings drawn: the fullest."""
LINES_MAX: Final = 2000
"""Decisions that can be scrolled back to."""
ALMOST_FULL: Final = 0.9
BAR_MIN: Final = 10
BAR_MAX: Final = 40
COLUMNS: Final = ("place", "namespace", "name", "waited", "estimate", "reason", "blocked by")
JOB_COLUMNS: Final = (*COLUMNS[:-1], "waits for")
_USED: Final = "█"
_TAKEN: Final = "▒"  # held by creates on their way, or reserved
_LEFT: Final = "·"
GREY: Final = "bright_black"
LEGEND: Final = f"{_USED} used  [{GREY}]{_TAKEN}[/] held or reserved  [dim]{_LEFT}[/] left"
"""The marks of the bars; used is green, yellow or red, by how full it is."""
_STYLES: Final = {
    "created": "green", "admitted": "cyan", "waits": "yellow", "refused": "yellow", "declined": "red",
    "timed-out": "red", "cancelled": "red", "failed": "red", "failed-open": "bold red",
}  # fmt: skip


@dataclass
class Seen(Message):
    """A new snapshot of the instance, which replaces the last one."""

    found: Look


@dataclass
class Heard(Message):
    """A decision: it is appended."""

    decision: Decision


@dataclass
class Lost(Message):
    """The instance does not answer; ``why`` is a sentence."""

    why: str


class Top(App[None]):
    """Shows the fullest ceilings, who waits, and the decisions."""

    TITLE = "backoff-ctrl top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; background: $primary-background; padding: 0 1; }
    #ceilings { height: 2fr; border: round $primary; border-title-color: $text; }
    #ceilings > Static { width: auto; }
    #waiting { height: 2fr; border: round $primary; }
    #decisions { height: 1fr; min-height: 5; border: round $primary; }
    #ceilings:focus, #waiting:focus, #decisions:focus { border: round $accent; }
    .large { height: 8fr; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("q", "quit", "Quit"),
        Binding("space", "freeze", "Freeze"),
        Binding("tab", "app.focus_next", "Next pane"),
        Binding("enter", "enlarge", "Enlarge", priority=True),
    ]

    def __init__(
        self, instance: Instance, namespace: str | None, every: float, first: Look, jobs: Jobs = tuple
    ) -> None:
        """Show ``first``, and then a new snapshot every so many seconds."""
        super().__init__()
        self._place = instance.place.url
        self._namespace = namespace
        self._shown = first
        self._frozen = False
        self._why = ""
        self._feed = Feed(
            instance,
            namespace,
            every,
            jobs,
            seen=lambda found: self.post_message(Seen(found)),
            heard=lambda decision: self.post_message(Heard(decision)),
            lost=lambda why: self.post_message(Lost(why)),
        )

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        with VerticalScroll(id="ceilings") as ceilings:
            ceilings.border_title = "How full is each quota?"
            ceilings.border_subtitle = LEGEND
            yield Static(id="bars", markup=False)
        table: DataTable[Text] = DataTable(id="waiting", cursor_type="row", zebra_stripes=True)
        table.border_title = "Who waits, and for what?"
        table.add_columns(*COLUMNS)
        yield table
        log = RichLog(id="decisions", max_lines=LINES_MAX, wrap=False, auto_scroll=True)
        log.border_title = "What was decided?"
        yield log
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._draw()
        self._feed.start()

    def on_unmount(self) -> None:
        self._feed.stop()

    def on_resize(self) -> None:
        """Draw again: the bars have the width of the terminal."""
        self._draw_bars()

    def on_seen(self, message: Seen) -> None:
        """Draw a new snapshot, unless the screen is frozen."""
        self._why = ""
        if not self._frozen and self.is_running:
            self._shown = message.found
            self._draw()

    def on_lost(self, message: Lost) -> None:
        """Show that the data is old."""
        self._why = message.why
        if self.is_running:  # while the screen closes there are no panes
            self._draw_head()

    def on_heard(self, message: Heard) -> None:
        if not self._frozen and self.is_running:
            try:
                line = decision_line(message.decision)
            except ValueError:
                return  # an invalid time
            self.query_one("#decisions", RichLog).write(line)

    def action_freeze(self) -> None:
        """Freeze the screen, or continue."""
        self._frozen = not self._frozen
        self._draw_head()

    def action_enlarge(self) -> None:
        """Give the focused pane most of the screen, or take it back."""
        for pane in self.query("#ceilings, #waiting, #decisions"):
            pane.set_class(pane is self.focused and not pane.has_class("large"), "large")

    # -- drawing ---------

    def _draw(self) -> None:
        self._draw_head()
        self._draw_bars()
        table: DataTable[Text] = self.query_one("#waiting", DataTable)
        kept = table.cursor_row
        table.clear()
        several = len({each.gate for each in self._shown.waiting}) > 1
        for job in self._shown.jobs:
            table.add_row(*map(Text, map(printable, row_of(job, JOB_COLUMNS).cells)))
        for each in self._shown.waiting:
            table.add_row(*map(Text, cells(each, self._shown.at, COLUMNS, several_gates=several)))
        table.move_cursor(row=min(kept, table.row_count - 1), animate=False)

    def _draw_head(self) -> None:
        found = self._shown
        where = self._place + (f", namespace {self._namespace}" if self._namespace else "")
        waits = printable(found.note.partition(":")[0]) if found.note else f"{found.waiting_in_all} waiting"
        if found.jobs:
            waits += f"   {len(found.jobs)} suspended"
        line = Text(f"{where}   {waits}   {clock(found.at)}", no_wrap=True)
        if self._frozen:
            line.append("   frozen: press space to continue", "bold yellow")
        if self._why:
            line.append(f"   {self._why}", "bold red")
        self.query_one("#head", Static).update(line)

    def _draw_bars(self) -> None:
        ceilings = self._shown.ceilings
        drawn = bars(ceilings[:BARS_MAX], self.size.width - 4, self._shown.at)
        if len(ceilings) > BARS_MAX:
            drawn.append(f"\n{len(ceilings) - BARS_MAX} more: choose a namespace with -n", "dim")
        self.query_one("#bars", Static).update(drawn)


# -- what is drawn, as text ---------


def bars(ceilings: list[Ceiling], width: int, at: datetime) -> Text:
    if not ceilings:
        return Text("No ceilings are known yet: they are read from ResourceQuotas, or from the first refusal.")
    named = [printable(f"{each.namespace}/{each.quota} {each.resource}") for each in ceilings]
    amounts = [_amounts(each) for each in ceilings]
    names, numbers = max(map(len, named)), max(map(len, amounts))
    length = max(BAR_MIN, min(BAR_MAX, width - names - numbers - 32))
    whole = Text()
    for each, name, amount in zip(ceilings, named, amounts, strict=True):
        whole.append(f"{name.ljust(names)}  ")
        whole.append_text(_bar(each, length))
        whole.append(f" {how_full(each).rjust(6)}", _style(fullness(each)))
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
    left = length - used - taken
    return Text.assemble((_USED * used, _style(fullness(ceiling))), (_TAKEN * taken, GREY), (_LEFT * left, "dim"))


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


def decision_line(decision: Decision) -> Text:
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
