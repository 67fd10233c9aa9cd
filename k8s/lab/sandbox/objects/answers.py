"""Status objects and the causes of a 422, with the wording of Kubernetes.

Sources: ``k8s.io/apimachinery`` ``pkg/api/errors`` and ``pkg/util/validation/field``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .kinds import Kind

JSON = dict[str, Any]

Problem = tuple[str, str, str]
"""Reason, field and message: one cause of a 422."""


def bad(field: str, value: Any, text: str) -> Problem:
    """A value that breaks a rule; ``text`` says which."""
    shown = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return ("FieldValueInvalid", field, f"Invalid value: {shown}: {text}")


def missing(field: str, text: str = "") -> Problem:
    return ("FieldValueRequired", field, f"Required value: {text}" if text else "Required value")


def unsupported(field: str, value: Any, *supported: str) -> Problem:
    listed = ", ".join(f'"{each}"' for each in supported)
    return ("FieldValueNotSupported", field, f'Unsupported value: "{value or ""}": supported values: {listed}')


def fixed(field: str, value: Any) -> Problem:
    return bad(field, value, "field is immutable")


def in_range(field: str, value: int, least: int, most: int) -> list[Problem]:
    return [] if least <= value <= most else [bad(field, value, f"must be between {least} and {most}, inclusive")]


PLAIN_404 = "404 page not found"


class ApiError(Exception):
    """An answer that is not a success: an HTTP code and its Status."""

    def __init__(self, code: int, reason: str, message: str, details: JSON | None = None) -> None:
        """Build the Status from these fields; an empty ``reason`` is left out."""
        super().__init__(message)
        self.code = code
        self.status: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self.status["message"] = message
        if reason:
            self.status["reason"] = reason
        if details is not None:
            self.status["details"] = details
        self.status["code"] = code


def success(kind: Kind, name: str, uid: str) -> JSON:
    """The Status that answers a delete, for kinds whose last state is not returned."""
    details = {**_details(kind, name), "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _details(kind: Kind, name: str) -> JSON:
    """Name, group and resource, which stands under ``kind``."""
    return (
        {"name": name, "group": kind.group, "kind": kind.plural} if kind.group else {"name": name, "kind": kind.plural}
    )


def not_found(kind: Kind, name: str) -> ApiError:
    """404 for an object that does not exist."""
    return ApiError(404, "NotFound", f'{kind.group_resource} "{name}" not found', _details(kind, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def already_exists(kind: Kind, name: str, *, terminating: bool = False) -> ApiError:
    """409 for a name that is taken; ``terminating`` when its object is being deleted."""
    message = f'{"object is being deleted: " if terminating else ""}{kind.group_resource} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(kind, name))


def conflict(kind: Kind, name: str, why: str = "") -> ApiError:
    """409 for an update of a version that is not the newest."""
    why = why or ("the object has been modified; please apply your changes to the latest version and try again")
    message = f'Operation cannot be fulfilled on {kind.group_resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(kind, name))


def forbidden(kind: Kind, name: str, why: str, causes: list[JSON] | None = None) -> ApiError:
    """403 from an admission plugin."""
    details = _details(kind, name)
    if causes:
        details["causes"] = causes
    return ApiError(403, "Forbidden", f'{kind.group_resource} "{name}" is forbidden: {why}', details)


def invalid(kind: Kind, name: str, problems: Sequence[Problem], *, of_resource: bool = False) -> ApiError:
    """422 with its causes."""
    details: JSON = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    word = kind.plural if of_resource else kind.kind
    return _invalid(f"{word}.{kind.group}" if kind.group else word, name, {**details, "kind": word}, problems)


def invalid_options(options: str, *problems: Problem) -> ApiError:
    """422 for invalid request parameters; ``options`` is CreateOptions, PatchOptions..."""
    return _invalid(f"{options}.meta.k8s.io", "", {"group": "meta.k8s.io", "kind": options}, problems)


def _invalid(what: str, name: str, details: JSON, problems: Sequence[Problem]) -> ApiError:
    causes = [{"reason": reason, "message": text, "field": field} for reason, field, text in problems]
    lines = list(dict.fromkeys(f"{field}: {text}" for _, field, text in problems))  # only the causes repeat
    shown = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    return ApiError(422, "Invalid", f'{what} "{name}" is invalid: {shown}', {**details, "causes": causes})


def unexpected(message: str) -> ApiError:
    return ApiError(500, "", message)


def no_such_page() -> ApiError:
    """404 outside every served group and version: plain text."""
    return ApiError(404, "", PLAIN_404)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unsupported_media_type(allowed: tuple[str, ...]) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(allowed)}"
    return ApiError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> ApiError:
    message = f"Request entity too large: limit is {limit}"
    return ApiError(413, "RequestEntityTooLarge", message)


def not_acceptable(message: str) -> ApiError:
    return ApiError(406, "NotAcceptable", message)


def expired(message: str, metadata: JSON | None = None) -> ApiError:
    """410 for a version whose history is gone; ``metadata`` may tell a list how to continue."""
    error = ApiError(410, "Expired", message)
    error.status["metadata"] = metadata or {}
    return error


def internal(message: str) -> ApiError:
    """500 with the API server's message."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})


def timed_out() -> ApiError:
    """504 for a request that exceeded the server's own time limit: the object may have been stored."""
    message = "Timeout: request did not complete within requested timeout - context deadline exceeded"
    return ApiError(504, "Timeout", message, {})
