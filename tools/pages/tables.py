"""The parts of pages that show what the code says: tables of metrics, settings, the chart's values; diagrams.

Each stands on its page between two lines, ``<!-- table: NAME, ... -->`` and ``<!-- end: NAME -->``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from backoff_ctrl.engine.facts.requests import REQUESTS
from backoff_ctrl.engine.line.blocks import BLOCKS
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.settings import SERIES_MAX, VARIABLES
from backoff_ctrl.k8s.kube.operators.sections import Section
from backoff_ctrl.k8s.status.catalogue import METRICS
from backoff_ctrl.k8s.tasks.plugins.config import Backoff, CoPilot, K8sPluginConfig, TaskPlugins

VALUES: Final = Path(__file__).parents[2] / "helm" / "backoff-ctrl" / "values.yaml"
_State = TypeVar("_State", bound=str)
_Event = TypeVar("_Event", bound=str)
_SAID: Final = re.compile(r"^\s*# -- (.+)$")


def metrics() -> str:
    """Return the table of metrics, and the default limit of series."""
    rows = (
        (f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), each.unit, each.help)
        for each in METRICS
    )
    shown = _table(("metric", "type", "labels", "unit", "meaning"), rows)
    return f"{shown}\nAt most {SERIES_MAX:,} series are exposed by default.\n"


def settings() -> str:
    """Return the table of settings: sections, and those in them."""
    sections: tuple[tuple[type[Section], str], ...] = (
        (K8sPluginConfig, "plugins.k8s."),
        (TaskPlugins, "tasks.task-plugins."),
        (Backoff, "tasks.backoff."),
    )
    return _table(("key", "default", "meaning"), (row for model, prefix in sections for row in _keys(model, prefix)))


def variables(*, ours: bool) -> str:
    """Return the table of environment variables, ours or those of others."""
    shown = [each for each in VARIABLES.values() if each.ours is ours]
    return _table(("variable", "default", "meaning"), ((f"`{each.name}`", each.unset, each.meaning) for each in shown))


def _keys(model: type[Section], prefix: str) -> Iterator[tuple[str, str, str]]:
    defaults = model().model_dump(mode="json", by_alias=True)
    for field in model.model_fields.values():
        section: Any = field.annotation
        if isinstance(section, type) and issubclass(section, Section) and section is not CoPilot:
            yield from _keys(section, f"{prefix}{field.alias}.")
            continue
        default = defaults[str(field.alias)]
        shown = "as in Flyte" if isinstance(default, dict) and "image" in default else f"`{json.dumps(default)}`"
        yield f"`{prefix}{field.alias}`", shown, " ".join(str(field.description).split())


def values() -> str:
    """Return the table of the chart's values, from the comments of values.yaml."""
    rows = (
        (f"`{name}`", said.replace("|", "\\|"), f"`{default}`".replace("|", "\\|"))
        for name, said, default in described(VALUES.read_text(encoding="utf-8"))
    )
    return _table(("value", "what it does", "default"), rows)


def described(text: str) -> list[tuple[str, str, str]]:
    """Return name, description and default of each value: a comment ``# --`` describes the value below it.

    Raises ``ValueError`` for a value without one.
    """
    lines = text.splitlines()
    found: list[tuple[str, str, str]] = []

    def walk(node: yaml.MappingNode, path: str) -> None:
        for key, value in node.value:
            name = f"{path}{key.value}"
            said = _SAID.match(lines[key.start_mark.line - 1])
            if said:
                found.append((name, said[1], json.dumps(yaml.safe_load(yaml.serialize(value)))))
            elif isinstance(value, yaml.MappingNode) and value.value:
                walk(value, f"{name}.")
            else:
                raise ValueError(f"{name} in values.yaml has no comment that begins with '# --' above it")

    document = yaml.compose(text)
    if not isinstance(document, yaml.MappingNode):
        raise TypeError("values.yaml must be a mapping")
    walk(document, "")
    return found


def diagram(table: Mapping[_State, Mapping[_Event, _State]], first: _State) -> str:
    """Return one of the engine's tables of states as a Mermaid diagram."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    for state, events in table.items():
        by_target: dict[_State, list[_Event]] = {}
        for event, target in events.items():
            by_target.setdefault(target, []).append(event)
        lines += [f"    {state} --> {target}: {', '.join(found)}" for target, found in by_target.items()]
        if not events:
            lines.append(f"    {state} --> [*]")
    return "\n".join([*lines, "```", ""])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |\n" for row in (head, *rows)]
    return "".join([lines[0], "|---" * len(head), "|\n", *lines[1:]])


def with_parts(**parts: Callable[[], str]) -> Callable[[str], str]:
    """Return what writes these parts anew between their lines in the text of a page."""

    def page(present: str) -> str:
        for name, part in parts.items():
            head, start, rest = re.split(rf"(<!-- table: {name}\b.*-->\n)", present)
            present = f"{head}{start}{part()}{rest[rest.index(f'<!-- end: {name} -->') :]}"
        return present

    return page


PAGES: Final = {
    "ARCHITECTURE.md": with_parts(
        blocks=lambda: diagram(BLOCKS, "shut"),
        requests=lambda: diagram(REQUESTS, "new"),
    ),
    "docs/concepts.md": with_parts(
        overtaking=lambda: f"By default room is kept {Policy().until_kept()} that passed.\n"
    ),
    "docs/metrics.md": with_parts(metrics=metrics),
    "docs/settings.md": with_parts(
        settings=settings, variables=partial(variables, ours=True), others=partial(variables, ours=False)
    ),
    "helm/backoff-ctrl/README.md": with_parts(values=values),
}
