"""``backoff-ctrl proxy``: the sidecar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from backoff_ctrl.api.exits import DONE, BadInput

if TYPE_CHECKING:
    from backoff_ctrl.k8s.proxy.binding import Address


@click.command("proxy")
@click.option(
    "--listen",
    required=True,
    metavar="HOST:PORT",
    help="Where creators connect: an address of this machine, or unix:/path; port 0 picks a free one.",
)
@click.option(
    "--upstream",
    metavar="URL",
    help="The API server; default: that of the kubeconfig, else of the pod's service account.",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="The kubeconfig; default: $KUBECONFIG, ~/.kube/config, then the pod's service account.",
)
@click.option("--context", help="The context in the kubeconfig; default: the current one.")
@click.option(
    "--use-own-credentials",
    is_flag=True,
    help="Add the proxy's own credentials to requests that bring none. Everybody who can connect acts as the proxy.",
)
@click.option(
    "--probe-listen",
    metavar="HOST:PORT",
    help="Serve /livez, /readyz and /metrics there, nothing else; it may be the pod's address.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write this file once the proxy is ready, and remove it at the end.",
)
@click.option(
    "--drain",
    type=click.FloatRange(min=0, max=3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long requests under way may take at the end.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1, 100_000),
    default=2000,
    show_default=True,
    help="Connections of creators at a time, fewer where the limit of descriptors says so. More are told 503.",
)
def command(  # noqa: PLR0913, PLR0917 - each is an option
    listen: str,
    upstream: str | None,
    kubeconfig: str | None,
    context: str | None,
    use_own_credentials: bool,
    probe_listen: str | None,
    ready_file: Path | None,
    drain: float,
    max_connections: int,
) -> int:
    """Stand between a creator in any language and the API server, until Ctrl-C or SIGTERM.

    Everything passes through as it is: reads, watches, logs, exec. Creators keep their own tokens; point them here
    with a kubeconfig or an address, such as kubectl --server http://127.0.0.1:8001.

    \b
    backoff-ctrl proxy --listen 127.0.0.1:8001 --kubeconfig ~/.kube/config
    kubectl --server http://127.0.0.1:8001 --token "$TOKEN" get pods

    Exit codes: 0 ended by Ctrl-C or SIGTERM; 2 wrong use, or an API server, address or certificate that can't be used.
    """
    try:
        from backoff_ctrl.k8s.proxy.binding import BindError, read_address  # noqa: PLC0415
        from backoff_ctrl.k8s.proxy.serving import Settings, run  # noqa: PLC0415 - loads the parser and the loop
        from backoff_ctrl.k8s.proxy.upstream.place import PlaceError, find_place  # noqa: PLC0415
        from backoff_ctrl.k8s.proxy.wiring import make_creates  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("backoff_ctrl"):
            raise
        raise BadInput("proxy needs further packages: pip install 'backoff-ctrl[proxy]'") from None
    try:
        address = read_address(listen)
        _check_reach(address, use_own_credentials)
        settings = Settings(
            address,
            find_place(upstream, kubeconfig, context),
            use_own=use_own_credentials,
            probes=None if probe_listen is None else read_address(probe_listen, "--probe-listen"),
            ready_file=ready_file,
            drain=drain,
            connections=max_connections,
        )
        run(settings, make_creates, click.echo)
    except (BindError, PlaceError) as error:
        raise BadInput(str(error)) from None
    return DONE


def _check_reach(address: Address, use_own: bool) -> None:
    """Raise ``BadInput`` for a listener that others can reach though they must not."""
    if address.of_this_machine:
        return
    if use_own:
        raise BadInput(
            f"--use-own-credentials would let everybody who reaches {address} act as the proxy: listen on 127.0.0.1"
        )
    raise BadInput(
        f"--listen {address} can be reached from other machines, and without TLS they would read its tokens: "
        "listen on 127.0.0.1 or unix:/path"
    )
