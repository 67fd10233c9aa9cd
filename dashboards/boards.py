"""Dashboards: their rows of panels, variables and links, and how they become JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from .panels import SOURCE, built

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .panels import Panel

TAG: Final = "backoff-ctrl"
COLUMNS: Final = 24
PAGE: Final = "http://127.0.0.1:9095"
"""The live page, as `kubectl port-forward` makes it reachable; the variable `page` of each dashboard changes it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable that is chosen from the values of a label."""

    name: str
    label: str
    description: str
    query: str
    several: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a heading, side by side as far as they fit."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    description: str
    choices: tuple[Choice, ...]
    rows: tuple[Row, ...]
    page: str
    """What of the live page it links to, a path with a query."""

    def panels(self) -> Iterator[tuple[int, Panel]]:
        """Return the panels with their numbers, by which addresses name them."""
        number = 0
        for row in self.rows:
            number += 1  # the heading's
            for panel in row.panels:
                number += 1
                yield number, panel

    def address(self, title: str) -> str:
        """Return the path and query at Grafana that show one panel alone. Raises ``KeyError`` for an unknown one."""
        for number, panel in self.panels():
            if panel.title == title:
                return f"/d/{self.uid}?viewPanel={number}"
        raise KeyError(f"{self.uid} has no panel {title!r}")


CLUSTER: Final = Choice(
    "cluster",
    "Cluster",
    "Only of use where one Prometheus has the gates of several clusters.",
    "label_values(backoff_ctrl_build_info, cluster)",
)


def written(board: Board) -> str:
    """Return a dashboard as JSON: the same text each time."""
    made = (
        build.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .timezone("browser")
        .editable()
        .refresh("30s")
        .time("now-6h", "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(_boards_link())
        .link(build.DashboardLink("Live page").type(model.DashboardLinkType.LINK).url("${page}" + board.page))
    )
    made.with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    for choice in (CLUSTER, *board.choices):
        made.with_variable(_variable(choice))
    page = build.TextBoxVariable("page").label("Live page").default_value(PAGE)
    made.with_variable(page.description("Where the live page of backoff-ctrl can be reached from your browser."))
    _place(made, board)
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _place(made: build.Dashboard, board: Board) -> None:
    """Put the panels of each row side by side, and begin a new line where the next would not fit."""
    numbers = {id(panel): number for number, panel in board.panels()}
    top = 0
    for row in board.rows:
        heading = build.Row(row.title).id(numbers[id(row.panels[0])] - 1)
        made.with_row(heading.grid_pos(model.GridPos(x=0, y=top, w=COLUMNS, h=1)))
        top += 1
        left = tallest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, tallest = 0, top + tallest, 0
            place = model.GridPos(x=left, y=top, w=panel.width, h=panel.height)
            made.with_panel(built(panel, numbers[id(panel)], place))
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest


def _variable(choice: Choice) -> Any:
    made = (
        build.QueryVariable(choice.name)
        .label(choice.label)
        .description(choice.description)
        .query({"query": choice.query, "refId": choice.name, "qryType": 1})
        .datasource(SOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
    )
    if choice.several:
        made.multi(True).include_all(True).all_value(".*")
        made.current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    return made


def _boards_link() -> build.DashboardLink:
    link = build.DashboardLink("Dashboards of backoff-ctrl").type(model.DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.include_vars(True).keep_time(True)
