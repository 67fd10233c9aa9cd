"""Tasks at ``backoff-ctrl serve --store``: the manager is there, this process only asks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from backoff_ctrl.api.exits import BadInput, Failed
from backoff_ctrl.k8s.status.client import Instance, RefusedError, read_url, token_in
from backoff_ctrl.k8s.status.token import read_token
from backoff_ctrl.k8s.tasks.again import Needing, failed_by_need
from backoff_ctrl.k8s.tasks.documents import TaskDocument, TaskItem

from .hints import placed
from .options import manifests_in
from .showing import View

TIMEOUT: Final = 30.0
ASK_AGAIN: Final = 1.0
"""Seconds between two reads of unfinished tasks."""


class RemoteTasks:
    def __init__(self, server: str, token_file: str | None) -> None:
        """Prepare to ask. Raises ``BadInput``."""
        place = read_url(server)
        token = read_token(place.port) if place.local else ""
        if token_file is not None:
            token = token_in(token_file, "write the server's there")
        self._instance = Instance(place, TIMEOUT, token)
        self.url = place.url

    def items(self, namespace: str | None) -> list[TaskItem]:
        """Return all tasks, of one namespace or all."""
        try:
            return self._instance.everything("/v1/tasks", {"namespace": namespace}, TaskItem).items
        except RefusedError as error:
            raise self._without_tasks(error) from None

    def _without_tasks(self, error: RefusedError) -> Exception:
        """Return what is wrong where a server knows no path of tasks: it is a gate, or serves no store."""
        if error.status != 404 or "unknown path" not in str(error):
            return error
        return BadInput(
            f"{self.url} runs no tasks: name backoff-ctrl serve --store with --gate, or leave it out for a store here"
        )

    def show(self, namespace: str, name: str) -> TaskDocument:
        """Return one task with all details. Raises ``Failed`` if it does not exist."""
        return self._asked(lambda: self._instance.one(f"/v1/tasks/{namespace}/{name}", TaskDocument))

    def abort(self, namespace: str, name: str) -> TaskDocument:
        target = f"/v1/tasks/{namespace}/{name}/abort"
        return self._asked(lambda: self._instance.post(target, b"{}", TaskDocument)[0])

    def signal(self, namespace: str, name: str, value: Any) -> TaskDocument:
        """Signal a task. Raises ``Failed`` if it does not exist, or takes no signal."""
        target, body = f"/v1/tasks/{namespace}/{name}/signal", json.dumps({"value": value}).encode()
        return self._asked(lambda: self._instance.post(target, body, TaskDocument)[0])

    def again(self, namespace: str, name: str, changes: Sequence[tuple[str, Any]]) -> list[TaskItem]:
        """Run a task again that has ended, and with it those that failed by their need of it.

        Raises ``Failed`` if the task is missing, or has not ended.
        """
        ended = [each for each in self.items(namespace) if not each.unfinished]
        others = failed_by_need(name, {each.name: Needing(each.phase, each.code, each.needs) for each in ended})
        made: list[TaskItem] = []
        for each, changed in [(name, changes), *((other, ()) for other in others)]:
            target, body = f"/v1/tasks/{namespace}/{each}/again", json.dumps({"set": changed}).encode()
            made.append(self._asked(partial(self._again, target, body)))
        return made

    def _again(self, target: str, body: bytes) -> TaskDocument:
        return self._instance.post(target, body, TaskDocument)[0]

    def delete(self, namespace: str, name: str) -> TaskDocument:
        """Forget a task that has ended. Raises ``Failed`` if it does not exist, or has not ended."""
        return self._asked(lambda: self._instance.delete(f"/v1/tasks/{namespace}/{name}", TaskDocument))

    def log(
        self, namespace: str, name: str, container: str, say: Callable[[str], object], *, follow: bool
    ) -> Iterator[bytes]:
        """Yield a task's log as it comes; ``say`` gets a note about it. Raises ``Failed`` where it does not exist."""
        query = urlencode({**({"container": container} if container else {}), "follow": "true" if follow else "false"})
        try:
            yield from self._instance.text(f"/v1/tasks/{namespace}/{name}/log?{query}", say)
        except RefusedError as error:
            if error.status in {404, 409}:
                raise Failed(placed(str(error))) from None
            raise

    def create(self, files: Sequence[str], namespace: str) -> list[TaskItem]:
        """Create the tasks in files, one after the other. Raises ``BadInput``."""
        made = []
        for where, manifest in manifests_in(files):
            metadata = manifest.get("metadata")
            if isinstance(metadata, dict):
                metadata.setdefault("namespace", namespace)
            try:
                made.append(self._instance.post("/v1/tasks", json.dumps(manifest).encode(), TaskDocument)[0])
            except RefusedError as error:
                raise BadInput(f"{where}: {self._without_tasks(error)!s}") from None
        return list(made)

    def follow(self, followed: dict[str, TaskItem], view: View) -> None:
        """Show the progress of tasks, until all of them have ended."""
        for each in followed.values():
            view.changed(each)
        while left := {each.namespace for each in followed.values() if each.unfinished}:
            time.sleep(ASK_AGAIN)
            there = {each.uid: each for namespace in left for each in self.items(namespace)}
            for uid, known in list(followed.items()):
                found = there.get(uid)
                if found is None and known.namespace in left:
                    if known.unfinished:
                        raise Failed(f"task {known.namespace}/{known.name} was deleted at {self.url} meanwhile")
                elif found is not None and found != known:
                    followed[uid] = found
                    view.changed(found)

    def _asked(self, ask: Callable[[], TaskDocument]) -> TaskDocument:
        try:
            return ask()
        except RefusedError as error:
            if error.status in {404, 409}:
                raise Failed(placed(str(error))) from None
            raise
