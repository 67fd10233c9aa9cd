"""Settings that follow their file while the program runs; each change is logged, key by key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .loading import ConfigError, read_file, settings_from, without_effect
from .settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .platform import PlatformSettings

log = logging.getLogger(__name__)

EVERY_S: Final = 10.0
"""Seconds between two looks at the file. A ConfigMap's file follows its object within a minute anyway."""
Files = Iterable[Path]
_CONFIDENTIAL: Final = "env-vars"
"""Keys with this in them hold values of environment variables, which may be secrets: only names are logged."""


def _text_of(path: Path) -> str:
    """Return a file's text; empty where it can't be read: who adopts the settings says so, if they still name it."""
    try:
        return read_file(path)
    except ConfigError:
        return ""


def _nothing(_: PlatformSettings) -> Files:
    return ()


class LiveSettings:
    """The settings as they are now. A file that is broken while it is edited changes nothing, and is logged once."""

    def __init__(
        self, path: Path | None = None, flags: Sequence[str] = (), adopt: Callable[[PlatformSettings], Files] = _nothing
    ) -> None:
        """Read them, and name in the log the keys that have no effect. Raises ``ConfigError``.

        ``adopt`` is called with settings before they are taken over, now and after each change. It may refuse them by a
        ``ConfigError``, and returns the files that it has read as well: these are followed, too.
        """
        self._path, self._flags, self._adopt = path, tuple(flags), adopt
        text = read_file(path) if path else ""
        self._current = settings_from(text, str(path), self._flags)
        self._beside = tuple(adopt(self._current))
        self._known = (text, *map(_text_of, self._beside))
        self._trouble = ""
        for sentence in without_effect(text, str(path), self._flags):
            log.warning("%s", sentence)

    @property
    def current(self) -> PlatformSettings:
        """The settings; hold them no longer than for one step."""
        return self._current

    def poll(self) -> list[str]:
        """Look at the file, take over what has changed, and return that, a line a key."""
        if self._path is None:
            return []
        try:
            texts = (read_file(self._path), *map(_text_of, self._beside))
            if texts == self._known:
                self._trouble = ""
                return []
            fresh = settings_from(texts[0], str(self._path), self._flags)
            beside = tuple(self._adopt(fresh))
        except ConfigError as error:
            self._complain(str(error))
            return []
        changes = [*differences(self._current, fresh), *self._changed_beside(texts, beside)]
        self._current, self._trouble = fresh, ""
        # Files that are new in the settings were read by ``adopt`` alone: they are compared, and adopted, once more.
        self._known = texts if beside == self._beside else (texts[0], *("" for _ in beside))
        self._beside = beside
        for change in changes:
            log.info("%s has changed: %s", self._path, change)
        return changes

    def _changed_beside(self, texts: tuple[str, ...], still: tuple[Path, ...]) -> Iterator[str]:
        for path, before, after in zip(self._beside, self._known[1:], texts[1:], strict=True):
            if path in still and before and before != after:
                yield f"the file {path}"

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
