"""``backoff-ctrl proxy``: the sidecar."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff_ctrl.api.exits import DONE, BadInput
from backoff_ctrl.k8s.gate.creates.creation import OptionError

from .cluster_options import CONTEXT, KUBECONFIG
from .options import POLICY, log_to_stderr, set_policy
from .renamed import Renamed

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
    from backoff_ctrl.k8s.sidecar.serving import Certificates

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_logger = logging.getLogger(__name__)
_GO_DROPS_TOKENS = (
    "kubectl and Go programs send no token to an http:// address: for them, use TLS mode or --use-own-credentials"
)


@click.command("proxy")
@click.option(
    "--listen",
    required=True,
    metavar="HOST:PORT",
    help="Where creators connect: an address of this machine, or unix:/path; port 0 picks a free one.",
)
@click.option(
    "--apiserver",
    cls=Renamed,
    old="--upstream",
    metavar="URL",
    help="The API server; default: that of the kubeconfig, else of the pod's service account.",
)
@KUBECONFIG
@CONTEXT
@click.option(
    "--use-own-credentials",
    is_flag=True,
    help="Add the proxy's own credentials to requests without any. Everyone who can connect acts as the proxy.",
)
@click.option(
    "--allow-exec",
    is_flag=True,
    help="Add them to exec and attach, too, which a web page behind pods/x/proxy could use to run commands.",
)
@click.option(
    "--hold",
    type=float,
    default=None,
    metavar="SECONDS",
    help="How long one request of a create is held at most while the quota is full. "
    "Default: 8, and as long as --hold-total for clients that are known to wait (kubectl, client-go, Python).",
)
@click.option(
    "--hold-total",
    type=float,
    default=None,
    metavar="SECONDS",
    help="How long all requests of one create may be held in total, while its client retries. "
    "Default: 30, and a day for kubectl, which does no other work meanwhile.",
)
@click.option(
    "--answer",
    type=click.Choice(["wait", "error", "quota"]),
    default="wait",
    show_default=True,
    help="The answer when a hold ends: 429 with Retry-After, 429 without it, or the quota's 403.",
)
@POLICY
@click.option("--no-mark", is_flag=True, help="Send creates byte for byte: add neither a name nor a create-id.")
@click.option(
    "--admin",
    metavar="HOST:PORT",
    help="Serve the status API of the gate there, on this machine alone: backoff-ctrl waiting --gate http://HOST:PORT.",
)
@click.option(
    "--tls-account",
    type=_FOLDER,
    metavar="DIR",
    help="TLS mode: the creator's service-account directory; ca.crt and links to token and namespace are put there.",
)
@click.option(
    "--tls-authority",
    type=_FOLDER,
    metavar="DIR",
    help="TLS mode: a directory that only the proxy mounts, with the key of its certificate authority.",
)
@click.option(
    "--tls-token-volume",
    type=_FOLDER,
    metavar="DIR",
    help="TLS mode: where the creator mounts the projected volume with its real token and namespace.",
)
@click.option("--tls-name", multiple=True, metavar="NAME", help="TLS mode: one more name by which creators call it.")
@click.option(
    "--tls-leaf-life",
    type=click.FloatRange(min=2),
    metavar="SECONDS",
    help="TLS mode: how long its certificate is valid, a day by default. It is replaced after half of that.",
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="A certificate that others issue and renew, as PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its private key, as PEM.")
@click.option(
    "--probe-listen",
    metavar="HOST:PORT",
    help="Serve only /livez, /startupz, /readyz and /metrics there; it may be the pod's address.",
)
@click.option(
    "--check-rights",
    multiple=True,
    metavar="NAMESPACE",
    help="Let /readyz name rights that the proxy lacks to watch quotas and pods there; * means all namespaces.",
)
@click.option(
    "--listen-first",
    is_flag=True,
    help="Listen before the API server answers, and wait for it indefinitely: a sidecar must not keep its pod waiting.",
)
@click.option(
    "--reuse-port",
    is_flag=True,
    help="Let a second proxy of this user share the port: start the new one, then stop this one with SIGTERM.",
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
    help="How long requests in flight may take at shutdown.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1, 100_000),
    default=2000,
    show_default=True,
    help="Creators' connections at a time; fewer if the file descriptor limit is lower. Further ones get 503.",
)
def command(listen: str, apiserver: str | None, kubeconfig: str | None, context: str | None, **given: Any) -> int:
    """Run the sidecar, a proxy between creators in any language and the API server, until Ctrl-C or SIGTERM.

    Creates of pods, claims and Services, and of other kinds that a quota names, wait here while the quota is full, and
    are sent in order as soon as there is room. Everything else passes through unchanged: reads, watches, logs, exec.
    Creators keep their own tokens; point them here with a kubeconfig or an address. kubectl and Go programs send no
    token over plain HTTP: they need TLS mode, or --use-own-credentials.

    \b
    backoff-ctrl proxy --listen 127.0.0.1:8001 --use-own-credentials
    kubectl --server http://127.0.0.1:8001 run p --image=busybox --restart=Never

    Exit codes: 0 ended by Ctrl-C or SIGTERM; 2 wrong usage, or an unusable API server, address or certificate.
    """
    try:
        from backoff_ctrl.k8s.sidecar.finding import UpstreamError, find_upstream  # noqa: PLC0415
        from backoff_ctrl.k8s.sidecar.listening import BindError, check_reach, read_address  # noqa: PLC0415
        from backoff_ctrl.k8s.sidecar.serving import Settings, run  # noqa: PLC0415 - loads the parser and the loop
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("backoff_ctrl"):
            raise
        raise BadInput("proxy needs further packages: pip install 'backoff-ctrl[proxy]'") from None
    set_policy(given["policy"])
    log_to_stderr(logging.INFO)
    try:
        address = read_address(listen)
        tls = _tls(given)
        check_reach(address, f"--listen {address}", use_own=given["use_own_credentials"], tls=tls is not None)
        settings = Settings(
            address,
            find_upstream(apiserver, kubeconfig, context),
            _holds(given),
            given["admin"],
            use_own=given["use_own_credentials"],
            allow_exec=given["allow_exec"],
            tls=tls,
            probes=None if given["probe_listen"] is None else read_address(given["probe_listen"], "--probe-listen"),
            ready_file=given["ready_file"],
            drain=given["drain"],
            connections=given["max_connections"],
            listen_first=given["listen_first"],
            reuse_port=given["reuse_port"],
            check_rights=given["check_rights"],
        )
        if not tls and not settings.use_own and address.path is None and settings.place.tls:  # else it needs no token
            _logger.info("%s", _GO_DROPS_TOKENS)
        run(settings, click.echo)
    except (BindError, UpstreamError, OptionError) as error:
        raise BadInput(str(error)) from None
    return DONE


def _holds(given: dict[str, Any]) -> HoldSettings:
    from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings  # noqa: PLC0415

    return HoldSettings(given["hold"], given["hold_total"], given["answer"], mark=not given["no_mark"])


def _tls(given: dict[str, Any]) -> Certificates | None:
    """Return the certificates to serve with; None: plain HTTP. Raises ``BadInput``."""
    if given["tls_cert"] is not None or given["tls_key"] is not None:
        return _given_certificate(given)
    folders = {
        f"--tls-{name}": given[f"tls_{name.replace('-', '_')}"] for name in ("authority", "account", "token-volume")
    }
    if not any(folders.values()) and not given["tls_name"] and given["tls_leaf_life"] is None:
        return None
    missing = [option for option, folder in folders.items() if folder is None]
    if missing:
        raise BadInput(f"TLS mode needs {' and '.join(missing)} too")
    from backoff_ctrl.k8s.sidecar.certificates import CertificatesError  # noqa: PLC0415

    try:
        from backoff_ctrl.k8s.sidecar.authority import LEAF_LIFE, Serving, TlsFiles  # noqa: PLC0415 - cryptography

        files = TlsFiles(given["tls_authority"], given["tls_account"], given["tls_token_volume"], given["tls_name"])
        life = given["tls_leaf_life"]
        return Serving(files, life=LEAF_LIFE if life is None else timedelta(seconds=life))
    except CertificatesError as error:
        raise BadInput(str(error)) from None


def _given_certificate(given: dict[str, Any]) -> Certificates:
    """Return the certificate of ``--tls-cert``. Raises ``BadInput``."""
    if given["tls_cert"] is None or given["tls_key"] is None:
        raise BadInput("--tls-cert and --tls-key belong together: give both")
    own = [
        name
        for name in ("tls_authority", "tls_account", "tls_token_volume", "tls_name", "tls_leaf_life")
        if given[name]
    ]
    if own:
        raise BadInput(
            f"--tls-cert brings a certificate, --{own[0].replace('_', '-')} makes one: give only one of them"
        )
    from backoff_ctrl.k8s.sidecar.certificates import CertificatesError, GivenCertificate  # noqa: PLC0415

    try:
        return GivenCertificate(given["tls_cert"], given["tls_key"])
    except CertificatesError as error:
        raise BadInput(str(error)) from None
