"""``--policy KEY=VALUE``: how the gate of a command waits. The environment's ``BACKOFF_CTRL_POLICY`` does the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.engine.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

POLICY: Callable[[Any], Any] = click.option(
    "--policy",
    "policy",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the gate, such as base=2 or cap=60: seconds of the first and the longest delay. Repeatable.",
)


def set_policy(given: Iterable[str], below: Mapping[str, float] | None = None) -> None:
    """Have the gates of this process wait so; ``below`` is what the settings file says. Raises ``BadInput``."""
    from backoff_ctrl.k8s.sharing.environment import policy_settings  # noqa: PLC0415 - loads the gate
    from backoff_ctrl.k8s.sharing.process import use_policy  # noqa: PLC0415 - likewise

    try:
        above = policy_settings(given)
    except PolicyError as error:
        raise BadInput(f"--policy: {error}") from None
    try:
        use_policy(below=below or {}, above=above)
    except PolicyError as error:
        source = "--policy" if above else "tasks.backoff, with BACKOFF_CTRL_POLICY"
        raise BadInput(f"{source}: {error}") from None
