"""What several commands share: ``--policy``, and how they log.

``--policy KEY=VALUE`` does what the environment's ``BACKOFF_CTRL_POLICY`` does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.engine.errors import PolicyError
from backoff_ctrl.k8s.kube.answers.printing import printable

from .bounded_log import BoundedLog

PORT_MAX: Final = 65_535

POLICY: Callable[[Any], Any] = click.option(
    "--policy",
    "policy",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the gate, such as base=2 or cap=60: seconds of the first and the longest delay. Repeatable.",
)


def set_policy(given: Iterable[str], below: Mapping[str, float] | None = None) -> None:
    """Set the policy of this process' gates; ``below`` is that of the settings file. Raises ``BadInput``."""
    from backoff_ctrl.k8s.gate.settings import policy_settings  # noqa: PLC0415 - loads much
    from backoff_ctrl.k8s.gate.sharing.process import use_policy  # noqa: PLC0415 - likewise

    try:
        above = policy_settings(given)
    except PolicyError as error:
        raise BadInput(f"--policy: {error}") from None
    try:
        use_policy(below=below or {}, above=above)
    except PolicyError as error:
        source = "--policy" if above else "tasks.backoff, with BACKOFF_CTRL_POLICY"
        raise BadInput(f"{source}: {error}") from None


def log_to_stderr(level: int) -> None:
    """Log from this level on, within bounds, with times in UTC. It has no effect where logging is set up already."""
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    handler = BoundedLog()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])


def address_of(option: str, given: str, example: str) -> tuple[str, int]:
    """Read an option that is ``HOST:PORT``. Raises ``BadInput``."""
    host, colon, port = given.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal()):
        raise BadInput(printable(f"{option} must be HOST:PORT, such as {example}, not {given!r}"))
    if int(port) > PORT_MAX:
        raise BadInput(f"{option}: there is no port {int(port)}: choose one from 1 to {PORT_MAX}, such as {example}")
    return host, int(port)
