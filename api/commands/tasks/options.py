"""What the commands about tasks share: their options, the platform's settings, and where store and cluster are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from backoff_ctrl.api.commands.cluster_options import CONTEXT, KUBECONFIG
from backoff_ctrl.api.commands.renamed import Renamed
from backoff_ctrl.api.exits import BadInput

if TYPE_CHECKING:
    from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess


log = logging.getLogger(__name__)

IN_CLUSTER: Final = "cluster"
"""The value of ``--store`` for tasks that are custom resources of the cluster. A file of that name is ``./cluster``."""
SET: Callable[[Any], Any] = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting that overrides the file, such as plugins.k8s.default-cpus=2. May be repeated.",
)
OF_A_TASK: Final = ("spec", "metadata")
"""With these begin the fields of a task that ``--set`` changes for ``--again``; settings begin otherwise."""


F = TypeVar("F", bound=Callable[..., object])

NAMESPACE: Final = click.option("-n", "--namespace", metavar="NAME", help="The namespace of the task.")


def place_options(command: F) -> F:
    """Add ``--store``, ``--gate`` and ``--token-file``, which choose where the tasks are."""
    for option in (
        click.option("--token-file", metavar="FILE", help="With --gate: the file with the token to send."),
        click.option(
            "--gate",
            cls=Renamed,
            old="--server",
            metavar="URL",
            help="Ask `backoff-ctrl serve --store` at this URL, not a store here.",
        ),
        click.option(
            "--store",
            metavar="FILE",
            help="The store, or `cluster`: its custom resources, which `backoff-ctrl operator` carries out. "
            "Default: $XDG_STATE_HOME/backoff-ctrl/tasks.db, below ~/.local/state where that is unset.",
        ),
    ):
        command = option(command)
    return command


def cluster_options(command: F) -> F:
    """Add what a manager needs: ``--config`` and ``--set``, and what ``reach_options`` adds."""
    for option in (
        SET,
        click.option("--config", metavar="FILE", help="The platform's settings, as YAML: plugins.k8s and the like."),
    ):
        command = option(command)
    return reach_options(command)


def reach_options(command: F) -> F:
    """Add ``--apiserver``, ``--kubeconfig`` and ``--context``, which choose the cluster."""
    for option in (
        CONTEXT,
        KUBECONFIG,
        click.option(
            "--apiserver",
            cls=Renamed,
            old="--upstream",
            metavar="URL",
            help="The URL of an API server that needs no credentials, such as the sandbox.",
        ),
    ):
        command = option(command)
    return command


def store_file(store: str | None) -> Path | None:
    """Return the file of the store; None: the tasks are in the cluster. Raises ``BadInput``."""
    if store == IN_CLUSTER:
        return None
    from backoff_ctrl.k8s.tasks.store import StoreError  # noqa: PLC0415 - pydantic
    from backoff_ctrl.k8s.tasks.tables import default_file, expanded  # noqa: PLC0415 - sqlite

    try:
        return default_file() if store is None else expanded(store)
    except StoreError as error:
        raise BadInput(str(error)) from None


def manifests_in(files: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the manifests in files, each with its name in errors. Raises ``BadInput``."""
    from backoff_ctrl.k8s.kube.charges.manifests import ManifestError, load_manifests, read_source  # noqa: PLC0415 - yaml

    for file in files:
        name = "stdin" if file == "-" else file
        try:
            found = load_manifests(read_source(file), name)
        except ManifestError as error:
            raise BadInput(str(error)) from None
        for number, manifest in enumerate(found, start=1):
            yield name if len(found) == 1 else f"{name}, document {number}", manifest


def find_cluster(apiserver: str | None, kubeconfig: str | None, context: str | None) -> ClusterAccess:
    """Return the cluster that the options choose. Raises ``BadInput``."""
    if apiserver is not None and (kubeconfig is not None or context is not None):
        raise BadInput("--apiserver cannot be combined with --kubeconfig or --context: give only one of them")
    from backoff_ctrl.k8s.kube.cluster.asking import ReachError, find_api_server  # noqa: PLC0415 - the client

    try:
        return find_api_server(apiserver, kubeconfig, context, None, patient=True)
    except ReachError as error:
        raise BadInput(str(error)) from None


def can_run_tasks() -> bool:
    """Return whether the packages of the plugin manager are installed."""
    from importlib.util import find_spec  # noqa: PLC0415

    return all(map(find_spec, ("pydantic", "pydantic_settings", "jsonpath")))


def needs_packages() -> None:
    """Raise ``BadInput`` if the packages of the plugin manager are not installed."""
    if not can_run_tasks():
        raise BadInput("task needs further packages: pip install 'backoff-ctrl[tasks]'")
