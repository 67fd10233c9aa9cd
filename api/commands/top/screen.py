"""The screen of ``backoff-ctrl top``: three panes over one feed. Imported only when it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import DataTable, Footer, RichLog, Static

from backoff_ctrl.api.commands.amounts import clock

from .feed import Feed
from .picture import COLUMNS, bars, row, told

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from backoff_ctrl.api.commands.instance.asking import Instance
    from backoff_ctrl.k8s.status.shapes.documents import Decision

    from .look import Look

BARS_MAX: Final = 200
"""Ceilings drawn: the fullest."""
LINES_MAX: Final = 2000
"""Decisions that can be scrolled back to."""


class Seen(Message):
    """A new look at the instance."""

    def __init__(self, found: Look) -> None:
        """``found`` replaces what was shown."""
        super().__init__()
        self.found = found


class Heard(Message):
    """A decision."""

    def __init__(self, decision: Decision) -> None:
        """Append it to the stream."""
        super().__init__()
        self.decision = decision


class Lost(Message):
    """The instance does not answer."""

    def __init__(self, why: str) -> None:
        """``why`` is a sentence."""
        super().__init__()
        self.why = why


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

    def __init__(self, instance: Instance, namespace: str | None, every: float, first: Look) -> None:
        """Show ``first``, and then what the instance tells, looking every so many seconds."""
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
            seen=lambda found: self.post_message(Seen(found)),
            heard=lambda decision: self.post_message(Heard(decision)),
            lost=lambda why: self.post_message(Lost(why)),
        )

    def compose(self) -> ComposeResult:
        """Lay out the panes."""
        yield Static(id="head", markup=False)
        with VerticalScroll(id="ceilings") as ceilings:
            ceilings.border_title = "How full is each quota?"
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
        """Draw the first look, and begin to follow."""
        self._draw()
        self._feed.start()

    def on_unmount(self) -> None:
        """Let go of the instance."""
        self._feed.stop()

    def on_resize(self) -> None:
        """Draw anew: the bars have the width of the terminal."""
        self._draw_bars()

    def on_seen(self, message: Seen) -> None:
        """Draw a new look, unless the picture is frozen."""
        self._why = ""
        if not self._frozen and self.is_running:
            self._shown = message.found
            self._draw()

    def on_lost(self, message: Lost) -> None:
        """Say that what is shown is old."""
        self._why = message.why
        if self.is_running:  # what comes while the screen is closed finds no panes
            self._draw_head()

    def on_heard(self, message: Heard) -> None:
        """Append a decision."""
        if not self._frozen and self.is_running:
            try:
                line = told(message.decision)
            except ValueError:
                return  # a time that is none
            self.query_one("#decisions", RichLog).write(line)

    def action_freeze(self) -> None:
        """Stop the picture, to read it; or let it go on."""
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
        for each in self._shown.waiting:
            table.add_row(*map(Text, row(each, self._shown.at, several_gates=several)))
        table.move_cursor(row=min(kept, table.row_count - 1), animate=False)

    def _draw_head(self) -> None:
        found = self._shown
        where = self._place + (f", namespace {self._namespace}" if self._namespace else "")
        waits = "no gate connected" if found.note else f"{found.waiting_in_all} waiting"
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
