"""The operators that the generic plugin knows: those that ship with it, and those of a platform's configuration."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.charges.manifests import ManifestError, load_manifests, read_source

from .config import OperatorConfig, OperatorConfigError, read_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def shipped_configs() -> Iterator[OperatorConfig]:
    """Return the operators that ship: Spark, Ray, Dask, and Kubeflow's PyTorch, TensorFlow and MPI jobs."""
    for file in sorted((files(__package__) / "operators").iterdir(), key=lambda each: each.name):
        if file.name.endswith(".yaml"):
            yield _read(file.read_bytes(), file.name)


def read_file(path: Path) -> OperatorConfig:
    """Read the config of one operator. Raises ``OperatorConfigError``, which names the file and the key."""
    try:
        return _read(read_source(str(path)), str(path))
    except ManifestError as error:
        raise OperatorConfigError(str(error)) from None


def configured(section: Any, folder: Path, where: str = "plugins.generic") -> list[OperatorConfig]:
    """Return the operators of the section ``plugins.generic``: a list of configs, and of files that hold one.

    Files are found from ``folder``, that of the configuration. Raises ``OperatorConfigError``.
    """
    if section is None:
        return []
    if not isinstance(section, list):
        raise OperatorConfigError(f"{where}: must be a list of operators: configs, or the names of files with one")
    found: list[OperatorConfig] = []
    for index, each in enumerate(section):
        place = f"{where}[{index}]"
        config = read_file(folder / each) if isinstance(each, str) else read_config(each, place)
        if config.id in {known.id for known in found}:
            raise OperatorConfigError(f"{place}: there are two operators with the id {config.id}: choose another")
        found.append(config)
    return found


def files_of(section: Any, folder: Path) -> list[Path]:
    """Return the files that the section names."""
    return [folder / each for each in section if isinstance(each, str)] if isinstance(section, list) else []


def _read(content: bytes, name: str) -> OperatorConfig:
    documents = load_manifests(content, name)
    if len(documents) > 1:
        raise OperatorConfigError(f"{name}: holds {len(documents)} documents: write one operator to a file")
    return read_config(documents[0], name)
