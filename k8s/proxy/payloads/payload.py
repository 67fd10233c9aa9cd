"""A payload: the bytes of a body, and the content type that says how to read them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

LARGEST: Final = 3 * 2**20
"""Bytes of a body that is read; the API server itself accepts no larger object."""
APPLY_PREFIX: Final = b"application/apply-patch+"


class PayloadError(ValueError):
    """A body is not what its content type says. The message says what is wrong, and never repeats what it contains."""


class Form(Enum):
    """The forms of a body that are read. What is missing here, such as CBOR, passes unread."""

    JSON = b"application/json"
    YAML = b"application/yaml"
    PROTOBUF = b"application/vnd.kubernetes.protobuf"


_FORMS: Final = {
    b"": Form.JSON,  # the API server's default
    b"application/json": Form.JSON,
    b"application/yaml": Form.YAML,
    b"application/apply-patch+yaml": Form.YAML,
    b"application/vnd.kubernetes.protobuf": Form.PROTOBUF,
}


@dataclass(frozen=True, slots=True)
class Payload:
    """A body with the value of its Content-Type header, None where there is none."""

    body: bytes
    content_type: bytes | None = None

    @property
    def form(self) -> Form | None:
        """Return how the body is read; None if it is not."""
        return _FORMS.get(self._media_type)

    @property
    def is_apply_patch(self) -> bool:
        """Whether this is a server-side apply: what it names, its field manager owns."""
        return self._media_type.startswith(APPLY_PREFIX)

    @property
    def _media_type(self) -> bytes:
        return (self.content_type or b"").partition(b";")[0].strip().lower()
