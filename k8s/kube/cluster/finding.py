"""Find the cluster: by an address, a kubeconfig, or the service account of the pod that this runs in."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from backoff_ctrl.k8s.kube.answers.printing import printable, without_passwords
from backoff_ctrl.k8s.kube.paths import PathError, path_to

from .kubeconfig import KubeconfigError, check_kubeconfig, files_in

if TYPE_CHECKING:  # 0.25 s, 50 MB: a sidecar reads no kubeconfig with it
    from kubernetes.client import Configuration

OTHER: Final = "choose another file with --kubeconfig"
_REACHING: Final = (
    "host", "ssl_ca_cert", "ca_cert_data", "verify_ssl", "assert_hostname", "tls_server_name",
    "disable_strict_ssl_verification", "proxy", "proxy_headers", "no_proxy",
)  # fmt: skip
"""The fields of a configuration that say how to reach the server and verify it, without credentials."""
_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_FILE: Final = "~/.kube/config"
"""Where the client looks for a kubeconfig."""
_CONTENTS: Final = re.compile(r"\{.*\}")


class ReachError(Exception):
    """The cluster cannot be used as asked. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """A cluster: how to connect, the default namespace, and ``found``, which says where the address came from."""

    configuration: Configuration
    namespace: str
    found: str

    def __post_init__(self) -> None:
        """Raise ``ReachError`` for what no namespace is called; empty means all of them."""
        if not self.namespace:
            return
        try:
            path_to("/api/v1", "namespaces", name=self.namespace)
        except PathError:
            raise ReachError(f"no namespace is called {printable(self.namespace[:80])!r}: choose another") from None

    @property
    def url(self) -> str:
        """The API server's address without any password, safe to print."""
        return without_passwords(str(self.configuration.host))

    def headers(self) -> dict[str, str]:
        """Return the current credentials as HTTP headers; empty if at most a certificate is configured."""
        return credentials(self.configuration.auth_settings())

    def tls(self) -> ssl.SSLContext:
        """Return the TLS settings (trusted authorities, client certificate) that the official client would use."""
        return tls_of(self.configuration)

    def as_bearer(self, token: str) -> ClusterAccess:
        """Return the same cluster with a caller's token as the only credential; an empty token means an anonymous
        caller.

        Only the fields that say how to reach the server are copied, one by one, so that no credential of ours goes
        along, not even one that a later client adds. A client certificate would even take precedence over the token.
        """
        bearer = type(self.configuration)()
        for name in _REACHING:
            if hasattr(self.configuration, name):
                setattr(bearer, name, getattr(self.configuration, name))
        bearer.api_key = {"authorization": f"Bearer {token}"} if token else {}
        return ClusterAccess(bearer, self.namespace, "the caller's token")

    @property
    def detour(self) -> dict[str, Any]:
        """Keyword arguments of each aiohttp request: the proxy, and the server name in the certificate."""
        return detour_of(self.configuration)


def find_place(server: str | None, kubeconfig: str | None, context: str | None, namespace: str | None) -> ClusterAccess:
    """Find the cluster: the given server, else the kubeconfig, else the service account of this pod.

    Raises ``ReachError`` if they give no usable cluster.
    """
    # 0.45 s: a sidecar's session gets its settings in another way, and needs neither
    import yaml  # noqa: PLC0415
    from kubernetes import config  # noqa: PLC0415
    from kubernetes.client import Configuration  # noqa: PLC0415
    from kubernetes.config.kube_config import (  # noqa: PLC0415
        KUBE_CONFIG_DEFAULT_LOCATION,
        list_kube_config_contexts,
    )

    configuration = Configuration()
    if server is not None:
        configuration.host = _address(server)
        return ClusterAccess(configuration, namespace or "default", "--apiserver")
    needed = kubeconfig is not None or context is not None
    try:
        check_kubeconfig(files_in(kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION), context, needed=needed)
    except KubeconfigError as error:
        raise ReachError(str(error)) from None
    try:
        with _complaints() as complaints:
            config.load_kube_config(kubeconfig, context, configuration)
        if complaints and not configuration.api_key and not configuration.cert_file:
            raise ReachError(f"the kubeconfig gives no credentials: {complaints[0]}; install or fix that login program")
        contexts, active = list_kube_config_contexts(kubeconfig)
        chosen = context or active["name"]
        _usable(configuration, chosen)
        settings = next(each["context"] for each in contexts if each["name"] == chosen)
        namespace = namespace or str(settings.get("namespace") or "default")
        return ClusterAccess(configuration, namespace, f"context {chosen} of the kubeconfig")
    except (yaml.YAMLError, UnicodeDecodeError) as error:  # also if the default file is malformed: it exists
        raise ReachError(f"{_named(kubeconfig)} is not valid YAML: {one_line(error)}; {OTHER}") from error
    except (config.ConfigException, OSError) as error:
        if kubeconfig is not None or context is not None or isinstance(error, OSError):
            # the client's message may quote the part of the file that it is about, secrets included
            said = _CONTENTS.sub("...", one_line(error)).rstrip(".")
            raise ReachError(f"{_named(kubeconfig)} cannot be used: {said}; {OTHER}") from error
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        said = f"it does not have the structure of a kubeconfig ({type(error).__name__}: {one_line(error)})"
        raise ReachError(f"{_named(kubeconfig)} cannot be used: {said}; {OTHER}") from error
    try:
        config.load_incluster_config(configuration)
    except config.ConfigException as error:
        raise ReachError(
            f"found neither {_looked_for(KUBE_CONFIG_DEFAULT_LOCATION)} nor a pod's service account: "
            "give a cluster with --kubeconfig or --apiserver"
        ) from error
    return ClusterAccess(configuration, namespace or _of_this_pod(), "the service account of this pod")


def _looked_for(listed: str) -> str:
    """Return which kubeconfig was looked for; ``listed``: ``$KUBECONFIG``, or the default of the client."""
    if listed == DEFAULT_FILE or not listed.strip(os.pathsep):
        return "a kubeconfig"
    return f"the kubeconfig that $KUBECONFIG names ({printable(listed)})"


def _of_this_pod() -> str:
    try:
        return _OWN_NAMESPACE.read_text("utf-8").strip() or "default"
    except (OSError, UnicodeDecodeError):
        return "default"


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect the errors that the client only logs, such as a failed login program."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(" ".join(record.getMessage().split()))

    listener = Listener(logging.ERROR)
    root = logging.getLogger()
    others = root.handlers[:]
    root.handlers[:] = [listener]
    try:
        yield said
    finally:
        root.handlers[:] = others


def _address(server: str) -> str:
    if not _is_url(server):
        shown = without_passwords(server)
        raise ReachError(f"--apiserver must be a URL such as http://127.0.0.1:8001, not {shown!r}")
    return server.rstrip("/")


def _is_url(server: object) -> bool:
    try:
        parts = urlsplit(str(server))
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0  # reading validates it
    except ValueError:
        return False


def _usable(configuration: Configuration, context: str) -> None:
    """Check address and token now: the client would fail on them later, and show the token in its error."""
    if not _is_url(configuration.host):
        shown = without_passwords(str(configuration.host))
        raise ReachError(
            f"the server of context {context} must be a URL such as https://10.0.0.1:6443, not {shown!r}; "
            "correct the kubeconfig"
        )
    secrets = [str(secret) for secret in configuration.api_key.values()]
    if any(not (secret.isprintable() and secret.isascii()) for secret in secrets):
        raise ReachError(
            f"the token of context {context} contains a line break or another character that is not allowed: write it "
            "on one line of the kubeconfig"
        )


def one_line(error: BaseException) -> str:
    """Return an error's message on one line, safe to print."""
    return printable(without_passwords(" ".join(str(error).split())))


def _named(kubeconfig: str | None) -> str:
    return f"the kubeconfig {printable(kubeconfig)}" if kubeconfig else "the kubeconfig"


def credentials(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return a configuration's ``auth_settings()`` as headers; empty if at most a certificate is configured."""
    token = settings.get("BearerToken")
    return {} if token is None or token["value"] is None else {str(token["key"]): str(token["value"])}


def tls_of(configuration: Any) -> ssl.SSLContext:
    """Return the TLS settings that the official client would use: trusted authorities, client certificate.

    A configuration that makes them itself has ``made_tls``. Raises ``OSError`` or ``ValueError`` if its files cannot
    be used.
    """
    made = getattr(configuration, "made_tls", None)
    if callable(made):
        context: ssl.SSLContext = made()
        return context
    context = ssl.create_default_context(
        cafile=configuration.ssl_ca_cert, cadata=getattr(configuration, "ca_cert_data", None)
    )
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if configuration.assert_hostname is False:
        context.check_hostname = False
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if getattr(configuration, "disable_strict_ssl_verification", False):
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def detour_of(configuration: Any) -> dict[str, Any]:
    """Return keyword arguments of each aiohttp request: the proxy, and the server name in the certificate."""
    options: dict[str, Any] = {}
    if configuration.proxy and not _bypassed(configuration):
        options["proxy"] = configuration.proxy
        if configuration.proxy_headers:
            options["proxy_headers"] = configuration.proxy_headers
    name = configuration.tls_server_name or configuration.assert_hostname
    if name:
        options["server_hostname"] = name
    return options


def _bypassed(configuration: Any) -> bool:
    """Return whether ``no_proxy`` excepts the host; only the synchronous client has that setting."""
    excepted = getattr(configuration, "no_proxy", None)
    if not excepted:
        return False
    from kubernetes.client.rest import should_bypass_proxies  # noqa: PLC0415 - its own configuration: it is loaded

    return bool(should_bypass_proxies(configuration.host, no_proxy=excepted))
