"""Which options of a list or a watch go together (``k8s.io/apimachinery`` ``pkg/apis/meta/internalversion``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.kinds.answers import ApiError, bad_request, invalid_options, unexpected

if TYPE_CHECKING:
    from .requests import Query

    Problem = tuple[str, str, str]

_MATCH = "resourceVersionMatch"
_CONTINUED = "resourceVersionMatch is forbidden when continue is provided"


def check_list(query: Query) -> None:
    """Check the options of a list. Raises 400 for a malformed number, 422."""
    _check_numbers(query)
    match, version = query.text(_MATCH), query.text("resourceVersion")
    problems: list[Problem] = []
    if match:
        if not version:
            problems.append(_forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if query.text("continue"):
            problems.append(_forbidden(_CONTINUED))
        if match not in {"Exact", "NotOlderThan"}:
            problems.append(_unsupported(match, '"Exact", "NotOlderThan", ""'))
        if match == "Exact" and version == "0":
            problems.append(_forbidden('resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if query.has("sendInitialEvents"):
        problems.append(_forbidden("sendInitialEvents is forbidden for list", "sendInitialEvents"))
    if problems:
        raise invalid_options("ListOptions", *problems)


def check_watch(query: Query) -> None:
    """Check the options of a watch. Raises 400 for a malformed number, 422."""
    _check_numbers(query)
    match, initial = query.text(_MATCH), query.has("sendInitialEvents")
    problems: list[Problem] = []
    if initial and match != "NotOlderThan":
        problems.append(_forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if match and not initial:
        problems.append(_forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
    if match and match != "NotOlderThan":
        problems.append(_unsupported(match, '"NotOlderThan"'))
    if query.text("continue"):
        problems.append(_forbidden(_CONTINUED))
    if problems:
        raise invalid_options("ListOptions", *problems)


def _check_numbers(query: Query) -> None:
    """Parse every number, even one that does not matter to the request. Raises 400."""
    for name in ("timeoutSeconds", "limit"):
        query.number(name)


def version_of_list(text: str) -> int:
    """The resourceVersion of a list as a number. Raises 400."""
    if not text.isdecimal():
        raise bad_request(f"invalid resource version: {_no_number(text)}")
    return int(text)


def version_of_one(text: str) -> int:
    """The resourceVersion of a get or a watch as a number. A malformed one is the server's error here: raises 500."""
    if not text.isdecimal():
        raise unexpected(_no_number(text))
    return int(text)


def _no_number(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def too_large_version(version: int, current: int) -> ApiError:
    """504 for a version that does not exist yet."""
    message = f"Too large resource version: {version}, current: {current}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return ApiError(504, "Timeout", f"Timeout: {message}", details)


def _forbidden(text: str, field: str = _MATCH) -> Problem:
    return ("FieldValueForbidden", field, f"Forbidden: {text}")


def _unsupported(value: str, supported: str) -> Problem:
    return ("FieldValueNotSupported", _MATCH, f'Unsupported value: "{value}": supported values: {supported}')
