"""Writes the table of docs/settings.md from the settings themselves: ``python docs/settings_page.py [--check]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent))  # also where nothing is installed

from backoff_ctrl.k8s.plugins.config.platform import Backoff, TaskPlugins
from backoff_ctrl.k8s.plugins.config.settings import CoPilot, K8sPluginConfig, Settings
from docs.tables import write_table

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path(__file__).parent / "settings.md"
START: Final = "<!-- table: settings, written by docs/settings_page.py -->\n"
END: Final = "<!-- end: settings -->"


def rows(model: type[Settings], prefix: str) -> Iterator[str]:
    """Write each key of a section as a row of the table, those of sections in it too."""
    defaults = model().model_dump(mode="json", by_alias=True)
    for field in model.model_fields.values():
        section: Any = field.annotation
        if isinstance(section, type) and issubclass(section, Settings) and section is not CoPilot:
            yield from rows(section, f"{prefix}{field.alias}.")
            continue
        default = defaults[str(field.alias)]
        shown = "as in Flyte" if isinstance(default, dict) and "image" in default else f"`{json.dumps(default)}`"
        yield f"| `{prefix}{field.alias}` | {shown} | {' '.join(str(field.description).split())} |"


def table() -> str:
    """Write the table."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    tasks = [*rows(TaskPlugins, "tasks.task-plugins."), *rows(Backoff, "tasks.backoff.")]
    return "\n".join([*lines, *rows(K8sPluginConfig, "plugins.k8s."), *tasks, ""])


if __name__ == "__main__":
    sys.exit(write_table(PAGE, (START, END), table(), "docs/settings_page.py"))
