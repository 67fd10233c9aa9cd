"""Descriptions in YAML, of an operator or of a service: read from the platform's settings, from files, or shipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from backoff_ctrl.k8s.kube.charges.manifests import ManifestError, load_manifests, read_source

from .meanings import Described
from .wrong_values import OBJECTS, told, unknown_key

D = TypeVar("D", bound=Described)


class DescriptionError(ValueError):
    """A description can't be used; the message names the key and the valid values."""


@dataclass(frozen=True, slots=True)
class Descriptions(Generic[D]):
    """One kind of descriptions.

    ``what`` is described: an operator; in errors. ``section`` of the settings names them, ``keys`` are the most
    important ones, ``page`` explains all. ``folder`` has those that ship.
    """

    model: type[D]
    what: str
    section: str
    keys: str
    page: str
    folder: Traversable

    def read(self, document: Any, where: str) -> D:
        """Check one that was read from YAML. ``where`` names it in errors. Raises ``DescriptionError``."""
        if not isinstance(document, dict):
            raise DescriptionError(f"{where}: must be an object with keys such as {self.keys}")
        try:
            return self.model.model_validate(document)
        except ValidationError as error:
            raise DescriptionError(self._in_words(error, where)) from None

    def shipped(self) -> Iterator[D]:
        for file in sorted(self.folder.iterdir(), key=lambda each: each.name):
            if file.name.endswith(".yaml"):
                yield self._of_text(file.read_bytes(), file.name)

    def read_file(self, path: Path) -> D:
        """Read the file of one. Raises ``DescriptionError``, which names the file and the key."""
        try:
            return self._of_text(read_source(str(path)), str(path))
        except ManifestError as error:
            raise DescriptionError(str(error)) from None

    def read_files(self, paths: Iterable[Path]) -> Iterator[tuple[D, str]]:
        """Read files with any number of descriptions, as YAML documents; yield each with its place, for errors.

        Raises ``DescriptionError``.
        """
        for path in paths:
            try:
                documents = load_manifests(read_source(str(path)), str(path))
            except ManifestError as error:
                raise DescriptionError(str(error)) from None
            for number, document in enumerate(documents, 1):
                where = f"{path}, document {number}" if len(documents) > 1 else str(path)
                yield self.read(document, where), where

    def configured(self, section: Any, folder: Path, file: str | None = None) -> list[D]:
        """Return those of the section of the settings: a list of descriptions, and of files with one each.

        ``file`` is that of the settings, ``folder`` its folder, from which files are found. Raises
        ``DescriptionError``.
        """
        where = self.section if file is None else f"{file}: {self.section}"
        if section is None:
            return []
        if not isinstance(section, list):
            raise DescriptionError(
                f"{where}: must be a list of {self.what}s: descriptions, or the names of files with one"
            )
        found: list[D] = []
        for index, each in enumerate(section):
            place = f"{where}[{index}]"
            config = self.read_file(folder / each) if isinstance(each, str) else self.read(each, place)
            if config.id in {known.id for known in found}:
                raise DescriptionError(f"{place}: there are two {self.what}s with the id {config.id}: choose another")
            found.append(config)
        return found

    def _of_text(self, content: bytes, name: str) -> D:
        documents = load_manifests(content, name)
        if len(documents) > 1:
            raise DescriptionError(f"{name}: holds {len(documents)} documents: write one {self.what} to a file")
        return self.read(documents[0], name)

    def _in_words(self, error: ValidationError, where: str) -> str:
        """Return the first error as a sentence with its key, and the number of further ones."""
        first, more = error.errors()[0], error.error_count() - 1
        key = ".".join(map(str, first["loc"]))
        rest = f" (and {more} more)" if more else ""
        said = told(first)
        if first["type"] == "missing":
            said = "this key is missing, and needed"
        elif first["type"] in OBJECTS:
            said = "Input should be an object with keys"
        elif first["type"] == "extra_forbidden":
            said = f"{unknown_key(self.model, first['loc'])}; {self.page} explains them"
        return f"{where}: {f'{key}: ' if key else ''}{said}{rest}"


def files_of(section: Any, folder: Path) -> list[Path]:
    return [folder / each for each in section if isinstance(each, str)] if isinstance(section, list) else []
