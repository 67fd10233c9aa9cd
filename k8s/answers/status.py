"""Extract message, code and details from an answer in any form: a Status as JSON, a bare text, a line of a log."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from backoff_ctrl.k8s.answers.fields import mapping, mappings, text

LONGEST_BODY: Final = 65_536  # bytes or characters of an answer that are read; a Status is below 2 KiB

_STATUS_OBJECT: Final = re.compile(r'\{\s{0,99}"kind"\s{0,9}:\s{0,9}"Status"')
_DECODER: Final = json.JSONDecoder()

# How clients and kubectl write the status code of an answer into a line of text.
_CODE_TEXT: Final = re.compile(
    r"""(?:\b[Cc]ode["']?\s?[:=]\s?|HTTP/[12](?:\.\d)? |HTTP (?:status )?(?:code )?|\A\(|: \(|xception \()"""
    r"([1-5]\d\d)\b"
)
_REASON_TEXT: Final = re.compile(r'(?:rror from server \(|Reason: |reason=|"reason"\s{0,9}:\s{0,9}")([A-Za-z ]{4,40})')
_REASON_CODES: Final = {
    "AlreadyExists": 409,
    "BadRequest": 400,
    "Bad Request": 400,
    "Conflict": 409,
    "Forbidden": 403,
    "Gateway Timeout": 504,
    "InternalError": 500,
    "Internal Server Error": 500,
    "Invalid": 422,
    "NotFound": 404,
    "Not Found": 404,
    "RequestEntityTooLarge": 413,
    "ServiceUnavailable": 503,
    "Service Unavailable": 503,
    "Timeout": 504,
    "Too Many Requests": 429,
    "TooManyRequests": 429,
    "Unauthorized": 401,
    "Unprocessable Entity": 422,
}


class Said(NamedTuple):
    """The parts of an answer that decide its meaning."""

    message: str
    code: int = 0  # 0: the text names none
    reason: str = ""
    kind: str = ""  # of the object that the answer is about, if given
    name: str = ""
    causes: tuple[str, ...] = ()
    retry_after: float | None = None

    @property
    def line(self) -> str:
        """The message on one line: logs, events and YAML wrap it or pad it into columns."""
        return " ".join(self.message.split()).replace(" =", "=")


def open_answer(body: bytes | str) -> Said:
    """Return the message and details of an answer. Never raises."""
    text = body[:LONGEST_BODY]
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    text = text.strip()
    status = _status_in(text)
    if status is not None:
        said = _said(status)
        if said.message or said.reason:
            return said
    plain = text.replace("\\n", " ").replace("\\", "")
    return Said(plain, _code_in(plain))


def _status_in(text: str) -> dict[str, Any] | None:
    """Return the Status object that is the text, or the first one inside it."""
    found = _STATUS_OBJECT.search(text)
    if found is None and not text.startswith("{"):
        return None
    try:
        value, _ = _DECODER.raw_decode(text, found.start() if found else 0)
    except (ValueError, RecursionError):  # truncated, escaped twice, or hostile: read it as plain text
        return None
    return value if isinstance(value, dict) and value.get("kind") == "Status" else None


def _said(status: dict[str, Any]) -> Said:
    """Read the fields of a Status. Each may be missing or of the wrong type."""
    details = mapping(status.get("details"))
    code, wait = status.get("code"), details.get("retryAfterSeconds")
    return Said(
        message=text(status.get("message")),
        code=code if isinstance(code, int) else 0,
        reason=text(status.get("reason")),
        kind=text(details.get("kind")),
        name=text(details.get("name")),
        causes=tuple(text(cause.get("reason")) for cause in mappings(details.get("causes"))),
        retry_after=float(wait) if isinstance(wait, int) and 0 < wait < 2**31 else None,
    )


def _code_in(text: str) -> int:
    """Infer the status code from a line that reports an answer; 0 if the line does not say."""
    if found := _CODE_TEXT.search(text):
        return int(found.group(1))
    for reason in _REASON_TEXT.finditer(text):
        words = reason.group(1).split(" HTTP")[0].strip()
        if words in _REASON_CODES:
            return _REASON_CODES[words]
    return 0
