"""Channels to connectors, one for each and kept; and what a gRPC status means.

The statuses follow the table of ``google.rpc.Code``. ``UNAVAILABLE`` and ``DEADLINE_EXCEEDED`` are faults of the
network: the connector has not answered. A connector of flytekit reports each exception of its own code as ``INTERNAL``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from backoff_ctrl.k8s.gate.settings import settings
from backoff_ctrl.k8s.tasks.plugins.web_protocol import RemoteError

from .settings import Deployment

OPTIONS: Final = (
    # A server takes more frequent pings for an attack. Data that is not acknowledged for 20 s ends a connection, too.
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # The details of an error are metadata. flytekit sends tracebacks, and 8 KiB is what gRPC allows by itself.
    ("grpc.max_metadata_size", 262_144),
    ("grpc.absolute_max_metadata_size", 524_288),
    # gRPC's own 2 minutes would keep a connector down that is up again.
    ("grpc.max_reconnect_backoff_ms", 5_000),
)
_CODES: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNIMPLEMENTED: 501,
}
"""HTTP's status of each; any other is 500."""
TOO_LARGE: Final = 502
"""What an answer is that exceeds a limit of gRPC: the client reports it as ``RESOURCE_EXHAUSTED``, like a 429."""
_OVER_LIMIT: Final = ("received message larger than max", "received metadata size exceeds")
DETAILS_MAX: Final = 2_000
"""Characters of a connector's own message that are repeated: flytekit sends whole tracebacks, whose end says why."""


class Channels:
    """The channels to connectors, on one event loop."""

    def __init__(self) -> None:
        self._open: dict[tuple[Any, ...], grpc.aio.Channel] = {}

    def to(self, deployment: Deployment) -> grpc.aio.Channel:
        """Return the channel to a connector; it connects, and connects again, by itself."""
        key = (deployment.endpoint, deployment.insecure, deployment.default_service_config)
        if key not in self._open:
            self._open[key] = opened(grpc.aio, deployment)
        return self._open[key]

    async def aclose(self) -> None:
        for each in self._open.values():
            await each.close()
        self._open.clear()


def opened(library: Any, deployment: Deployment) -> Any:
    """Return a new channel to a connector, of ``grpc`` or of ``grpc.aio``.

    Over TLS a connector is trusted by the authorities in the file ``SSL_CERT_FILE``, else by those that grpcio ships.
    """
    config, trusted = deployment.default_service_config, settings().authorities
    options = [*OPTIONS, *([("grpc.service_config", config)] if config else [])]
    if deployment.insecure:
        return library.insecure_channel(deployment.endpoint, options)
    authorities = Path(trusted).read_bytes() if trusted else None
    return library.secure_channel(deployment.endpoint, grpc.ssl_channel_credentials(authorities), options)


def translated(error: grpc.aio.AioRpcError, who: str, operation: str, limit: float | None) -> Exception:
    """Return what a failed call means in the words of ``webapi.protocol``."""
    code, details = error.code(), shortened(error.details() or "no details")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimeoutError(f"{who} has not answered {operation} within {limit or 0:g} s")
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        refused = "failed to connect" in details.lower()
        return (ConnectionRefusedError if refused else ConnectionError)(f"{who} does not answer: {details}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and any(each in details.lower() for each in _OVER_LIMIT):
        return RemoteError(TOO_LARGE, f"{who}, {operation}: {details}")
    return RemoteError(_CODES.get(code, 500), f"{who}, {operation}: {code.name}: {details}", _retry_after(error))


def shortened(text: str) -> str:
    """Return a message of a connector; of a long one its end."""
    return text if len(text) <= DETAILS_MAX else f"... {text[-DETAILS_MAX:]}"


def _retry_after(error: grpc.aio.AioRpcError) -> float | None:
    """Return the seconds that a connector asks to wait: ``google.rpc.RetryInfo`` in the trailing metadata."""
    found = next((value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin"), b"")
    try:
        details = Status.FromString(found).details
    except DecodeError:
        return None
    info = RetryInfo()
    return next((info.retry_delay.ToTimedelta().total_seconds() for each in details if each.Unpack(info)), None)
