"""``-n`` and ``-A``, as with kubectl: the context's namespace, another one, or all.

A gate and a store in a file know no context, and their creates and tasks may be in any namespace: there the default is
the namespace that the kubeconfig's context names, and all where it has no namespace, or where there is no kubeconfig.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.gate.settings import read_settings
from backoff_ctrl.k8s.kube.answers.fields import mapping, mappings, text
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.answers.spelling import near
from backoff_ctrl.k8s.status.client import ClientError, Instance, Listed

F = TypeVar("F", bound=Callable[..., object])
_HELP: Final = "The namespace; default: the context's."
_HELP_AT_A_GATE: Final = "The namespace; default: the one that the kubeconfig's context names, else all."
SHOW_ALL: Final = "-A shows all namespaces"
NAMED: Final = 5
"""Namespaces that a hint names."""


def namespace_options(*, at_a_gate: bool = False, several: bool = False) -> Callable[[F], F]:
    """Return what adds ``-n``, which ``several`` lets repeat, and ``-A``."""
    words = _HELP_AT_A_GATE if at_a_gate else _HELP
    more: dict[str, Any] = {"multiple": True, "help": f"{words} May be repeated."} if several else {"help": words}
    one = click.option("-n", "--namespace", "namespaces" if several else "namespace", metavar="NAME", **more)
    every = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces.")
    return lambda command: one(every(command))


def check_namespaces(*named: str | None, everywhere: bool) -> tuple[str, ...]:
    """Return what ``-n`` names; an empty name counts as missing, as for kubectl.

    Raises ``BadInput`` for both options.
    """
    found = tuple(dict.fromkeys(each for each in named if each))
    if found and everywhere:
        raise BadInput("-A means all namespaces, and -n one of them: give only one of them")
    return found


def at_a_gate(
    namespace: str | None, *, everywhere: bool, kubeconfig: str | None = None, context: str | None = None
) -> str | None:
    """Return the namespace to ask a gate or a file about; None: all. Raises ``BadInput`` for both options."""
    named = check_namespaces(namespace, everywhere=everywhere)
    if named:
        return named[0]
    return None if everywhere else context_namespace(kubeconfig, context)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What counts here of a namespace that an instance knows."""

    namespace: str
    waiting: int | None = None


def hint(text: str) -> None:
    """Print a hint on stderr: stdout stays the answer."""
    click.echo(printable(f"backoff-ctrl: {text}"), err=True)


def hint_elsewhere(instance: Instance, namespace: str) -> None:
    """Print the other namespaces that an instance knows after an empty answer: a misspelt name is empty, too."""
    try:
        found: Listed[_Seen] = instance.everything("/v1/namespaces", {}, _Seen)
    except ClientError:  # perhaps this account may not see all
        return
    others = {each.namespace: each.waiting or 0 for each in found.items if each.namespace != namespace}
    parts = []
    if len(others) == len(found.items):
        parts.append(f"{instance.place.url} does not know namespace {namespace}{known(namespace, others)}")
    if waiting := sum(others.values()):
        parts.append(f"{waiting} create{' waits' if waiting == 1 else 's wait'} in other namespaces")
    if others:
        hint(f"{'; '.join(parts)}{'; ' if parts else ''}{SHOW_ALL}")


def hint_unseen(instance: Instance, namespace: str) -> None:
    """Warn that an instance does not know a namespace, before an action there: its name may be misspelt."""
    try:
        found: Listed[_Seen] = instance.everything("/v1/namespaces", {}, _Seen)
    except ClientError:  # the action itself says why
        return
    names = {each.namespace for each in found.items}
    if namespace not in names:
        hint(f"{instance.place.url} has not seen a create in namespace {namespace} yet{known(namespace, names)}")


def known(namespace: str, others: Iterable[str]) -> str:
    """Return which of the ``others`` may be meant by an unknown name, else some of them."""
    names = sorted(others)
    if like := near(namespace, names):
        return f" (did you mean {like}?)"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f", but {', '.join(names[:NAMED])}{more}" if names else ""


def context_namespace(kubeconfig: str | None = None, context: str | None = None) -> str | None:
    """Return the namespace that a context names, by default the current one; None if it can't be read.

    Of several files the first that names a current context, or has an entry of its name, counts, as for kubectl.
    """
    documents = [_read(Path(file)) for file in _files(kubeconfig)]
    chosen = context or next(filter(None, (text(each.get("current-context")) for each in documents)), "")
    for document in documents:
        for each in mappings(document.get("contexts")):
            if chosen and each.get("name") == chosen:
                return text(mapping(each.get("context")).get("namespace")) or None
    return None


def _files(kubeconfig: str | None) -> list[str]:
    if kubeconfig:
        return [kubeconfig]
    if named := read_settings().kubeconfig:
        return [each for each in named.split(os.pathsep) if each]
    return [os.path.join(os.path.expanduser("~"), ".kube", "config")]  # noqa: PTH111, PTH118 - Path raises without a home


def _read(file: Path) -> Mapping[str, Any]:
    """Return a kubeconfig, empty if it can't be read: what asks a gate does not need one."""
    if not file.is_file():
        return {}
    import yaml  # noqa: PLC0415 - 20 ms, only where there is a kubeconfig

    from backoff_ctrl.k8s.kube.charges.bounded_yaml import BoundedLoader  # noqa: PLC0415 - the same

    try:
        return mapping(yaml.load(file.read_bytes(), BoundedLoader))  # noqa: S506 - a safe loader, bounded
    except (OSError, ValueError, yaml.YAMLError):
        return {}
