"""The command-line options that choose a cluster."""

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
        click.option("--context", help="The context in the kubeconfig; default: the current one."),
        click.option(
            "--kubeconfig",
            metavar="FILE",
            help="The kubeconfig; default: $KUBECONFIG, ~/.kube/config, then the pod's service account.",
        ),
        click.option(
            "--server", metavar="URL", help="The URL of an API server that needs no credentials, such as the sandbox."
        ),
    ):
        command = option(command)
    return command


def check_cluster_options(server: str | None, kubeconfig: str | None, context: str | None) -> None:
    """Raise ``BadInput`` if the options choose two clusters."""
    if server is not None and (kubeconfig is not None or context is not None):
        raise BadInput("--server cannot be combined with --kubeconfig or --context: give only one of them")
