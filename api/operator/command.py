"""``backoff-ctrl operator``: in the cluster, lets suspended Jobs in and carries out Tasks."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from backoff_ctrl.api.commands.cluster_options import check_cluster_options, cluster_options
from backoff_ctrl.api.commands.kinds_option import KINDS, kinds_of
from backoff_ctrl.api.commands.options import POLICY, address_of, log_to_stderr, set_policy
from backoff_ctrl.api.commands.tasks.options import SET, needs_packages
from backoff_ctrl.api.exits import DONE, FAILED, BadInput
from backoff_ctrl.ending import at_signals
from backoff_ctrl.k8s.tasks.platform import Platform

if TYPE_CHECKING:
    from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess

    from .replica import OperatorSettings

_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@click.command("operator")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="A namespace that it looks after; default: all. May be repeated.",
)
@click.option("--lease", default="backoff-ctrl-operator", show_default=True, help="The Lease by which replicas elect.")
@click.option("--lease-namespace", metavar="NAME", help="Where that Lease is; default: this pod's, or the context's.")
@click.option("--admin", metavar="HOST:PORT", help="Serve the status API of its line there, for this machine alone.")
@click.option("--probe-listen", metavar="HOST:PORT", help="Serve /livez, /readyz and /metrics there.")
@click.option("--config", metavar="FILE", help="The platform's settings, as YAML: plugins.k8s and the like.")
@SET
@KINDS
@POLICY
@click.option("--print-crd", is_flag=True, help="Print the definition of Tasks for kubectl apply, and end.")
@cluster_options
def command(apiserver: str | None, kubeconfig: str | None, context: str | None, **given: Any) -> int:
    """Let suspended Jobs in where their quota has room, and carry out Tasks, until Ctrl-C or SIGTERM.

    Jobs (and JobSets, RayJobs, ...) that carry the label backoff-ctrl.dev/wait=true and are suspended wait here, in one
    line with the Tasks: each is resumed once all its pods fit into the quotas, and its room stays its own while it
    runs. `backoff-ctrl inject --for jobs` suspends new ones. Of several replicas one works, and the others take over
    when it ends.

    \b
    backoff-ctrl operator --print-crd | kubectl apply -f -
    backoff-ctrl operator --admin 127.0.0.1:9095

    Exit codes: 0 ended by Ctrl-C or SIGTERM; 1 its work did not end in time; 2 wrong usage, or the cluster or an
    address can't be used.
    """
    needs_packages()
    if given["print_crd"]:
        from backoff_ctrl.k8s.tasks.cluster.schema import written  # noqa: PLC0415 - pydantic

        click.echo(written(), nl=False)
        return DONE
    from backoff_ctrl.k8s.kube.cluster.asking import ReachError, find_api_server  # noqa: PLC0415 - imports the client

    check_cluster_options(apiserver, kubeconfig, context)
    platform = Platform(given["config"], given["settings"])
    set_policy(given["policy"], platform.policy())
    log_to_stderr(logging.INFO)
    try:
        place = find_api_server(apiserver, kubeconfig, context, None, patient=True)
    except ReachError as error:
        raise BadInput(str(error)) from None
    from backoff_ctrl.k8s.kube.cluster.election import StuckError  # noqa: PLC0415 - imports aiohttp

    try:
        asyncio.run(_run(place, _settings(given, place), platform))
    except StuckError as error:
        logging.getLogger(__name__).error("it ends, so that a new process can go on: %s", error)  # noqa: TRY400
        return FAILED
    return DONE


async def _run(place: ClusterAccess, settings: OperatorSettings, platform: Platform) -> None:
    from .leaving import end_in_time  # noqa: PLC0415 - loads what the other commands do not need
    from .replica import Operator  # noqa: PLC0415 - loads much

    over = asyncio.Event()
    at_signals((signal.SIGINT, signal.SIGTERM), over.set)
    await Operator(place.configuration, settings, platform).run(over, click.echo, end_in_time)


def _settings(given: dict[str, Any], place: ClusterAccess) -> OperatorSettings:
    from backoff_ctrl.k8s.kube.cluster.address import read_address  # noqa: PLC0415
    from backoff_ctrl.k8s.kube.paths import PathError, path_to  # noqa: PLC0415

    from .replica import OperatorSettings  # noqa: PLC0415 - loads much

    asked = given["probe_listen"]
    probes = None if asked is None else address_of("--probe-listen", asked, "127.0.0.1:9098")
    try:
        if given["admin"] is not None:
            read_address(given["admin"])
    except ValueError as error:
        raise BadInput(f"--admin: {error}") from None
    own = given["lease_namespace"]
    if own is None:
        own = _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else place.namespace
    try:
        path_to("/apis/coordination.k8s.io/v1", "leases", namespace=own, name=given["lease"])
    except PathError as error:
        raise BadInput(f"--lease {given['lease']}, --lease-namespace {own}: {error}") from None
    namespaces, kinds = tuple(dict.fromkeys(given["namespaces"])), kinds_of(given["kinds"])
    return OperatorSettings(given["lease"], own, namespaces, given["admin"], probes, kinds)
