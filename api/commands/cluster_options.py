"""The options by which a command finds its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import click

from backoff_ctrl.api.exits import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., object])


def cluster_options(command: F) -> F:
    """Add ``--server``, ``--kubeconfig`` and ``--context``."""
    for option in (
        click.option("--context", help="A context of the kubeconfig; default: the current one."),
        click.option(
            "--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, ~/.kube/config, then the pod's account."
        ),
        click.option(
            "--server", metavar="URL", help="An API server that asks for no credentials, such as the sandbox."
        ),
    ):
        command = option(command)
    return command


def check_cluster_options(server: str | None, kubeconfig: str | None, context: str | None) -> None:
    """Refuse what names two clusters. Raises ``BadInput``."""
    if server is not None and (kubeconfig is not None or context is not None):
        raise BadInput("--server and --kubeconfig or --context name two clusters: give one of them")
