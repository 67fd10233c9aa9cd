"""Who is told of what: named receivers with filters, read from a file. Anything wrong is an error with its place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

EVENTS: Final = ("waiting", "created", "declined", "timed-out", "cancelled", "failed")
"""What can be told of a create. ``created`` and the others that end it are told only of those that waited."""
USUAL: Final = ("waiting", "declined", "timed-out", "failed")
LONGER_THAN: Final = 300.0
RECEIVERS_MAX: Final = 16
SECRET_MIN: Final = 16


class ReceiversError(ValueError):
    """The file of receivers can't be used. The message names the file and the field, and says what to do."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """One receiver. ``longer_than``: seconds that a create must have waited; ``namespaces`` may have ``*``."""

    name: str
    url: str
    secret: str = ""
    namespaces: tuple[str, ...] = ("*",)
    events: tuple[str, ...] = USUAL
    reasons: tuple[str, ...] = ()
    """Why it waits or was declined; empty: whatever the reason."""
    longer_than: float = LONGER_THAN

    def wants(self, event: str, namespace: str, reason: str, waited: float) -> bool:
        """Say whether it is to be told. What was declined need not have waited."""
        return (
            event in self.events
            and any(fnmatchcase(namespace, each) for each in self.namespaces)
            and (not self.reasons or reason in self.reasons)
            and (event == "declined" or waited >= self.longer_than)
        )


def read_receivers(file: Path, environment: Mapping[str, str] = os.environ) -> tuple[Receiver, ...]:
    """Read the receivers of a YAML or JSON file. Raises ``ReceiversError``."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ReceiversError(f"{file} can't be read: {error}") from None
    try:
        _fields(found, "the file", {"receivers"})
        listed = found.get("receivers")
        if not isinstance(listed, list) or not 1 <= len(listed) <= RECEIVERS_MAX:
            raise ReceiversError(f"receivers must be a list of 1 to {RECEIVERS_MAX}")  # noqa: TRY301
        receivers = tuple(_receiver(each, f"receivers[{at}]", environment) for at, each in enumerate(listed))
        names = [each.name for each in receivers]
        if len(set(names)) < len(names):
            raise ReceiversError("the names of receivers must differ")  # noqa: TRY301
    except ReceiversError as error:
        raise ReceiversError(f"{file}: {error}") from None
    return receivers


def _receiver(found: Any, place: str, environment: Mapping[str, str]) -> Receiver:
    known = {"name", "url", "secret-env", "secret-file", "namespaces", "events", "reasons", "longer-than"}
    _fields(found, place, known)
    name, url = (_text(found.get(each), f"{place}.{each}") for each in ("name", "url"))
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.fragment:
        raise ReceiversError(f"{place}.url must be a URL such as https://hooks.example.com/quota, without credentials")
    longer = found.get("longer-than", LONGER_THAN)
    if isinstance(longer, bool) or not isinstance(longer, int | float) or not 0 <= longer <= 10**9:
        raise ReceiversError(f"{place}.longer-than must be a number of seconds, 0 or more")
    events = _texts(found, "events", place, USUAL)
    if wrong := [each for each in events if each not in EVENTS]:
        raise ReceiversError(f"{place}.events: {wrong[0]!r} is none; there are {', '.join(EVENTS)}")
    return Receiver(
        name,
        url,
        _secret(found, place, environment),
        _texts(found, "namespaces", place, ("*",)),
        events,
        _texts(found, "reasons", place, ()),
        float(longer),
    )


def _secret(found: Mapping[str, Any], place: str, environment: Mapping[str, str]) -> str:
    """Return what signs; empty: nothing does. It is never in the file itself, which people copy and commit."""
    if "secret-env" in found:
        variable = _text(found["secret-env"], f"{place}.secret-env")
        secret = environment.get(variable, "")
    elif "secret-file" in found:
        file = _text(found["secret-file"], f"{place}.secret-file")
        try:
            secret = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ReceiversError(f"{place}.secret-file can't be read: {error}") from None
    else:
        return ""
    if len(secret) < SECRET_MIN:
        raise ReceiversError(f"{place}: the secret is missing or shorter than {SECRET_MIN} characters")
    return secret


def _fields(found: Any, place: str, known: set[str]) -> None:
    if not isinstance(found, dict):
        raise ReceiversError(f"{place} must be an object with {', '.join(sorted(known))}")
    if wrong := [str(name) for name in found if name not in known]:
        raise ReceiversError(f"{place}: unknown field {wrong[0]!r}; there are {', '.join(sorted(known))}")


def _text(found: Any, place: str) -> str:
    if not isinstance(found, str) or not found or not found.isprintable():
        raise ReceiversError(f"{place} must be a text")
    return found


def _texts(found: Mapping[str, Any], name: str, place: str, usual: tuple[str, ...]) -> tuple[str, ...]:
    listed = found.get(name, list(usual))
    if not isinstance(listed, list):
        raise ReceiversError(f"{place}.{name} must be a list of texts")
    return tuple(_text(each, f"{place}.{name}") for each in listed)
