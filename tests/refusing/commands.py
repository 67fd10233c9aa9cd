"""All commands of the program, as its parser knows them, with as few arguments as each needs to reach a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from backoff_ctrl.api.main import cli
from backoff_ctrl.ending import SERVERS

POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "team"},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}
TASK: Final[dict[str, Any]] = {
    "apiVersion": "backoff-ctrl.dev/v1alpha1",
    "kind": "Task",
    "metadata": {"name": "t", "namespace": "team"},
    "spec": {"type": "container", "container": {"image": "x"}},
}
_MORE: Final = {
    "demo": ("--pods", "5"),
    "inject": ("--namespace", "team"),
    "jobs release": ("x",),
    "task run": ("-f", "TASK"),
    "top": ("--json",),
    "uninstall": ("--yes",),
}
"""What a command needs beside what its parser requires. A command that is new here needs nothing."""
HERE: Final = ("completion", "sandbox", "task schema", "classify", "footprint", "phase")
"""Commands that ask no server."""


@dataclass(frozen=True)
class Command:
    name: str
    options: tuple[click.Option, ...]
    arguments: tuple[str, ...]

    @property
    def serves(self) -> bool:
        """Whether it runs until it is stopped, and waits for rights meanwhile."""
        return self.name in SERVERS or self.name == "task run"

    def has(self, *names: str) -> bool:
        return set(names) <= {name for each in self.options for name in each.opts}

    @property
    def takes_kubeconfig(self) -> bool:
        return self.has("--kubeconfig", "--context")

    @property
    def url_of_gate(self) -> str:
        """The option that names a gate, or ``serve``; empty: it asks none."""
        return next((each.opts[0] for each in self._urls() if "API server" not in (each.help or "")), "")

    @property
    def url_of_api_server(self) -> str:
        """The option that names an API server; empty: it has none."""
        return next((each.opts[0] for each in self._urls() if "API server" in (each.help or "")), "")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The options that say where it listens."""
        found = (each for each in self.options if each.metavar in ("HOST:PORT", "ADDRESS") or each.name == "listen")
        return tuple(max(each.opts, key=len) for each in found)

    def _urls(self) -> Iterator[click.Option]:
        return (each for each in self.options if each.metavar == "URL" and not each.multiple)

    def line(self, folder: Path, *more: str) -> list[str]:
        """Return the command line, with files that it needs in a folder."""
        files = {"TASK": TASK, "POD": POD}
        for name, content in files.items():
            (folder / f"{name}.yaml").write_text(json.dumps(content), encoding="utf-8")
        given = [*self.name.split(), *self.arguments, *_MORE.get(self.name, ()), *more]
        if self.has("--store") and self.takes_kubeconfig and self.name != "serve" and "--store" not in more:
            given += ["--store", "cluster"]
        if self.has("--listen") and "--listen" not in more:
            given += ["--listen", "127.0.0.1:0"]
        return [str(folder / f"{each}.yaml") if each in files else each for each in given]


def commands() -> list[Command]:
    """Return all that can be called, in the order of ``--help``."""
    return [*_below(cli, ())]


def asking() -> list[Command]:
    """Return those that ask a server."""
    return [each for each in commands() if each.name not in HERE]


def _below(command: click.Command, path: tuple[str, ...]) -> Iterator[Command]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _below(below, (*path, name))
        return
    options = tuple(each for each in command.params if isinstance(each, click.Option))
    needed = [word for each in command.params if each.required and each.name != "listen" for word in _filled(each)]
    yield Command(" ".join(path), options, tuple(needed))


def _filled(param: click.Parameter) -> list[str]:
    """Return words for a parameter that is required."""
    if isinstance(param.type, click.Choice):
        word = str(param.type.choices[0])
    elif param.type.name in ("integer", "integer range", "float", "float range"):
        word = "1"
    else:
        word = "POD" if param.metavar == "FILE" or param.type.name in ("file", "path") else "x"
    return [word] if isinstance(param, click.Argument) else [param.opts[0], word]
