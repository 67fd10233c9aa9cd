"""What a shell completes: names of tasks, and task types. It never fails, waits long, or changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from click.shell_completion import CompletionItem

from backoff_ctrl.k8s.kube.time_limit import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import click

    from backoff_ctrl.k8s.tasks.documents import TaskItem

    T = TypeVar("T")
    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

WITHIN: Final = 8.0
"""Seconds until it gives up, loading included: a person waits for it."""


def existing(_: TaskItem) -> bool:
    return True


def unfinished(task: TaskItem) -> bool:
    return task.unfinished


def ended(task: TaskItem) -> bool:
    return not task.unfinished


def unsignalled(task: TaskItem) -> bool:
    return task.unfinished and task.type == "signal"


def of_tasks(fits: Callable[[TaskItem], bool]) -> Complete:
    """Return what completes the names of tasks that fit, with their phases."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
        found = [each for each in _soon(lambda: _items(ctx.params)) if fits(each)]
        return [CompletionItem(each.name, help=each.phase) for each in found if each.name.startswith(incomplete)]

    return complete


def task_types(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Complete the task types that the platform's plugins serve."""
    found = sorted(_soon(lambda: _types(ctx.params)))
    return [CompletionItem(each) for each in found if each.startswith(incomplete)]


def _items(given: Mapping[str, Any]) -> Iterable[TaskItem]:
    from .options import store_file  # noqa: PLC0415 - loads much, at a key that is pressed
    from .places import cluster_of, in_cluster, items_in  # noqa: PLC0415

    if in_cluster(given):  # few may list all
        return items_in(given["namespace"] or cluster_of(given).namespace, given)
    file = store_file(given["store"]) if given["gate"] is None else None
    return () if file is not None and not file.exists() else items_in(given["namespace"], given)


def _types(given: Mapping[str, Any]) -> Iterable[str]:
    from backoff_ctrl.k8s.tasks.platform import Platform  # noqa: PLC0415 - loads pydantic

    return Platform(given["config"], given["settings"] or ()).registry.task_types()


def _soon(read: Callable[[], Iterable[T]]) -> Iterable[T]:
    """Return what is found in time; an empty list where it can't be read."""
    try:
        return within(WITHIN, lambda: list(read()))
    except Exception:  # noqa: BLE001 - the command itself will say what is wrong
        return []
