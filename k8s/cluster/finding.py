"""Where the cluster is: an address, a kubeconfig, or the account of the pod this runs in."""

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

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping

OTHER: Final = "name another with --kubeconfig"
_CONTENTS: Final = re.compile(r"\{.*\}")


class ReachError(Exception):
    """The cluster can't be used as asked; the sentence says what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look, and how it was found."""

    configuration: Configuration
    namespace: str
    found: str

    @property
    def url(self) -> str:
        """The API server's address, as it may be shown."""
        return without_passwords(str(self.configuration.host))

    def headers(self) -> dict[str, str]:
        """Return the credentials of this moment, as HTTP headers: none where a certificate is all."""
        token = self.configuration.auth_settings().get("BearerToken")
        return {} if token is None else {str(token["key"]): str(token["value"])}

    def tls(self) -> ssl.SSLContext:
        """Return whom to trust and the certificate to show, as the official client would."""
        from kubernetes.aio.client.rest import RESTClientObject  # noqa: PLC0415 - 56 MB, wanted only for HTTP of our own

        from backoff_ctrl.k8s.cluster.aio_configuration import aio_configuration  # noqa: PLC0415

        context: ssl.SSLContext = RESTClientObject(aio_configuration(self.configuration)).ssl_context
        return context

    @property
    def detour(self) -> Mapping[str, Any]:
        """What aiohttp has to be told of each request beside its URL: the proxy, the name in the certificate."""
        told: dict[str, Any] = {}
        if self.configuration.proxy:
            told["proxy"] = self.configuration.proxy
        if self.configuration.tls_server_name:
            told["server_hostname"] = self.configuration.tls_server_name
        return told


def find_place(server: str | None, kubeconfig: str | None, context: str | None, namespace: str | None) -> Place:
    """Find the cluster: the server given, else the kubeconfig, else the account of the pod this runs in.

    Raises ``ReachError``.
    """
    configuration = Configuration()
    if server is not None:
        configuration.host = _address(server)
        return Place(configuration, namespace or "default", f"{without_passwords(configuration.host)}, as given")
    try:
        with _complaints() as complaints:
            load_kube_config(kubeconfig, context, configuration)
        if complaints and not configuration.api_key and not configuration.cert_file:
            raise ReachError(f"the kubeconfig gives no credentials: {complaints[0]}; install or repair that program")
        _, active = list_kube_config_contexts(kubeconfig)
        chosen = context or active["name"]
        _usable(configuration, chosen)
        return Place(configuration, namespace or _namespace(kubeconfig, chosen), f"context {chosen} of the kubeconfig")
    except (yaml.YAMLError, UnicodeDecodeError) as error:  # also where the file was not named: it is there
        raise ReachError(f"the kubeconfig {kubeconfig or ''} is not YAML: {one_line(error)}; {OTHER}") from error
    except (ConfigException, OSError, TypeError, KeyError, ValueError, AttributeError) as error:
        if kubeconfig is not None or context is not None or not isinstance(error, ConfigException):
            named = f"the kubeconfig {printable(kubeconfig)}" if kubeconfig else "the kubeconfig"
            raise ReachError(f"{named} can't be used: {_what(error)}; {OTHER}") from error
    try:
        load_incluster_config(configuration)
    except ConfigException as error:
        raise ReachError(
            "no kubeconfig and no in-cluster account: name a cluster with --kubeconfig or --server"
        ) from error
    return Place(configuration, namespace or "default", "the account of this pod")


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect what the client only logs: that a login program failed."""
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
    """Check a URL as far as the client would trip over it."""
    if not _is_url(server):
        shown = without_passwords(server)
        raise ReachError(f"--server must be a URL such as http://127.0.0.1:8001, not {shown!r}")
    return server.rstrip("/")


def _is_url(server: object) -> bool:
    try:
        parts = urlsplit(str(server))
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0  # reading it checks it
    except ValueError:
        return False


def _usable(configuration: Configuration, context: str) -> None:
    """Check what the client would trip over only later, and then show: the address, and the token."""
    if not _is_url(configuration.host):
        shown = without_passwords(str(configuration.host))
        raise ReachError(
            f"the server of context {context} must be a URL such as https://10.0.0.1:6443, not {shown!r}; "
            "mend the kubeconfig"
        )
    secrets = [str(secret) for secret in configuration.api_key.values()]
    if any(not (secret.isprintable() and secret.isascii()) for secret in secrets):
        raise ReachError(
            f"the token of context {context} has a line break or another character in it that no token has: write it "
            "on one line of the kubeconfig"
        )


def one_line(error: BaseException) -> str:
    """Return the sentence of an error that may go over several lines."""
    return printable(without_passwords(" ".join(str(error).split())))


def _what(error: Exception) -> str:
    """Say what is wrong with it: the client's own sentence, or that its shape is not that of a kubeconfig.

    The client's may show the part of the file that it is about, with all secrets that are in there.
    """
    if isinstance(error, ConfigException | OSError):
        return _CONTENTS.sub("...", one_line(error))
    return f"it does not have the shape of one ({type(error).__name__}: {one_line(error)})"


def _namespace(kubeconfig: str | None, context: str) -> str:
    contexts, _ = list_kube_config_contexts(kubeconfig)
    chosen = next(each for each in contexts if each["name"] == context)
    return str(chosen["context"].get("namespace") or "default")
