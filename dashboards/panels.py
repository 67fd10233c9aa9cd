"""Panels: what each asks and shows, as data, and how that becomes a panel of Grafana."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

Look = Literal["stat", "lines", "bars", "table", "states"]
Steps = tuple[tuple[float | None, str], ...]

SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
PLAIN: Final[Steps] = ((None, "blue"),)
FULL: Final[Steps] = ((None, "green"), (0.8, "yellow"), (0.9, "orange"), (1.0, "red"))
NONE_IS_GOOD: Final[Steps] = ((None, "green"), (1.0, "red"))
YES_NO: Final = {"1": ("yes", "green"), "0": ("no", "red")}


@dataclass(frozen=True, slots=True)
class Query:
    """One query. ``legend`` names its series, with labels in double braces."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: a label of the queries, or the value of one of them."""

    of: str
    """The label, or the letter of the query whose value it shows."""
    title: str
    unit: str = ""
    steps: Steps = ()
    bar: bool = False
    """Drawn as a bar from 0 to 1."""
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    link: str = ""
    width: int = 0


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. Its title is the question that it answers; what colours mean is in ``steps``."""

    title: str
    description: str
    look: Look
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 12
    height: int = 8
    steps: Steps = PLAIN
    none: str = ""
    """What to say where there is no series."""
    columns: tuple[Column, ...] = ()
    sort: str = ""
    """The column by which a table is sorted, the greatest first."""
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Texts and colours to show instead of values."""
    stacked: bool = False
    show: Literal["value", "name"] = "value"
    greatest: float | None = None
    links: tuple[tuple[str, str], ...] = ()
    """Titles and addresses, in the panel's menu."""
    data_links: tuple[tuple[str, str], ...] = ()


def built(panel: Panel, number: int, place: model.GridPos) -> Any:
    """Return the builder of a Grafana panel."""
    made = _LOOKS[panel.look](panel)
    made.id(number).title(panel.title).description(panel.description).datasource(SOURCE).grid_pos(place)
    made.unit(panel.unit).min(0)
    made.thresholds(_thresholds(panel.steps))
    if panel.none:
        made.no_value(panel.none)
    if panel.greatest is not None:
        made.max(panel.greatest)
    if panel.texts:
        made.mappings([_mapping(panel.texts)])
    if panel.links:
        made.links([_link(*each) for each in panel.links])
    if panel.data_links:
        made.data_links([_link(*each) for each in panel.data_links])
    for letter, query in zip("ABCDEFGHIJKL", panel.queries, strict=False):
        made.with_target(_target(panel, letter, query))
    return made


def _target(panel: Panel, letter: str, query: Query) -> prometheus.Dataquery:
    made = prometheus.Dataquery().ref_id(letter).expr(query.expr).datasource(SOURCE)
    if panel.look in {"lines", "states"}:
        return made.range().legend_format(query.legend)
    made.instant()
    return made.format(PromQueryFormat.TABLE) if panel.look == "table" else made.legend_format(query.legend)


def _stat(panel: Panel) -> Any:
    return (
        stat.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .color_mode(kinds.BigValueColorMode.VALUE)
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .text_mode(kinds.BigValueTextMode.NAME if panel.show == "name" else kinds.BigValueTextMode.AUTO)
        .color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    )


def _lines(panel: Panel) -> Any:
    legend = common.VizLegendOptions().show_legend(True).placement(kinds.LegendPlacement.BOTTOM)
    made = (
        timeseries.Panel()
        .legend(legend.display_mode(kinds.LegendDisplayMode.LIST).calcs([]))
        .tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING))
        .color_scheme(build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .line_width(1)
        .show_points(kinds.VisibilityMode.NEVER)
        .fill_opacity(40 if panel.stacked else 10)
    )
    if panel.stacked:
        made.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL).group("A"))
    if len(panel.steps) > 1:
        made.thresholds_style(common.GraphThresholdsStyleConfig().mode(kinds.GraphThresholdsStyleMode.DASHED))
    return made


def _bars(_: Panel) -> Any:
    return (
        bargauge.Panel()
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .orientation(kinds.VizOrientation.HORIZONTAL)
        .display_mode(kinds.BarGaugeDisplayMode.BASIC)
        .show_unfilled(True)
        .value_mode(kinds.BarGaugeValueMode.COLOR)
        .color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    )


def _states(_: Panel) -> Any:
    return (
        statetimeline.Panel()
        .show_value(kinds.VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(0.8)
        .color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    )


def _table(panel: Panel) -> Any:
    """Merge the queries to one row per set of labels, and name and order its columns."""
    alone = len(panel.queries) == 1
    fields = {column.of: _field(column.of, alone=alone) for column in panel.columns}
    organize = {
        "excludeByName": {"Time": True, **dict.fromkeys(_unshown(panel, alone=alone), True)},
        "indexByName": {fields[column.of]: at for at, column in enumerate(panel.columns)},
        "renameByName": {fields[column.of]: column.title for column in panel.columns},
    }
    made = table.Panel().cell_height(kinds.TableCellHeight.SM).show_header(True)
    if not alone:
        made.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    made.with_transformation(model.DataTransformerConfig(id_val="organize", options=organize))
    if panel.sort:
        made.sort_by([common.TableSortByFieldState().display_name(panel.sort).desc(True)])
    for column in panel.columns:
        properties = _properties(column)
        if properties:
            made.override_by_name(column.title, properties)
    return made


def _field(of: str, *, alone: bool) -> str:
    """What Grafana calls a column before it is renamed."""
    if len(of) > 1:
        return of
    return "Value" if alone else f"Value #{of}"


def _unshown(panel: Panel, *, alone: bool) -> list[str]:
    shown = {column.of for column in panel.columns}
    letters = "ABCDEFGHIJKL"[: len(panel.queries)]
    return [_field(letter, alone=alone) for letter in letters if letter not in shown]


def _properties(column: Column) -> list[model.DynamicConfigValue]:
    """Return what differs for a column from the panel's defaults."""
    found: dict[str, object] = {}
    if column.unit:
        found["unit"] = column.unit
    if column.steps:
        found["thresholds"] = _thresholds(column.steps).build()
        found["custom.cellOptions"] = {"type": "color-text"}
    if column.bar:
        found["min"], found["max"] = 0, 1
        found["custom.cellOptions"] = kinds.TableBarGaugeCellOptions(
            mode=kinds.BarGaugeDisplayMode.BASIC, value_display_mode=kinds.BarGaugeValueMode.COLOR
        )
    if column.texts:
        found["mappings"] = [_mapping(column.texts)]
        found["custom.cellOptions"] = {"type": "color-text"}
    if column.link:
        found["links"] = [_link("Show the namespace", column.link).build()]
    if column.width:
        found["custom.width"] = column.width
    return [model.DynamicConfigValue(id_val=name, value=value) for name, value in found.items()]


def _mapping(texts: Mapping[str, tuple[str, str]]) -> model.ValueMap:
    results = {
        value: model.ValueMappingResult(text=text, color=colour, index=at)
        for at, (value, (text, colour)) in enumerate(texts.items())
    }
    return model.ValueMap(options=results)


def _thresholds(steps: Steps) -> build.ThresholdsConfig:
    made = [model.Threshold(value=value, color=colour) for value, colour in steps]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def _link(title: str, url: str) -> build.DashboardLink:
    return build.DashboardLink(title).type(model.DashboardLinkType.LINK).url(url)


_LOOKS: Final = {"stat": _stat, "lines": _lines, "bars": _bars, "table": _table, "states": _states}
