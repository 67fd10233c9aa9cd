"""``create_gang``: all of these pods, or none of them."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.creates.creation import OptionError
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT

from .block import client_of, gang, is_async

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        except BaseException as error:
            created = [each.metadata.name for each in stored]
            left: list[str] = []
            for name in created:
                try:
                    delete(name, asked.namespace)
                except Exception as failure:  # noqa: BLE001 - the others are deleted all the same
                    _note_left(failure, name, left)
            if not isinstance(error, Exception):
                raise
            raise GangFailed(len(pods), created, left, error) from error
    return stored


async def _create_async(core: Any, asked: gang, pods: Sequence[Any]) -> list[Any]:
    create, delete = _verbs(core, asked)
    async with asked as admitted:
        tasks = [asyncio.ensure_future(create(asked.namespace, pod)) for pod in pods]
        error: BaseException | None
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)  # as ``gather``, but cancels none of them
            error = next((failed for task in tasks if task.done() and (failed := task.exception())), None)
        except BaseException as stop:  # noqa: BLE001 - raised below
            error = stop
        if error is None:
            return [task.result() for task in tasks]
        admitted.give_back()  # those that wait end at once; those that were sent are answered, and may be stored
        undoing = asyncio.ensure_future(_undo(tasks, delete, asked.namespace))
        _UNDOING.add(undoing)
        undoing.add_done_callback(_UNDOING.discard)
        created, left = await asyncio.shield(undoing)
        if not isinstance(error, Exception):
            raise error
        raise GangFailed(len(pods), created, left, error) from error


async def _undo(tasks: Sequence[asyncio.Future[Any]], delete: Any, namespace: str) -> tuple[list[str], list[str]]:
    """Wait until those that were sent are answered, and delete what they made; return all names, and those left."""
    await asyncio.wait(tasks, timeout=SERVER_LIMIT)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    created = [each.metadata.name for each in ended if not isinstance(each, BaseException)]
    left: list[str] = []
    for name in created:
        try:
            await delete(name, namespace)
        except Exception as failure:  # noqa: BLE001 - the others are deleted all the same
            _note_left(failure, name, left)
    return created, left


def _note_left(failure: Exception, name: str, left: list[str]) -> None:
    if getattr(failure, "status", None) != 404:
        left.append(name)
