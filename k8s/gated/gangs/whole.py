"""``create_gang``: all of these pods, or none of them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from backoff_ctrl.k8s.creates.creation import OptionError
from backoff_ctrl.k8s.creates.treatments import SERVER_LIMIT

from .block import client_of, gang, is_async

_UNDOING: Final[set[asyncio.Future[Any]]] = set()
"""The event loop itself holds no task: one whose caller is gone goes on all the same."""


class GangFailed(Exception):  # noqa: N818 - a result, as ``GangRefused``
    """Not all members of a gang could be created. What was created was deleted again, but for ``left``, if any.

    ``created`` and ``left`` are names; the cause is the error of the first create that failed.
    """

    def __init__(self, count: int, created: list[str], left: list[str], error: BaseException) -> None:
        """``count`` is the number of members."""
        said = f"{len(created)} of {count} members of the gang were created, then one failed: {_short(error)}. "
        if left:
            said += f"These could not be deleted again: {', '.join(left)}"
        else:
            said += "Those that were created are deleted again" if created else "Nothing is left of it"
        super().__init__(said)
        self.created = created
        self.left = left


def _short(error: BaseException) -> str:
    """Return the server's sentence, or what else says most."""
    try:
        said = json.loads(getattr(error, "body", "") or "")["message"]
    except (ValueError, TypeError, KeyError):
        said = getattr(error, "reason", None) or error
    return str(said).strip().partition("\n")[0].rstrip(".")


def create_gang(core: Any, objects: Sequence[Any], **options: Any) -> Any:
    """Create all of these pods (or Jobs) once there is room for all of them; return the stored objects, in order.

    Arguments and errors are those of ``gang``; ``core`` is a ``CoreV1Api`` for pods, a ``BatchV1Api`` for Jobs. If a
    create fails, what was created is deleted again, and ``GangFailed`` says so. With a client for asyncio, await what
    this returns.
    """
    asked = gang(core, objects, **options)
    if is_async(client_of(core)):
        return _create_async(core, asked, objects)
    return _create(core, asked, objects)


def _verbs(core: Any, asked: gang) -> tuple[Any, Any]:
    """Return how these objects are created and deleted. Raises ``OptionError`` where ``core`` has no such create."""
    kinds = {str(manifest.get("kind") or "Pod") for manifest in asked.manifests}
    kind = "Pod" if not kinds else kinds.pop()
    create = getattr(core, f"create_namespaced_{kind.lower()}", None)
    if kinds or create is None:
        raise OptionError(
            f"create_gang creates objects of one kind that its API creates, not {', '.join(sorted({kind, *kinds}))} "
            f"by {type(core).__name__}: create others in a `with gang(...)` block"
        )
    delete = getattr(core, f"delete_namespaced_{kind.lower()}")
    return create, partial(delete, propagation_policy="Background") if kind != "Pod" else delete


def _create(core: Any, asked: gang, pods: Sequence[Any]) -> list[Any]:
    create, delete = _verbs(core, asked)
    stored: list[Any] = []
    with asked:
        try:
            for pod in pods:
                stored.append(create(asked.namespace, pod))  # noqa: PERF401 - kept if one fails
        finally:
            if len(stored) < len(pods):
                created = [each.metadata.name for each in stored]
                _raise_failed(len(pods), created, [name for name in created if _is_left(delete, name, asked.namespace)])
    return stored


def _is_left(delete: Any, name: str, namespace: str) -> bool:
    try:
        delete(name, namespace)
    except Exception as failure:  # noqa: BLE001 - the others are deleted all the same
        return _leaves(failure)
    return False


async def _create_async(core: Any, asked: gang, pods: Sequence[Any]) -> list[Any]:
    create, delete = _verbs(core, asked)
    async with asked as admitted:
        tasks = [asyncio.ensure_future(create(asked.namespace, pod)) for pod in pods]
        stored: list[Any] = []
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)  # as ``gather``, but cancels none of them
            _raise_first(tasks)
            stored = [task.result() for task in tasks]
        finally:
            if len(stored) < len(pods):
                admitted.give_back()  # those that wait end at once; those that were sent are answered, perhaps stored
                undoing = asyncio.ensure_future(_undo(tasks, delete, asked.namespace))
                _UNDOING.add(undoing)
                undoing.add_done_callback(_UNDOING.discard)
                _raise_failed(len(pods), *await asyncio.shield(undoing))
        return stored


def _raise_first(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


async def _undo(tasks: Sequence[asyncio.Future[Any]], delete: Any, namespace: str) -> tuple[list[str], list[str]]:
    """Wait until those that were sent are answered, and delete what they made; return all names, and those left."""
    await asyncio.wait(tasks, timeout=SERVER_LIMIT)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    created = [each.metadata.name for each in ended if not isinstance(each, BaseException)]
    deleted = await asyncio.gather(*(delete(name, namespace) for name in created), return_exceptions=True)
    return created, [name for name, end in zip(created, deleted, strict=True) if _leaves(end)]


def _leaves(failure: object) -> bool:
    """Say whether a delete that ended so has left the object."""
    return isinstance(failure, BaseException) and getattr(failure, "status", None) != 404


def _raise_failed(count: int, created: list[str], left: list[str]) -> None:
    """Say what came of the gang, in place of the error that is being handled. A Ctrl-C or a cancellation goes on."""
    error = sys.exception()
    if isinstance(error, Exception):
        raise GangFailed(count, created, left, error) from error
