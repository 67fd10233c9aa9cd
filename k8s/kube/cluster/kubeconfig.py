"""What is wrong with a kubeconfig, in a sentence that says what there is instead: files, contexts, login programs.

The official client reads kubeconfigs for commands, and ``sidecar/finding`` reads them for sidecars. Both say only that
something is missing.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import mapping, mappings, text
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.answers.spelling import hint, misspelt

OTHER: Final = "choose another file with --kubeconfig"
CONTEXT: Final = "choose another with --context"
SHOWN_MAX: Final = 12
"""Contexts that a sentence names."""
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class KubeconfigError(Exception):
    """A kubeconfig can't be used; the message says why, what there is, and what to do. It shows no secrets."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The kubeconfig, of one file or several, with its contexts, clusters and users by name."""

    named: str
    current: str
    contexts: Mapping[str, Mapping[str, Any]]
    clusters: Mapping[str, Mapping[str, Any]]
    users: Mapping[str, Mapping[str, Any]]
    folder: Path


def files_in(listed: str) -> list[Path]:
    """Return the files of ``$KUBECONFIG``, or the default one."""
    return [_expanded(each) for each in listed.split(os.pathsep) if each] or [_default()]


def check_kubeconfig(
    files: Sequence[Path], context: str | None, *, needed: bool, login: bool = True, loader: Any = None
) -> None:
    """Raise ``KubeconfigError`` for a kubeconfig of these files that can't be used.

    ``needed``: one has to be there. ``login``: its user has to be able to log in here. ``loader`` is one of PyYAML, by
    default that of the official client.
    """
    there = [each for each in files if each.exists()]
    if not there:
        if not needed:
            return
        raise KubeconfigError(_absent(files[0], context))
    chosen = _read(there, loader)
    name = context or chosen.current
    if not chosen.contexts:
        raise KubeconfigError(f"{chosen.named} has no context, so it names no cluster; {OTHER}")
    if not name:
        first = next(iter(chosen.contexts))
        raise KubeconfigError(
            f"{chosen.named} names no current context: choose one with --context ({_listed(chosen.contexts)}), or set "
            f"it (kubectl config use-context {printable(first)}); or {OTHER}"
        )
    if name not in chosen.contexts:
        shown = printable(name)
        lacks = f" has no context {shown!r}" if context else f": its current context {shown!r} is not in it"
        meant = f"did you mean {printable(near)}? " if (near := misspelt(name, chosen.contexts)) else ""
        raise KubeconfigError(f"{chosen.named}{lacks}: {meant}it has {_listed(chosen.contexts)}; {CONTEXT}, or {OTHER}")
    _check_context(chosen, name)
    if login:
        _check_user(chosen, text(chosen.contexts[name].get("user")))


def _check_context(chosen: _Chosen, name: str) -> None:
    """Raise ``KubeconfigError`` for a context whose cluster or user is missing."""
    settings = chosen.contexts[name]
    for key, there in (("cluster", chosen.clusters), ("user", chosen.users)):
        wanted = text(settings.get(key))
        if key == "user" and not wanted:  # some servers need no credentials
            continue
        if wanted not in there:
            has = hint(wanted, there) if there else f"it has no {key}s"
            said = f"{printable(wanted)!r}, which is not in it: {has}" if wanted else "not named"
            raise KubeconfigError(
                f"{chosen.named}: the {key} of context {printable(name)} is {said}; {CONTEXT}, or {OTHER}"
            )


def _check_user(chosen: _Chosen, name: str) -> None:
    """Raise ``KubeconfigError`` for a user who can't log in here."""
    user, who = chosen.users.get(name, {}), f"{chosen.named}: user {printable(name)}"
    if any(user.get(key) for key in ("token", "tokenFile", "username")):
        return
    command = text(mapping(user.get("exec")).get("command"))
    if command and not _runs(command, chosen.folder):
        advice = " ".join(text(mapping(user.get("exec")).get("installHint")).split())
        install = f"install it ({printable(advice[:200])})" if advice else "install it"
        raise KubeconfigError(
            f"{who} logs in with the program {printable(command)}, which is not there: {install}; {CONTEXT}, or {OTHER}"
        )
    until = _valid_until(user, chosen.folder)
    if until is not None and until < time.time():
        day = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M UTC")
        raise KubeconfigError(f"{who} has a certificate that expired on {day}: get a new one; {CONTEXT}, or {OTHER}")


def _absent(file: Path, context: str | None) -> str:
    """Return that a file is missing, and what there is instead."""
    wanted = f", so there is no context {printable(context)!r}" if context else ""
    near = None
    with suppress(OSError):  # its folder can't be listed: no hint
        near = misspelt(file.name, [each.name for each in file.parent.iterdir() if each.is_file()])
    if near is not None:
        return f"there is no kubeconfig {_shown(file)}{wanted}: did you mean {_shown(file.parent / near)}? {OTHER}"
    default = _default()
    if file == default:
        return f"there is no kubeconfig {_shown(file)}{wanted}; {OTHER}"
    if not default.exists():
        return f"there is no kubeconfig {_shown(file)}{wanted}, nor the default one, {_shown(default)}; {OTHER}"
    try:
        contexts = f", with the contexts {_listed(found)}" if (found := _read([default]).contexts) else ""
    except KubeconfigError:
        contexts = ""
    said = f"there is no kubeconfig {_shown(file)}{wanted}"
    return f"{said}; the default one, {_shown(default)}, is there{contexts}; {OTHER}"


def _default() -> Path:
    return _expanded("~/.kube/config")


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 - it leaves a user alone who has no home


def _read(files: Iterable[Path], loader: Any = None) -> _Chosen:
    """Read files as kubectl merges them: of equal names the first counts. Raises ``KubeconfigError``."""
    paths = list(files)
    named = "the kubeconfig " + os.pathsep.join(map(_shown, paths))
    current, found = "", {each: dict[str, Mapping[str, Any]]() for each in ("context", "cluster", "user")}
    for path in paths:
        document = _document(path, loader)
        current = current or text(document.get("current-context"))
        for key, entries in found.items():
            listed = document.get(f"{key}s")
            if listed is not None and not isinstance(listed, list):
                raise KubeconfigError(
                    f"the kubeconfig {_shown(path)} does not have the structure of a kubeconfig: {key}s is no list; "
                    f"{OTHER}"
                )
            for each in mappings(listed):
                entries.setdefault(text(each.get("name")), mapping(each.get(key)))
    return _Chosen(named, current, found["context"], found["cluster"], found["user"], paths[0].parent)


def _document(path: Path, loader: Any) -> Mapping[str, Any]:
    import yaml  # noqa: PLC0415 - 20 ms, and no pod has a kubeconfig

    named = f"the kubeconfig {_shown(path)}"
    if path.is_dir():
        raise KubeconfigError(f"{named} is a folder; {OTHER}")
    try:
        written = path.read_bytes()
        document = yaml.load(written, loader or yaml.SafeLoader)  # noqa: S506 - both are safe
    except OSError as error:
        raise KubeconfigError(f"{named} can't be read: {error.strerror or error}; {OTHER}") from None
    except yaml.MarkedYAMLError as error:  # its text would show what stands there
        place = f" at line {mark.line + 1}" if (mark := error.problem_mark) else ""
        raise KubeconfigError(f"{named} is not valid YAML{place}: correct it, or {OTHER}") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: not UTF-8, or a date in month 99
        raise KubeconfigError(f"{named} is not valid YAML: correct it, or {OTHER}") from None
    if document is None:
        raise KubeconfigError(f"{named} is empty; {OTHER}")
    if not isinstance(document, dict):
        raise KubeconfigError(f"{named} does not have the structure of a kubeconfig: it is no object; {OTHER}")
    return document


def _runs(command: str, folder: Path) -> bool:
    """Return whether a login program is there; a path with a slash counts from the folder of the kubeconfig."""
    return shutil.which(str(folder / command) if "/" in command else command) is not None


def _valid_until(user: Mapping[str, Any], folder: Path) -> float | None:
    """Return until when a user's certificate is valid, as Unix time; None: it is missing, or can't be read."""
    data, file = text(user.get("client-certificate-data")), text(user.get("client-certificate"))
    try:
        pem = base64.b64decode(data, validate=True) if data else (folder / file).read_bytes() if file else b""
        found = _PEM.search(pem)
        return None if found is None else _not_after(ssl.PEM_cert_to_DER_cert(found[0].decode("ascii")))
    except (OSError, ValueError, IndexError, binascii.Error):  # its user reports that
        return None


def _not_after(der: bytes) -> float:
    """Read the end of the validity of a certificate (RFC 5280): no module of Python does so. Raises ``ValueError``."""
    fields = _inside(_inside(der)[0])  # TBSCertificate
    start = 1 if fields[0][:1] == b"\xa0" else 0  # the version is optional
    validity = _inside(fields[start + 3])
    written = _value(validity[1]).decode("ascii")
    if validity[1][0] == 0x17:  # UTCTime: two digits, of 1950 to 2049
        written = ("19" if written[0] in "56789" else "20") + written
    return datetime.strptime(written, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _inside(element: bytes) -> list[bytes]:
    """Split the value of a DER element into its elements."""
    found, rest = [], _value(element)
    while rest:
        whole = _length(rest)
        found.append(rest[:whole])
        rest = rest[whole:]
    return found


def _value(element: bytes) -> bytes:
    return element[2 + (element[1] & 0x7F if element[1] & 0x80 else 0) : _length(element)]


def _length(element: bytes) -> int:
    """Return how many bytes a DER element has in all."""
    first = element[1]
    if not first & 0x80:
        return 2 + first
    digits = first & 0x7F
    return 2 + digits + int.from_bytes(element[2 : 2 + digits], "big")


def _listed(names: Iterable[str]) -> str:
    shown = [printable(each) for each in names]
    return ", ".join(shown[:SHOWN_MAX]) + (", ..." if len(shown) > SHOWN_MAX else "")


def _shown(file: Path) -> str:
    return printable(str(file))
