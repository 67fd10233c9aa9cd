"""Sends one create to the server: the creator's own bytes and headers, with the name and the create id added.

It also knows in which forms creators write and read objects.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

from backoff_ctrl.k8s.gate.creates.calls import Target, quotas_url
from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID, Named
from backoff_ctrl.k8s.gate.together import READ_PATIENCE
from backoff_ctrl.k8s.kube.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.answers.fields import annotations_of, metadata_of
from backoff_ctrl.k8s.kube.charges.resources import CLAIMS, PODS, SERVICES
from backoff_ctrl.k8s.sidecar.http.messages import Ask, Head, Headers, PayloadError, Request, Response, first
from backoff_ctrl.k8s.sidecar.http.payload import OURS, Form, Payload, marked, read
from backoff_ctrl.k8s.sidecar.http.protobuf import status_message
from backoff_ctrl.k8s.sidecar.http.writing import own_response

from .choosing import ChargedKinds

Reader = Callable[[bytes], dict[str, Any] | None]

JSON: Final = b"application/json"
PROTOBUF: Final = b"application/vnd.kubernetes.protobuf"
EXPECTED: Final = {
    PODS: ("v1", "Pod"),
    CLAIMS: ("v1", "PersistentVolumeClaim"),
    SERVICES: ("v1", "Service"),
}
"""Apiversion and kind of a protobuf body that does not name them."""
UNCHARGED: Final = ("volumes", "imagePullSecrets", "hostAliases", "tolerations", "nodeSelector")
READ_MAX: Final = 512 * 1024
"""The most bytes of a body that is read and changed. That takes 20 ms of the loop; pods have a few KiB."""
_OF_CONTAINERS: Final = ("name", "resources", "restartPolicy")


def manifest_in(request: Request, resource: str) -> dict[str, Any] | None:
    """Return metadata and charged fields of what a request creates; None if it can't be read."""
    payload = _payload(request)
    if request.head.get(b"content-encoding") is not None or len(request.body) > READ_MAX:
        return None
    try:
        found = read(payload, EXPECTED.get(resource, ("", "")))
    except PayloadError:
        return None
    if found is None or payload.form is Form.PROTOBUF:
        return found
    return lean(found) if resource == PODS else found


def lean(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's manifest without long fields that are never charged: it is kept while the create waits."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    kept = {key: value for key, value in spec.items() if key not in UNCHARGED}
    for name in ("containers", "initContainers"):
        if isinstance(spec.get(name), list):
            kept[name] = [_lean_container(each) for each in spec[name]]
    return {**pod, "spec": kept}


def _lean_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    return {key: value for key, value in container.items() if key in _OF_CONTAINERS}


def may_be_marked(request: Request, manifest: dict[str, Any]) -> bool:
    """Return whether ``marked_body`` will succeed. Asked before a name is drawn, which could not be sent otherwise."""
    payload = _payload(request)
    if payload.form is Form.YAML:  # only a try shows whether its text can be changed
        return _marked(payload, "x", {CREATE_ID: "x"}) is not None
    metadata = manifest.get("metadata")
    if metadata is None:
        return payload.form is Form.JSON
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else False
    return annotations is None or (
        isinstance(annotations, dict) and all(isinstance(each, str) for each in annotations.values())
    )


def marked_body(request: Request, name: str, annotations: Mapping[str, str]) -> bytes:
    """Return a request's bytes with our annotations, and the name if it is not empty. Only its metadata changes.

    Raises ``ValueError`` if that can't be done: see ``may_be_marked``.
    """
    ours = {key: value for key, value in annotations.items() if key in OURS}
    body = _marked(_payload(request), name, ours)
    if body is None:
        raise ValueError("a create whose name was drawn can't be marked with it")
    return body


def _marked(payload: Payload, name: str, annotations: dict[str, str]) -> bytes | None:
    try:
        return marked(payload, name, annotations)
    except PayloadError:
        return None


def reader_of(content_type: bytes | None) -> Reader | None:
    """Return a reader of the object in an answer; None: it is JSON, or a text."""
    form = Payload(b"", content_type).form
    return None if form is None or form is Form.JSON else partial(_read, content_type)


def _read(content_type: bytes | None, body: bytes) -> dict[str, Any] | None:
    try:
        return read(Payload(body, content_type))
    except PayloadError:
        return None


def readable(accepted: bytes | None) -> bytes:
    """Return the forms that a creator accepts and in which its own object can be recognised."""
    kept = (each.strip() for each in (accepted or b"").split(b","))
    return b",".join(each for each in kept if each.startswith((JSON, PROTOBUF)) and b"as=" not in each) or JSON


def _payload(request: Request) -> Payload:
    return Payload(request.body, request.head.get(b"content-type"))


FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})
"""Headers of a request about the framing of its body, which is sent whole here."""
UNPACKED_MAX: Final = 2**23
_WHO: Final = frozenset({b"authorization", b"cookie", b"host", b"user-agent"})
"""Headers of a create that go with our questions about it: they name the caller."""
_SLASHES_AT_END: Final = re.compile(rb"(?:/|%2[Ff])+\Z")


def as_caller(headers: Headers) -> Headers:
    """Return the headers for a question in the name of a create's caller."""
    return [*(each for each in headers if each[0].lower() in _WHO), *impersonation(headers)]


def impersonation(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the impersonation headers, in order."""
    found = [(name.lower(), value) for name, value in headers if name[:12].lower() == b"impersonate-"]
    return sorted(found)


class Received(Mapping[str, str]):
    """The headers of a response, read where they are asked for. Names may be in any case."""

    def __init__(self, response: Response) -> None:
        self.response = response

    def __getitem__(self, name: str) -> str:
        value = first(self.response.headers, name.lower().encode("latin-1"))
        if value is None:
            raise KeyError(name)
        return value.decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower().decode("latin-1"): None for name, _ in self.response.headers})

    def __len__(self) -> int:
        return len({name.lower() for name, _ in self.response.headers})


class Sender:
    """The gate's transport for one request, which it leaves unchanged."""

    def __init__(self, ask: Ask, own: Ask | None, kinds: ChargedKinds, target: Target, request: Request) -> None:
        """Send ``request`` by ``ask``. ``own`` adds the proxy's own credentials, where it has any.

        ``kinds`` learns from lists of the namespace's quotas.
        """
        self._ask = ask
        self._own = own
        self._kinds = kinds
        self._target = target
        self.request = request
        self.came: Answer | None = None
        """The answer that came before the request joined the line: it is handled like that of the first send."""
        self.names_itself = False
        """Whether the creator gave the name."""
        self.posts = 0
        """How often it was sent."""
        self.word: Response | None = None
        """The server's last answer to it."""

    async def send(self, body: dict[str, Any]) -> Answer:
        """Send the creator's bytes, marked with the name and create id of ``body``; as they are if it has no id."""
        if self.came is not None:
            answer, self.came = self.came, None
            return answer
        head = self.request.head
        marked = self._marked(body)
        headers = [header for header in head.headers if header[0].lower() not in FRAMING]
        self.posts += 1
        self.word = await self._ask(Request(Head(head.method, head.target, headers), marked))
        return received(self.word)

    def stands_in(self, named: Named) -> Answer:
        """Return the sent object as the answer to a create that is known to be stored, but may not be looked up."""
        content_type = (self.request.head.get(b"content-type") or JSON).decode("latin-1")
        return Answer(201, {"Content-Type": content_type}, self._marked(named.body), made_here=True)

    async def look_up(self, name: str) -> Answer:
        """GET the object of that name as the creator, in a form that can be read."""
        path = self.request.head.target.partition(b"?")[0]
        if self._target.rest:
            path = _object_of(path, self._target)
        else:
            path = _SLASHES_AT_END.sub(b"", path) + b"/" + quote(name, safe="").encode()
        return await self._get(path, readable(self.request.head.get(b"accept")))

    async def living(self) -> dict[str, Any] | None:
        """GET the object that the request is sent to, as the creator; None if it is missing or unreadable."""
        path = _object_of(self.request.head.target.partition(b"?")[0], self._target)
        try:
            async with asyncio.timeout(READ_PATIENCE):
                answer = await self._get(path, JSON)
        except (NotSent, OutcomeUnknown, TimeoutError):
            return None
        return answer.json() if answer.ok else None

    async def list_quotas(self) -> Answer:
        """GET the quotas of the namespace, as the proxy if it may, else as the creator; within 2 s."""
        path = quotas_url("", self._target.namespace).encode()
        async with asyncio.timeout(READ_PATIENCE):
            answer = None if self._own is None else received(await self._own(_get(path, [], JSON)))
            if answer is None or not answer.ok:
                answer = await self._get(path, JSON)
        self._kinds.listed(self._target.namespace, answer)
        return answer

    def _marked(self, body: dict[str, Any]) -> bytes:
        annotations = annotations_of(body)
        if CREATE_ID not in annotations:
            return self.request.body
        name = "" if self.names_itself else metadata_of(body).get("name") or ""
        return marked_body(self.request, name, annotations)

    async def _get(self, path: bytes, accept: bytes) -> Answer:
        return received(await self._ask(_get(path, as_caller(self.request.head.headers), accept)))


def _object_of(path: bytes, target: Target) -> bytes:
    """Return the path of the object itself, for a request to it or to a subresource of it."""
    parts = unquote(path.decode("latin-1")).rstrip("/").split("/")
    subresource = target.rest.count("/") - 1
    return "/".join(quote(part, safe="") for part in parts[: len(parts) - subresource]).encode()


def _get(path: bytes, who: Headers, accept: bytes) -> Request:
    return Request(Head(b"GET", path, [*who, (b"Accept", accept)]), b"")


def received(response: Response) -> Answer:
    """Return a response as the gate reads it, without copying its bytes."""
    reader = reader_of(first(response.headers, b"content-type"))
    packed = first(response.headers, b"content-encoding")
    if packed is not None and packed.lower() != b"identity":
        reader = partial(_unpacked, reader)
    return Answer(response.status, Received(response), response.body, reader=reader)


def _unpacked(reader: Reader | None, body: bytes) -> dict[str, Any] | None:
    """Read a body that the server has compressed; None for one that can't be read."""
    unpacking = zlib.decompressobj(wbits=47)  # gzip or zlib
    try:
        plain = unpacking.decompress(body, UNPACKED_MAX)
    except zlib.error:
        return None
    return Answer(0, {}, plain, reader=reader).json()


def response_of(answer: Answer, head: Head) -> Response:
    """Return an answer for its caller: as the server sent it, or our own in a form that the caller accepts."""
    if isinstance(answer.headers, Received):
        came = answer.headers.response
        if came.status == answer.status:
            return came
        return replace(own_response(answer), headers=came.headers)
    own = own_response(answer)
    form = _form(head.get(b"accept"))
    status = answer.json() if form else None
    if form and status is not None and status.get("kind") == "Status":
        own.headers = [header for header in own.headers if header[0].lower() != b"content-type"]
        own.headers.append((b"Content-Type", form))
        own.body = status_message(status) if form == PROTOBUF else own.body
    return own


def _form(accept: bytes | None) -> bytes:
    """Return the form to answer in, for a caller that does not accept JSON; empty: JSON, for want of another form."""
    wanted = [each.partition(b";")[0].strip().lower() for each in (accept or b"*/*").split(b",")]
    if any(each in (b"application/json", b"application/*", b"*/*") for each in wanted):
        return b""
    forms = (PROTOBUF, b"application/yaml")  # JSON is YAML
    return next((each for each in wanted if each in forms), b"")
