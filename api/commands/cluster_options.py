"""The options that choose a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from backoff_ctrl.api.exits import BadInput

from .renamed import Renamed

F = TypeVar("F", bound=Callable[..., object])

KUBECONFIG: Callable[[Any], Any] = click.option(
    "--kubeconfig",
    metavar="FILE",
    help="The kubeconfig; default: $KUBECONFIG, ~/.kube/config, then the pod's service account.",
)
CONTEXT: Callable[[Any], Any] = click.option(
    "--context", help="The context in the kubeconfig; default: the current one."
)
APISERVER: Callable[[Any], Any] = click.option(
    "--apiserver",
    cls=Renamed,
    old="--server",
    metavar="URL",
    help="The URL of an API server that needs no credentials, such as the sandbox.",
)


def cluster_options(command: F) -> F:
    """Add ``--apiserver``, ``--kubeconfig`` and ``--context``."""
    for option in (CONTEXT, KUBECONFIG, APISERVER):
        command = option(command)
    return command


def check_cluster_options(apiserver: str | None, kubeconfig: str | None, context: str | None) -> None:
    """Raise ``BadInput`` if the options choose two clusters."""
    if apiserver is not None and (kubeconfig is not None or context is not None):
        raise BadInput("--apiserver cannot be combined with --kubeconfig or --context: give only one of them")
