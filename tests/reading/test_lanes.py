"""Lanes by status and text, including answers for which no public text was found, and Retry-After."""

# ruff: noqa: E501  # sentences of servers stay whole

from __future__ import annotations

import json

import pytest

from backoff_ctrl.k8s.kube.answers.rejections import Lane, read_rejection

RETRIED = {
    "quota",
    "quota-not-ready",
    "quota-conflict",
    "quota-timeout",
    "overload",
    "unknown-outcome",
    "not-sent",
    "webhook-failed",
    "not-ready",
}


def status_of(message: str, code: int, **details: object) -> bytes:
    """Return a Status body as API servers write it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return json.dumps(body | {"details": details}).encode()


@pytest.mark.parametrize(
    ("status", "text", "lane"),
    [
        (403, 'pods "p" is forbidden: insufficient quota to consume: pods', "no-covering-quota"),
        (500, "insufficient quota to match these scopes: [{PriorityClass In [high]}]", "no-covering-quota"),
        (409, 'Operation cannot be fulfilled on clusterresourcequotas.quota.openshift.io "q": the object has been modified', "quota-conflict"),
        (409, 'Operation cannot be fulfilled on pods "p": the object has been modified', "other"),
        (409, 'pods "p" already exists', "exists"),
        (409, 'object is being deleted: pods "p" already exists', "exists"),
        (422, 'Service "s" is invalid: spec.clusterIP: Invalid value: "x": already exists', "invalid"),
        (403, 'pods "p" is forbidden: not yet ready to handle request', "not-ready"),
        (403, 'pods "p" is forbidden: no PriorityClass with name high was found', "policy"),
        (403, 'pods "p" is forbidden: pod rejected: RuntimeClass "gvisor" not found', "policy"),
        (422, "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no", "policy"),
        (403, 'pods "p" is forbidden: unable to validate against any security context constraint: []', "policy"),
        (403, "pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000", "policy"),
        (403, "pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824", "policy"),
        (403, 'pods "p" is forbidden: pod resize is only supported on linux nodes, node "n" is "windows"', "policy"),
        (500, 'Internal error occurred: Operation cannot be fulfilled on resourcequotas "q": the object has been modified', "quota-conflict"),
        (500, "error resolving quota: the cache is not ready", "quota-timeout"),
        (403, 'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "n"', "rbac"),
        (403, 'persistentvolumeclaims "c" is forbidden: minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi', "limit-range"),
        (403, 'pods "p" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Gi, but limit is 2Gi]', "limit-range"),
        (400, 'admission webhook "w.example.com" denied the request: team label is missing', "webhook"),
        (403, 'admission webhook "w" denied the request: User "x" cannot do this', "webhook"),
        (500, 'Internal error occurred: failed calling webhook "w": Post "https://w.svc:443/": dial tcp: connect: connection refused', "webhook-failed"),
        (500, 'Internal error occurred: failed calling admission webhook "w": x509: unknown authority', "webhook-failed"),
        (401, "Unauthorized", "credentials"),
        (400, "the object provided is unrecognized", "invalid"),
        (404, 'namespaces "n" not found', "invalid"),
        (404, "404 page not found", "invalid"),
        (405, "the server does not allow this method on the requested resource", "invalid"),
        (413, "Request entity too large: limit is 3145728", "invalid"),
        (415, "the body of the request was in an unknown format", "invalid"),
        (422, 'Pod "p" is invalid: spec.containers: Required value', "invalid"),
        (408, "", "unknown-outcome"),
        (429, "", "overload"),
        (429, "The apiserver is shutting down", "overload"),
        (500, "", "unknown-outcome"),
        (500, "etcdserver: request timed out", "unknown-outcome"),
        (500, "etcdserver: request is too large", "invalid"),
        (500, "rpc error: trying to send message larger than max (2099204 vs. 2097152)", "invalid"),
        (502, "<html>Bad Gateway</html>", "unknown-outcome"),
        (503, "Service Unavailable", "overload"),
        (504, "", "unknown-outcome"),
        (599, "", "unknown-outcome"),
        (403, "", "other"),
        (403, "<html>403 Forbidden</html>", "other"),
        (418, "I'm a teapot", "other"),
        (600, "", "other"),
        (-1, "", "other"),
        (0, "", "other"),
        (0, "Too many requests, please try again later.", "overload"),
        (0, "dial tcp 10.0.0.1:6443: connect: connection refused", "not-sent"),
        (0, "dial tcp: lookup api.example.com: no such host", "not-sent"),
        (0, "HTTPSConnectionPool: Failed to establish a new connection: [Errno -2] Name or service not known", "not-sent"),
        (0, "net/http: TLS handshake timeout", "not-sent"),
        (0, "read tcp 10.0.0.2:1->10.0.0.1:6443: read: connection reset by peer", "unknown-outcome"),
        (0, "('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))", "unknown-outcome"),
        (0, "HTTPSConnectionPool(host='x', port=6443): Read timed out. (read timeout=30)", "unknown-outcome"),
        (0, "error: You must be logged in to the server (Unauthorized)", "credentials"),
        (0, 'Error from server (AlreadyExists): error when creating "f.yaml": pods "p" already exists', "exists"),
        (0, 'Error from server (NotFound): namespaces "n" not found', "invalid"),
        (0, 'Error from server (BadRequest): error when creating "f.yaml": Pod in version "v1" cannot be handled', "invalid"),
        (0, 'Error from server (ServiceUnavailable): the server is currently unable to handle the request', "overload"),
        (0, "(429)\nReason: Too Many Requests\n", "overload"),
        (0, "(504) Reason: Gateway Timeout", "unknown-outcome"),
        (0, "kubernetes.client.exceptions.ApiException: (401)\nReason: Unauthorized", "credentials"),
        (0, "HTTP/1.1 409 Conflict", "other"),
        (0, "everything is fine", "other"),
    ],
)  # fmt: skip
def test_an_answer_has_its_lane_and_only_lanes_that_can_recover_are_retryable(
    status: int, text: str, lane: str
) -> None:
    """The text is matched before the status; an error that cannot go away by itself is not retryable."""
    rejection = read_rejection(status, {}, text)
    assert rejection.lane == lane
    assert rejection.retryable is (lane in RETRIED)
    if 400 <= status < 600:
        assert read_rejection(status, {}, status_of(text, status)).lane == lane
        assert read_rejection(0, {}, status_of(text, status)).lane == lane


@pytest.mark.parametrize(
    ("uid", "lane"),
    [({}, "rbac"), ({"X-Kubernetes-Pf-Prioritylevel-Uid": "8c1e"}, "rbac"),
     ({"X-Kubernetes-Pf-Prioritylevel-Uid": ""}, "not-ready"), ({"x-kubernetes-pf-prioritylevel-uid": ""}, "not-ready")],
)  # fmt: skip
def test_a_denial_by_a_starting_server_is_temporary(uid: dict[str, str], lane: str) -> None:
    """A starting API server has not loaded its roles and denies everyone; its priority level has no uid yet."""
    text = 'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "n"'

    assert read_rejection(403, uid, status_of(text, 403)).lane == lane


@pytest.mark.parametrize(
    ("text", "unspecified"),
    [
        ("must specify limits.cpu for: a", {"limits.cpu": ["a"]}),
        (
            "must specify limits.cpu for: a,b-1; requests.nvidia.com/gpu for: b-1",
            {"limits.cpu": ["a", "b-1"], "requests.nvidia.com/gpu": ["b-1"]},
        ),
        ("must specify limits.cpu,limits.memory", {"limits.cpu": [], "limits.memory": []}),
        ("must specify limits.memory.", {"limits.memory": []}),
        ("must specify limits.cpu for: a. (reason: Forbidden)", {"limits.cpu": ["a"]}),
        ("must specify limits.cpu for: a], and more", {"limits.cpu": ["a"]}),
    ],
)
def test_what_a_quota_requires_is_read_by_resource_and_container(text: str, unspecified: dict[str, list[str]]) -> None:
    """In the words of today's servers, and of older ones, which name no containers."""
    found = read_rejection(403, {}, status_of(f'pods "p" is forbidden: failed quota: q: {text}', 403))
    assert (found.lane, found.quota, found.unspecified) == ("must-specify", "q", unspecified)
    assert not read_rejection(0, {}, "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1").unspecified


def test_the_lanes_have_their_documented_values() -> None:
    """Scripts read these values."""
    assert {lane.value for lane in Lane} == RETRIED | {
        "must-specify",
        "no-covering-quota",
        "policy",
        "rbac",
        "limit-range",
        "namespace-terminating",
        "webhook",
        "exists",
        "invalid",
        "credentials",
        "other",
    }


@pytest.mark.parametrize("kind", ["resourcequotas", "clusterresourcequotas.quota.openshift.io"])
def test_a_quota_conflict_is_also_recognised_by_its_details(kind: str) -> None:
    """details.kind names the quota, whatever the message."""
    body = status_of("please apply your changes to the latest version", 409, kind=kind, name="q")
    assert read_rejection(409, {}, body).lane is Lane.QUOTA_CONFLICT
    assert read_rejection(409, {}, status_of("please try again", 409, kind="pods")).lane is Lane.OTHER


def test_a_terminating_namespace_is_also_recognised_by_its_cause() -> None:
    """The cause NamespaceTerminating is enough."""
    body = status_of("no", 403, causes=[{"reason": "NamespaceTerminating"}, "odd"])
    assert read_rejection(403, {}, body).lane is Lane.NAMESPACE_TERMINATING


def test_an_existing_name_is_also_recognised_by_its_reason() -> None:
    """The reason AlreadyExists is enough."""
    assert read_rejection(409, {}, '{"kind":"Status","reason":"AlreadyExists"}').lane is Lane.EXISTS


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "1"}, 1.0),
        ({"retry-after": "2"}, 2.0),
        ({"RETRY-AFTER": " 0.5 "}, 0.5),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "99999999"}, 3600.0),
        ({"Retry-After": ""}, None),
        ({"X-Other": "1"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    """The header name may be in any case; values other than seconds are ignored; the maximum is one hour."""
    assert read_rejection(429, headers, b"Too many requests, please try again later.\n").retry_after == seconds
    text = b'{"kind":"Status","message":"exceeded quota: q, requested: cpu=1, used: cpu=1, limited: cpu=1"}'
    if "Retry-After" in headers:
        assert read_rejection(403, headers, text).retry_after == seconds


@pytest.mark.parametrize(
    ("given", "seconds"), [(3, 3.0), (0, None), (-1, None), ("3", None), (2**40, None), (7200, 3600.0)]
)
def test_retry_after_in_the_details_of_a_status_is_read(given: object, seconds: float | None) -> None:
    """details.retryAfterSeconds counts unless the header is present."""
    body = status_of("the server has received too many requests", 429, retryAfterSeconds=given)
    assert read_rejection(429, {}, body).retry_after == seconds
    assert read_rejection(429, {"Retry-After": "9"}, body).retry_after == 9.0
