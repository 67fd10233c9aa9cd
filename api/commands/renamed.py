"""An option with a new name: the old one still works, and a hint on stderr names the new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from backoff_ctrl.api.exits import BadInput


class Renamed(click.Option):
    """An option that is also taken by its ``old`` name, which help and completion leave out."""

    def __init__(self, *args: Any, old: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._old = old

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add both names: the parser keeps their values apart."""
        super().add_to_parser(parser, ctx)
        parser.add_option(obj=self, opts=[self._old], dest=self._old, action="store", nargs=1)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        """Return the value by either name. Raises ``BadInput`` for both."""
        given = opts.get(self._old)
        if given is None:
            return super().consume_value(ctx, opts)
        new = self.opts[0]
        if opts.get(self.name or "") is not None:
            raise BadInput(f"{self._old} is the old name of {new}: give only one of them")
        if not ctx.resilient_parsing:  # a shell that completes shows no hints
            click.echo(f"backoff-ctrl: {self._old} is the old name of {new}, and still works", err=True)
        return super().consume_value(ctx, {**opts, self.name or "": given})
