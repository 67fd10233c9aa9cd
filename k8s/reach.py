"""What a cluster lets this account do: the questions behind ``backoff-ctrl doctor``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import urllib3
import yaml
from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.config.kube_config import list_kube_config_contexts

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE: Final = (5, 10)  # seconds to connect, to be answered
REVIEW: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class ReachError(Exception):
    """The cluster can't be used as asked; the sentence says what to do."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's: ``remedy`` says what to do where ``ok`` is false."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Right:
    """A right that the gate uses, and what is worse without it."""

    verb: str
    resource: str
    without: str


RIGHTS: Final = (
    Right("create", "pods", "nothing can be created: bind a role with create on pods to this account"),
    Right("get", "pods", "after a lost answer only names that the gate drew are safe: allow get on pods"),
    Right("watch", "pods", "ends of pods are not noticed: allow list and watch on pods"),
    Right("list", "resourcequotas", "the gate learns from refusals instead: bind the role view to this account"),
    Right("watch", "resourcequotas", "the gate learns from refusals instead: bind the role view to this account"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look, and how it was found."""

    configuration: Configuration
    namespace: str
    found: str


def find_place(server: str | None, kubeconfig: str | None, context: str | None, namespace: str | None) -> Place:
    """Find the cluster: the server given, else the kubeconfig, else the account of the pod this runs in.

    Raises ``ReachError``.
    """
    configuration = Configuration()
    if server is not None:
        configuration.host = _address(server)
        return Place(configuration, namespace or "default", f"{configuration.host}, as given")
    try:
        load_kube_config(kubeconfig, context, configuration)
        _, active = list_kube_config_contexts(kubeconfig)
        chosen = context or active["name"]
        return Place(configuration, namespace or _namespace(kubeconfig, chosen), f"context {chosen} of the kubeconfig")
    except (yaml.YAMLError, UnicodeDecodeError) as error:  # also where the file was not named: it is there
        raise ReachError(
            f"the kubeconfig {kubeconfig or ''} is not YAML: {_one_line(error)}; name another with --kubeconfig"
        ) from error
    except (ConfigException, OSError, TypeError, KeyError) as error:
        if kubeconfig is not None or context is not None:
            raise ReachError(f"the kubeconfig can't be used: {error}; name another with --kubeconfig") from error
    try:
        load_incluster_config(configuration)
    except ConfigException as error:
        raise ReachError(
            "no kubeconfig and no in-cluster account: name a cluster with --kubeconfig or --server"
        ) from error
    return Place(configuration, namespace or "default", "the account of this pod")


def _address(server: str) -> str:
    """Check a URL as far as the client would trip over it."""
    try:
        parts = urlsplit(server)
        usable = bool(parts.hostname) and parts.port != 0  # reading the port checks it
    except ValueError:
        usable = False
    if not usable:
        raise ReachError(f"--server must be a URL such as http://127.0.0.1:8001, not {server!r}")
    return server.rstrip("/")


def _one_line(error: Exception) -> str:
    """Return the sentence of an error that may go over several lines."""
    return " ".join(str(error).split())


def _namespace(kubeconfig: str | None, context: str) -> str:
    contexts, _ = list_kube_config_contexts(kubeconfig)
    chosen = next(each for each in contexts if each["name"] == context)
    return str(chosen["context"].get("namespace") or "default")


class Reach:
    """Asks the cluster. Raises ``ReachError`` where it cannot be reached at all."""

    def __init__(self, place: Place) -> None:
        """Ask once, without retries: a doctor should not take minutes."""
        place.configuration.retries = False  # urllib3's way to say none
        self._place = place
        self._client = ApiClient(place.configuration)

    def checks(self) -> Iterator[Check]:
        """Answer, check by check."""
        yield self._version()
        for right in RIGHTS:
            yield self._right(right)
        yield self._quotas()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _version(self) -> Check:
        status, answer = self._ask("GET", "/version")
        if status == 401:
            return Check("cluster", ok=False, detail="the credentials are refused", remedy="renew them, then try again")
        if status != 200:
            raise ReachError(f"{self._place.configuration.host} answers {status} to /version: is it an API server?")
        return Check("cluster", ok=True, detail=f"{answer.get('gitVersion', 'version unknown')} at {self._place.found}")

    def _right(self, right: Right) -> Check:
        name = f"{right.verb} {right.resource}"
        attributes = {"namespace": self._place.namespace, "verb": right.verb, "resource": right.resource}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        status, answer = self._ask("POST", REVIEW, body)
        if status not in (200, 201):
            return Check(name, ok=False, detail=f"cannot be asked: {status}", remedy="is this an API server?")
        allowed = bool((answer.get("status") or {}).get("allowed"))
        place = f"in {self._place.namespace}"
        return Check(
            name, allowed, f"{'allowed' if allowed else 'not allowed'} {place}", "" if allowed else right.without
        )

    def _quotas(self) -> Check:
        namespace = self._place.namespace
        status, answer = self._ask("GET", f"/api/v1/namespaces/{namespace}/resourcequotas")
        if status == 200 and not answer.get("items") and self._missing(namespace):
            remedy = "create it, or name another with --namespace"
            return Check("quotas", ok=False, detail=f"there is no namespace {namespace}", remedy=remedy)
        if status != 200:
            return Check("quotas", ok=False, detail=f"the list answers {status}", remedy=RIGHTS[3].without)
        names = [str(item["metadata"]["name"]) for item in answer.get("items") or ()]
        detail = ", ".join(names) if names else "none: creates are not limited there, and the gate only watches"
        return Check("quotas", ok=True, detail=f"{namespace} has {detail}")

    def _missing(self, namespace: str) -> bool:
        """Say whether a namespace is not there; an account that may not look at it gets the benefit."""
        return self._ask("GET", f"/api/v1/namespaces/{namespace}")[0] == 404

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        try:
            request = self._client.param_serialize(
                method,
                path,
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = self._client.call_api(*request, _request_timeout=PATIENCE)
            text = response.read()
        except (urllib3.exceptions.HTTPError, ApiException, OSError, ValueError) as error:
            host = self._place.configuration.host
            raise ReachError(f"{host} can't be reached: {error}; check the address and the network") from error
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {}
        return response.status, answer if isinstance(answer, dict) else {}
