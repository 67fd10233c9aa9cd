"""Tasks from files: each is checked whole, its object is built once, and only then is anything stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.charges.manifests import ManifestError, load_manifests, read_source
from backoff_ctrl.k8s.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.reading import metadata_json, read_task, spec_json
from backoff_ctrl.k8s.tasks.store import Wish
from backoff_ctrl.k8s.tasks.through_plugins import check

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .settings import Platform


def manifests_in(files: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the manifests in files, each with what to call it in an error. Raises ``BadInput``."""
    for file in files:
        name = "stdin" if file == "-" else file
        try:
            found = load_manifests(read_source(file), name)
        except ManifestError as error:
            raise BadInput(str(error)) from None
        for number, manifest in enumerate(found, start=1):
            yield name if len(found) == 1 else f"{name}, document {number}", manifest


def wishes_in(files: Sequence[str], namespace: str, platform: Platform) -> list[Wish]:
    """Return the tasks in files; ``namespace`` is for those that name none. Raises ``BadInput``."""
    wishes: dict[tuple[str, str], Wish] = {}
    for where, manifest in manifests_in(files):
        try:
            task = read_task(manifest, namespace)
            assert task.metadata.namespace is not None
            wish = Wish(
                task.metadata.namespace, task.metadata.name, metadata_json(task), spec_json(task), task.spec.abort
            )
            check(wish, platform.registry, platform.config())
        except TaskSpecError as error:
            raise BadInput(f"{where}: {error}") from None
        key = (wish.namespace, wish.name)
        if key in wishes and wishes[key] != wish:
            raise BadInput(f"{where}: metadata.name: {wish.namespace}/{wish.name} is in these files twice: rename one")
        wishes[key] = wish
    return list(wishes.values())
