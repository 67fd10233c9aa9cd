"""The options that the commands about tasks share, and where these look for tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import click

from backoff_ctrl.api.exits import BadInput

from .settings import SET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backoff_ctrl.k8s.cluster.finding import ClusterAccess

    F = TypeVar("F", bound=Callable[..., object])

AS_JSON: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else on stdout."
)
NAMESPACE: Final = click.option("-n", "--namespace", metavar="NAME", help="The namespace of the task.")


def place_options(command: F) -> F:
    """Add ``--store``, ``--server`` and ``--token-file``: where the tasks are."""
    for option in (
        click.option("--token-file", metavar="FILE", help="With --server: the file with the token to show there."),
        click.option(
            "--server", metavar="URL", help="Ask `backoff-ctrl serve --store` at this URL, and open no store here."
        ),
        click.option(
            "--store",
            metavar="FILE",
            help="The store; default: $XDG_STATE_HOME/backoff-ctrl/tasks.db, below ~/.local/state where that is unset.",
        ),
    ):
        command = option(command)
    return command


def cluster_options(command: F) -> F:
    """Add what a manager needs: ``--upstream``, ``--kubeconfig``, ``--context``, ``--config`` and ``--set``."""
    for option in (
        SET,
        click.option("--config", metavar="FILE", help="The platform's settings, as YAML: plugins.k8s and the like."),
        click.option("--context", help="The context in the kubeconfig; default: the current one."),
        click.option(
            "--kubeconfig",
            metavar="FILE",
            help="The kubeconfig; default: $KUBECONFIG, ~/.kube/config, then the pod's service account.",
        ),
        click.option(
            "--upstream",
            metavar="URL",
            help="The URL of an API server that needs no credentials, such as the sandbox.",
        ),
    ):
        command = option(command)
    return command


def store_file(store: str | None, server: str | None) -> Path:
    """Return the file of the store. Raises ``BadInput`` if two places are given."""
    if store is not None and server is not None:
        raise BadInput("--store and --server name two different stores: give only one of them")
    from backoff_ctrl.k8s.tasks.sqlite.file import default_file, expanded  # noqa: PLC0415 - sqlite
    from backoff_ctrl.k8s.tasks.store import StoreError  # noqa: PLC0415 - pydantic

    try:
        return default_file() if store is None else expanded(store)
    except StoreError as error:
        raise BadInput(str(error)) from None


def find_cluster(upstream: str | None, kubeconfig: str | None, context: str | None) -> ClusterAccess:
    """Return the cluster that the options choose. Raises ``BadInput``."""
    if upstream is not None and (kubeconfig is not None or context is not None):
        raise BadInput("--upstream cannot be combined with --kubeconfig or --context: give only one of them")
    from backoff_ctrl.k8s.cluster.finding import ReachError, find_place  # noqa: PLC0415 - the client

    try:
        return find_place(upstream, kubeconfig, context, None)
    except ReachError as error:
        raise BadInput(str(error).replace("--server", "--upstream")) from None


def needs_packages() -> None:
    """Raise ``BadInput`` if the packages of the plugin manager are not installed."""
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("pydantic") is None or find_spec("pydantic_settings") is None or find_spec("jsonpath") is None:
        raise BadInput("task needs further packages: pip install 'backoff-ctrl[tasks]'")
