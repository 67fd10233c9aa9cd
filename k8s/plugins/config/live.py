"""Settings that follow their file while the program runs; each change is logged, key by key."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from .loading import ConfigError, read_file, settings_from
from .settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from .platform import PlatformSettings

log = logging.getLogger(__name__)

EVERY_S: Final = 10.0
"""Seconds between two looks at the file. A ConfigMap's file follows its object within a minute anyway."""
_CONFIDENTIAL: Final = "env-vars"
"""Keys with this in them hold values of environment variables, which may be secrets: only names are logged."""


class LiveSettings:
    """The settings as they are now. A file that is broken while it is edited changes nothing, and is logged once."""

    def __init__(self, path: Path | None = None, flags: Sequence[str] = ()) -> None:
        """Read them. Raises ``ConfigError``."""
        self._path, self._flags = path, tuple(flags)
        self._text = read_file(path) if path else ""
        self._trouble = ""
        self._current = settings_from(self._text, str(path), self._flags)

    @property
    def current(self) -> PlatformSettings:
        """The settings; hold them no longer than for one step."""
        return self._current

    def poll(self) -> list[str]:
        """Look at the file, take over what has changed, and return that, a line a key."""
        if self._path is None:
            return []
        try:
            text = read_file(self._path)
            if text == self._text:
                self._trouble = ""
                return []
            fresh = settings_from(text, str(self._path), self._flags)
        except ConfigError as error:
            self._complain(str(error))
            return []
        changes = list(differences(self._current, fresh))
        self._text, self._current, self._trouble = text, fresh, ""
        for change in changes:
            log.info("%s has changed: %s", self._path, change)
        return changes

    async def follow(self, changed: Callable[[list[str]], object] = lambda _: None, every: float = EVERY_S) -> None:
        """Look at the file again and again, until it is cancelled; ``changed`` is called with each change."""
        while True:
            await asyncio.sleep(every)
            if changes := await asyncio.to_thread(self.poll):
                changed(changes)

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.error("%s; the settings stay as they were", trouble)
        self._trouble = trouble


def differences(old: Settings, new: Settings, path: str = "") -> Iterator[str]:
    """Yield ``key: old -> new`` for each key that differs."""
    for name, field in type(old).model_fields.items():
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        key = f"{path}{field.alias}"
        if isinstance(before, Settings) and isinstance(after, Settings):
            yield from differences(before, after, f"{key}.")
        else:
            yield f"{key}: {_shown(key, before)} -> {_shown(key, after)}"


def _shown(key: str, value: Any) -> str:
    if _CONFIDENTIAL in key and isinstance(value, dict):
        return f"{{{', '.join(value)}}} (values are not shown)"
    return repr(value) if isinstance(value, (str, dict)) else str(value)
