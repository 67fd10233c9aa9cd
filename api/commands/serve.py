"""``backoff-ctrl serve``: the cluster's status API, live page and metrics on one port."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

import click

from backoff_ctrl.api.commands.tasks.options import SET
from backoff_ctrl.api.exits import DONE, BadInput
from backoff_ctrl.k8s.kube.cluster.address import PORT, is_loopback, split_address
from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.bodies import checked_name
from backoff_ctrl.k8s.status.client import read_url

from .cluster_options import check_cluster_options, cluster_options
from .options import POLICY, log_to_stderr, set_policy

if TYPE_CHECKING:
    from pathlib import Path
    from socket import socket

    from backoff_ctrl.api.status.access import Access
    from backoff_ctrl.api.status.app import Connecting
    from backoff_ctrl.api.status.observing import Cluster
    from backoff_ctrl.api.status.served_tasks import ServedTasks


@click.command("serve")
@click.option("--listen", default=f"127.0.0.1:{PORT}", show_default=True, metavar="HOST:PORT", help="Where to serve.")
@click.option("--gate", "gates", multiple=True, metavar="URL", help="A gate's status API, to merge; may be repeated.")
@click.option(
    "--gates-in",
    multiple=True,
    metavar="NAMESPACE",
    help="Find gates among the pods of this namespace that have the label backoff-ctrl.dev/gate=true; may be repeated.",
)
@click.option("--gate-ca", metavar="FILE", help="The authority of the certificates of gates found in pods, as PEM.")
@click.option(
    "--gate-token-file", metavar="FILE", help="The token to send to gates behind https, read again each time."
)
@click.option(
    "-n", "--namespace", "namespaces", multiple=True, help="Watch this namespace alone; may be repeated. Default: all."
)
@cluster_options
@click.option(
    "--store",
    metavar="FILE",
    help="Carry out the tasks of this store, and take more at /v1/tasks; `cluster`: those that are custom "
    "resources, which the operator carries out; default: no tasks.",
)
@click.option("--config", metavar="FILE", help="With --store: the platform's settings, as YAML: plugins.k8s and so on.")
@SET
@POLICY
@click.option("--tls-cert", metavar="FILE", help="The certificate to serve with, as PEM; needed beyond this machine.")
@click.option("--tls-key", metavar="FILE", help="Its private key, as PEM.")
def command(  # noqa: PLR0913, PLR0917 - each is an option
    listen: str,
    gates: tuple[str, ...],
    gates_in: tuple[str, ...],
    gate_ca: str | None,
    gate_token_file: str | None,
    namespaces: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    apiserver: str | None,
    store: str | None,
    config: str | None,
    settings: tuple[str, ...],
    policy: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
) -> int:
    """Serve a page and an API that show which quotas are full, who uses them and who waits, until Ctrl-C.

    It watches the quotas of the cluster, and merges the lines of the gates given by --gate and found in pods by
    --gates-in (it shows all that those pods report, so name only namespaces whose pods you trust). On this machine
    anyone may look. At any other address it needs a certificate, and callers need a Kubernetes token: the cluster
    decides which namespaces' quotas that account may read.

    \b
    backoff-ctrl serve --gate http://127.0.0.1:9096
    open http://127.0.0.1:9095

    Exit codes: 0 ended by Ctrl-C or SIGTERM; 2 wrong usage, or a cluster, port or certificate that can't be used.
    """
    try:
        host, port = split_address(listen)
    except ValueError as error:
        raise BadInput(f"--listen: {error}") from None
    check_cluster_options(apiserver, kubeconfig, context)
    if settings and store is None:
        raise BadInput("--set is for the plugins of the tasks: give --store as well")
    if policy and store is None:
        raise BadInput("--policy is for the gate of the tasks: give --store as well, or set --policy on the gate")
    tls = _tls(tls_cert, tls_key)
    if not is_loopback(host) and tls is None:
        raise BadInput(
            f"--listen {listen} can be reached from other machines: give a certificate with --tls-cert and --tls-key, "
            "or listen on 127.0.0.1 and use kubectl port-forward"
        )
    urls = [read_url(url, "--gate").url for url in gates]
    try:
        from backoff_ctrl.api.status.app import make_app  # noqa: PLC0415 - imports FastAPI: 0.6 s
        from backoff_ctrl.api.status.listening import bind, serve  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("backoff_ctrl"):
            raise
        raise BadInput("serve needs further packages: pip install 'backoff-ctrl[serve]'") from None
    connecting = _connecting(urls, gates_in, gate_ca, gate_token_file)
    with closing(bind(host, port)) as bound, closing(_cluster(apiserver, kubeconfig, context, namespaces)) as cluster:
        log_to_stderr(logging.WARNING)
        tasks = None if store is None else _tasks(store, config, settings, policy, cluster, bound, tls=tls is not None)
        serve(make_app(cluster, connecting, _access(host, cluster), tasks), bound, tls)
    return DONE


def _tls(cert: str | None, key: str | None) -> tuple[Path, Path] | None:
    """Return the files to serve TLS with, checked. Raises ``BadInput``."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise BadInput("--tls-cert and --tls-key belong together: give both")
    import ssl  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    for option, name in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            Path(name).read_bytes()
        except OSError as error:
            raise BadInput(f"{option}: {name} can't be read: {error.strerror or error}") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise BadInput(f"--tls-cert {cert} and --tls-key {key} can't be used together: {why}") from None
    return Path(cert), Path(key)


def _connecting(
    urls: list[str], namespaces: tuple[str, ...], authority: str | None, token_file: str | None
) -> Connecting:
    """Return which gates to connect, and how. Raises ``BadInput``."""
    from pathlib import Path  # noqa: PLC0415

    from backoff_ctrl.api.status.app import Connecting  # noqa: PLC0415
    from backoff_ctrl.api.status.gate import Ways  # noqa: PLC0415

    for name in namespaces:
        try:
            checked_name(name, "")
        except ProblemError as error:
            raise BadInput(f"--gates-in: {error}") from None
    for option, file in (("--gate-ca", authority), ("--gate-token-file", token_file)):
        try:
            if file is not None:
                Path(file).read_bytes()
        except OSError as error:
            raise BadInput(f"{option}: {file} can't be read: {error.strerror or error}") from None
    try:
        ways = Ways(None if authority is None else Path(authority), None if token_file is None else Path(token_file))
    except (OSError, ValueError) as error:
        raise BadInput(f"--gate-ca: {authority} holds no certificate in PEM: {error}") from None
    return Connecting(urls, namespaces, ways)


def _cluster(
    apiserver: str | None, kubeconfig: str | None, context: str | None, namespaces: tuple[str, ...]
) -> Cluster:
    """Return the cluster, after a first answer. Raises ``BadInput``."""
    from backoff_ctrl.api.status.observing import Cluster  # noqa: PLC0415
    from backoff_ctrl.k8s.kube.cluster.asking import ReachError, find_api_server  # noqa: PLC0415

    try:
        return Cluster(find_api_server(apiserver, kubeconfig, context, None), namespaces)
    except ReachError as error:
        raise BadInput(str(error)) from error


def _tasks(
    store: str,
    config: str | None,
    settings: tuple[str, ...],
    policy: tuple[str, ...],
    cluster: Cluster,
    bound: socket,
    *,
    tls: bool,
) -> ServedTasks:
    """Return the tasks of a store, after a check that it can be opened. Raises ``BadInput``."""
    from backoff_ctrl.api.commands.tasks.options import needs_packages, store_file  # noqa: PLC0415
    from backoff_ctrl.k8s.tasks.platform import Platform  # noqa: PLC0415

    needs_packages()
    from backoff_ctrl.api.status.listening import url_of  # noqa: PLC0415
    from backoff_ctrl.api.status.served_tasks import ServedTasks  # noqa: PLC0415
    from backoff_ctrl.k8s.status.token import Token  # noqa: PLC0415
    from backoff_ctrl.k8s.tasks.store import StoreError  # noqa: PLC0415
    from backoff_ctrl.k8s.tasks.tables import Tables  # noqa: PLC0415

    file, platform = store_file(store), Platform(config, settings)
    set_policy(policy, platform.policy())
    try:
        if file is not None:
            Tables(file).close()
    except StoreError as error:
        raise BadInput(f"--store: {error}") from None
    port = bound.getsockname()[1]
    url = url_of(bound, tls=tls)
    return ServedTasks(file, platform, cluster.place.configuration, url, Token(port), cluster.namespaces)


def _access(host: str, cluster: Cluster) -> Access:
    from backoff_ctrl.api.status.access import Loopback, Tokens  # noqa: PLC0415

    return Loopback() if is_loopback(host) else Tokens(cluster.reach)
