"""``backoff-ctrl act``: what an operator may do to a running gate."""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from backoff_ctrl.api.exits import DONE, BadInput, Failed
from backoff_ctrl.k8s.acting.token import TOKEN, read_token
from backoff_ctrl.k8s.answers.printing import printable
from backoff_ctrl.k8s.status.shapes.documents import Acted

from .asking import Instance, RefusedError
from .options import AS_JSON, SERVER, TIMEOUT
from .place import find_place

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., object])


@click.group("act")
def command() -> None:
    """Act on a running gate: pause and resume a namespace, forget a quota, move or cancel a waiting create.

    Nothing of it outlives the program that holds the gate. Each action is one line of its log: who, what, from where
    and why. It needs a token: the one in BACKOFF_CTRL_STATUS_TOKEN, else in --token-file, else the one that a gate of
    this machine and user has drawn, which is found by itself.

    Exit codes: 0 done; 1 it could not be done; 2 wrong use, no token, or no instance answers.
    """


def _options(command: F) -> F:
    token_file = click.option("--token-file", metavar="FILE", help="The file with the gate's token.")
    why = click.option("--why", default="", metavar="TEXT", help="Why, for the log and for those who wait.")
    return SERVER(why(token_file(TIMEOUT(AS_JSON(command)))))


@command.command("pause")
@click.argument("namespace")
@_options
def pause(namespace: str, **options: Any) -> int:
    """Send no create of NAMESPACE until it is resumed: they wait. What was sent already goes on."""
    return _act("pause", {"namespace": namespace}, **options)


@command.command("resume")
@click.argument("namespace")
@_options
def resume(namespace: str, **options: Any) -> int:
    """Let the creates of NAMESPACE go on."""
    return _act("resume", {"namespace": namespace}, **options)


@command.command("forget")
@click.argument("namespace")
@click.argument("quota")
@_options
def forget(namespace: str, quota: str, **options: Any) -> int:
    """Forget the ceilings that were learned of QUOTA in NAMESPACE: the server's next answer teaches them anew.

    What a watch reports can't be forgotten: it is what the API server says.
    """
    return _act("forget", {"namespace": namespace, "quota": quota}, **options)


@command.command("prioritize", context_settings={"ignore_unknown_options": True})
@click.argument("id")
@click.argument("priority", type=int)
@_options
def prioritize(id: str, priority: int, **options: Any) -> int:  # noqa: A002 - as the status API calls it
    """Give the waiting create ID another PRIORITY, as if it had joined the line with it; higher goes first.

    `waiting --json` shows the ids.
    """
    return _act("prioritize", {"id": id, "priority": priority}, **options)


@command.command("cancel")
@click.argument("id")
@_options
def cancel(id: str, **options: Any) -> int:  # noqa: A002
    """Cancel the waiting create ID; its caller gets an error that says so. `waiting --json` shows the ids."""
    return _act("cancel", {"id": id}, **options)


def _act(
    name: str,
    what: dict[str, Any],
    *,
    server: str | None,
    why: str,
    token_file: str | None,
    timeout: float,
    as_json: bool,
) -> int:
    place = find_place(server)
    token = _token(token_file, place.port if place.local else None)
    instance = Instance(place, timeout, token)
    body = {**what, "by": _who(), **({"why": why} if why else {})}
    try:
        acted, document = instance.post(f"/v1/actions/{name}", json.dumps(body).encode(), Acted)
    except RefusedError as error:
        if error.status in (404, 409):
            raise Failed(error.format_message()) from None
        raise
    click.echo(json.dumps(document, indent=2) if as_json else printable(acted.done))
    return DONE


def _token(file: str | None, port: int | None) -> str:
    """Return the token to act with. Raises ``BadInput``."""
    if file is not None:
        try:
            found = Path(file).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise BadInput(f"--token-file: {printable(file)} can't be read: {error}") from None
    else:
        found = read_token(port or 0)
    if not found or not found.isprintable() or not found.isascii():
        raise BadInput(
            f"there is no token to act with: set {TOKEN} here as in the program that holds the gate, or give the file "
            "that its token is in with --token-file"
        )
    return found


def _who() -> str:
    """Return who acts, for the log of the gate."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
