"""Hints of the commands about tasks: each command that they print leads to the same tasks, wherever it is pasted."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from backoff_ctrl.api.commands.typed import pasted, words_typed

if TYPE_CHECKING:
    from backoff_ctrl.k8s.tasks.documents import TaskItem

RUN: Final = "backoff-ctrl task run"
PLACE: Final = frozenset({"store", "gate", "token_file", "apiserver", "kubeconfig", "context"})
"""The options that lead to the tasks."""
OF_ONE_RUN: Final = frozenset({"files", "again", "namespace"})
"""Options of ``task run`` that choose tasks: to continue is to take up what is unfinished."""
OF_A_LOOK: Final = frozenset({"admin", "abort_on_exit", "as_json", "output"})
"""Options of ``task run`` that change how it is shown or left."""
NOT_YET: Final = frozenset({"NotReady", "WaitingForResources", "Paused", "RetryableFailure"})
"""Phases in which an attempt has no object in the cluster and no job at a service: not yet, or not any more."""
_COMMAND: Final = re.compile(r"backoff-ctrl task (?:list|delete [^ )]+ -n [^ )]+)")
"""The commands that a store names, which does not know how it was found."""


def placed(said: str) -> str:
    """Return a sentence of a store whose commands lead to that store, as the command that was typed does."""
    context = click.get_current_context(silent=True)
    words = [] if context is None else words_typed(context, only=PLACE)
    return _COMMAND.sub(lambda found: pasted(found[0], *words), said)


def again_here(settings: Collection[str] = ()) -> list[str]:
    """Return the options with which a task of this ``task run`` runs again; ``settings`` are those of the platform."""
    typed = {"settings": tuple(settings)}
    return words_typed(click.get_current_context(), without=OF_ONE_RUN | OF_A_LOOK, instead=typed)


def come_back(
    items: Iterable[TaskItem], *, by_others: bool, namespaces: bool, settings: Collection[str] = ()
) -> list[str]:
    """Return what becomes of unfinished tasks once this ``task run`` has ended, and the commands that take them up.

    ``by_others``: another process carries them out, a manager or the cluster's operator. ``namespaces``: a run follows
    those of one namespace. ``settings`` are those of the platform.
    """
    unfinished = [each for each in items if each.unfinished]
    typed: Mapping[str, Any] = {"settings": tuple(settings)}
    words = words_typed(click.get_current_context(), without=OF_ONE_RUN, instead=typed)
    places = sorted({each.namespace for each in unfinished}) if namespaces else []
    chosen = [["-n", each] for each in places] or [[]]
    how = "Watch" if by_others else "Continue"
    commands = [f"{how} with: {pasted(RUN, *each, *words)}" for each in chosen]
    return [f"{left_behind(unfinished, by_others=by_others)} {commands[0]}", *commands[1:]]


def left_behind(unfinished: Collection[TaskItem], *, by_others: bool) -> str:
    """Return what becomes of unfinished tasks once a command has ended."""
    if by_others:
        return f"{_counted(len(unfinished), 'task continues', 'tasks continue')} without this command."
    waits = sum(each.phase in NOT_YET for each in unfinished)
    inside = sum(each.phase not in NOT_YET and each.object is not None for each in unfinished)
    outside = len(unfinished) - waits - inside  # the job of a web service
    parts = [f"{_counted(inside, 'runs', 'run')} on in the cluster"] if inside else []
    parts += [f"{_counted(outside, 'runs', 'run')} on outside the cluster"] if outside else []
    parts += [f"{_counted(waits, 'waits', 'wait')} until you continue"] if waits else []
    return f"{_counted(len(unfinished), 'task is', 'tasks are')} unfinished: {', '.join(parts)}."


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
