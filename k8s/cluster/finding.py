"""Find the cluster: by an address, a kubeconfig, or the service account of the pod that this runs in."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.config.kube_config import list_kube_config_contexts

from backoff_ctrl.k8s.answers.printing import printable, without_passwords

from .settings import credentials, detour_of, tls_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

OTHER: Final = "choose another file with --kubeconfig"
_REACHING: Final = (
    "host", "ssl_ca_cert", "ca_cert_data", "verify_ssl", "assert_hostname", "tls_server_name",
    "disable_strict_ssl_verification", "proxy", "proxy_headers", "no_proxy",
)  # fmt: skip
"""What a configuration says of how to reach the server, and to know it again."""
_CONTENTS: Final = re.compile(r"\{.*\}")


class ReachError(Exception):
    """The cluster cannot be used as asked. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """A cluster: how to connect, the default namespace, and ``found``, which says where the address came from."""

    configuration: Configuration
    namespace: str
    found: str

    @property
    def url(self) -> str:
        """The API server's address without any password, safe to print."""
        return without_passwords(str(self.configuration.host))

    def headers(self) -> dict[str, str]:
        """Return the current credentials as HTTP headers; empty if only a certificate or nothing is configured."""
        return credentials(self.configuration.auth_settings())

    def tls(self) -> ssl.SSLContext:
        """Return the TLS settings (trusted authorities, client certificate) that the official client would use."""
        return tls_of(self.configuration)

    def as_bearer(self, token: str) -> ClusterAccess:
        """Return the same cluster as the owner of a token sees it; an empty one stands for nobody.

        Only how to reach the server is taken over, field by field: no credential of ours, known today or added to the
        client later, goes along. A client certificate would even count for more than the token.
        """
        bearer = Configuration()
        for name in _REACHING:
            if hasattr(self.configuration, name):
                setattr(bearer, name, getattr(self.configuration, name))
        bearer.api_key = {"authorization": f"Bearer {token}"} if token else {}
        return ClusterAccess(bearer, self.namespace, "the token of whoever asks")

    @property
    def detour(self) -> dict[str, Any]:
        """Keyword arguments of each aiohttp request: the proxy, and the server name in the certificate."""
        return detour_of(self.configuration)


def find_place(server: str | None, kubeconfig: str | None, context: str | None, namespace: str | None) -> ClusterAccess:
    """Find the cluster: the given server, else the kubeconfig, else the service account of this pod.

    Raises ``ReachError`` if none of them gives a usable cluster.
    """
    configuration = Configuration()
    if server is not None:
        configuration.host = _address(server)
        return ClusterAccess(configuration, namespace or "default", "--server")
    try:
        with _complaints() as complaints:
            load_kube_config(kubeconfig, context, configuration)
        if complaints and not configuration.api_key and not configuration.cert_file:
            raise ReachError(f"the kubeconfig gives no credentials: {complaints[0]}; install or fix that login program")
        _, active = list_kube_config_contexts(kubeconfig)
        chosen = context or active["name"]
        _usable(configuration, chosen)
        return ClusterAccess(
            configuration, namespace or _namespace(kubeconfig, chosen), f"context {chosen} of the kubeconfig"
        )
    except (yaml.YAMLError, UnicodeDecodeError) as error:  # also if the default file is malformed: it exists
        raise ReachError(f"{_named(kubeconfig)} is not valid YAML: {one_line(error)}; {OTHER}") from error
    except (ConfigException, OSError, TypeError, KeyError, ValueError, AttributeError) as error:
        if kubeconfig is not None or context is not None or not isinstance(error, ConfigException):
            raise ReachError(f"{_named(kubeconfig)} cannot be used: {_problem(error)}; {OTHER}") from error
    try:
        load_incluster_config(configuration)
    except ConfigException as error:
        raise ReachError(
            "found neither a kubeconfig nor a pod's service account: give a cluster with --kubeconfig or --server"
        ) from error
    return ClusterAccess(configuration, namespace or "default", "the service account of this pod")


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
    """Return the URL if the client can use it. Raises ``ReachError``."""
    if not _is_url(server):
        shown = without_passwords(server)
        raise ReachError(f"--server must be a URL such as http://127.0.0.1:8001, not {shown!r}")
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


def _problem(error: Exception) -> str:
    """Return what is wrong with a kubeconfig: the client's own message, or that the file has the wrong structure.

    The client's message may quote the part of the file that it is about, secrets included: that part is cut out.
    """
    if isinstance(error, ConfigException | OSError):
        return _CONTENTS.sub("...", one_line(error)).rstrip(".")
    return f"it does not have the structure of a kubeconfig ({type(error).__name__}: {one_line(error)})"


def _namespace(kubeconfig: str | None, context: str) -> str:
    contexts, _ = list_kube_config_contexts(kubeconfig)
    chosen = next(each for each in contexts if each["name"] == context)
    return str(chosen["context"].get("namespace") or "default")
