"""``--kinds``: descriptions of kinds that wait beside those that are built in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff_ctrl.api.commands.tasks.options import can_run_tasks
from backoff_ctrl.api.exits import BadInput

if TYPE_CHECKING:
    from backoff_ctrl.k8s.workloads.admitting.kinds import AdmissibleKind

KINDS: Callable[[Any], Any] = click.option(
    "--kinds",
    "kinds",
    multiple=True,
    metavar="FILE",
    help="Kinds that wait as Jobs do: YAML with a description of the operator of each; of a folder, all such files. "
    "May be repeated.",
)


def kinds_of(files: Iterable[str]) -> Sequence[AdmissibleKind]:
    """Return the kinds that wait. Raises ``BadInput``."""
    from backoff_ctrl.k8s.workloads.admitting.kinds import KINDS as BUILT_IN  # noqa: PLC0415

    paths = [file for each in files for file in _files(Path(each))]
    if not paths:
        return BUILT_IN
    if not can_run_tasks():
        raise BadInput("--kinds needs further packages: pip install 'backoff-ctrl[tasks]'")
    from backoff_ctrl.k8s.kube.operators.descriptions import DescriptionError  # noqa: PLC0415 - pydantic
    from backoff_ctrl.k8s.workloads.admitting.described import described_kinds  # noqa: PLC0415 - pydantic

    try:
        return described_kinds(paths)
    except DescriptionError as error:
        raise BadInput(str(error)) from None


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.yaml")) if path.is_dir() else [path]
