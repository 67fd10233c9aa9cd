"""Where settings come from: flags take precedence over the environment, then the file, then the defaults.

``LiveSettings`` follow their file while the program runs; each change is logged, key by key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, CliSettingsSource, EnvSettingsSource, SettingsConfigDict, SettingsError

from backoff_ctrl.engine.errors import BackoffError
from backoff_ctrl.k8s.gate.settings import ENVIRONMENT, PREFIX, InForce
from backoff_ctrl.k8s.kube.answers.spelling import hint, misspelt
from backoff_ctrl.k8s.kube.charges.bounded_yaml import SettingsLoader
from backoff_ctrl.k8s.kube.operators.sections import Section
from backoff_ctrl.k8s.kube.operators.wrong_values import told, unknown_key

from .config import PlatformSettings, Plugins, Tasks

log = logging.getLogger(__name__)

Values = dict[str, Any]
_IDLE: Final = {
    "co-pilot": "tasks move no data",
    "enable-distributed-error-aggregation": "tasks write no error files",
}
_SECTIONS: Final = tuple(str(field.alias) for field in PlatformSettings.model_fields.values())
_TASKS: Final = tuple(str(field.alias) for field in Tasks.model_fields.values())
KNOWN: Final = frozenset(Plugins.model_fields)
"""The sections below ``plugins`` that are checked here; each other one belongs to the plugin of its name."""
EVERY_S: Final = 10.0
"""Seconds between two checks of the file. A ConfigMap's file follows its object within a minute anyway."""
_CONFIDENTIAL: Final = "env-vars"
"""Keys with this in them hold values of environment variables, which may be secrets: only names are logged."""


class Sources(BaseSettings):
    """The same sections, in the form in which pydantic-settings reads them from the environment and flags."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="ignore")

    plugins: Plugins = Plugins()
    tasks: Tasks = Tasks()


class ConfigError(BackoffError, ValueError):
    """The settings can't be used; the message names the place and the key of each wrong value."""


def read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}") from None


def settings_from(text: str, name: str, flags: Iterable[str]) -> PlatformSettings:
    """Return the settings of a file's text, changed by the environment and by flags, ``plugins.k8s.default-cpus=2``.

    Raises ``ConfigError``.
    """
    layers = _layers(text, name, flags)
    _refuse_misspelt(layers)
    try:
        return _with_own_environment(PlatformSettings.model_validate(_merged(layers)))
    except ValidationError as error:
        raise ConfigError("; ".join(_sentence(each, layers) for each in error.errors())) from None


def _refuse_misspelt(layers: Mapping[str, Values]) -> None:
    """Raise ``ConfigError`` for a misspelt section: other sections may be for other programs."""
    for where, values in layers.items():
        tasks = values.get("tasks")
        for path, found, known in (("", values, _SECTIONS), ("tasks.", tasks, _TASKS)):
            for key in found if isinstance(found, dict) else ():
                if key not in known and (meant := misspelt(str(key), known)):
                    raise ConfigError(f"{where}: {path}{key}: unknown key: did you mean {meant}?")


def without_effect(text: str, name: str, flags: Iterable[str]) -> list[str]:
    """Return a sentence for each key in the file that has an effect in Flyte but not here."""
    layers = _layers(text, name, flags)
    merged = _merged(layers)
    k8s, tasks = (merged.get("plugins") or {}).get("k8s") or {}, merged.get("tasks") or {}
    idle: dict[tuple[str, ...], str] = {("plugins", "k8s", key): why for key, why in _IDLE.items() if key in k8s}
    idle |= {("tasks", key): "this program does not read it" for key in tasks if key not in _TASKS}
    if (tasks.get("backoff") or {}).get("base-second") in (0, "0"):
        idle["tasks", "backoff", "base-second"] = "with 0 creates wait in line all the same"
    others = sorted(str(key) for key in layers[name] if key not in _SECTIONS)
    where = {path: next(name for name, values in layers.items() if _has(values, path)) for path in idle}
    said = [f"{where[path]}: {'.'.join(path)} has no effect here: {why}" for path, why in idle.items()]
    if others:
        said.append(f"{name}: this program reads {' and '.join(_SECTIONS)} alone, not {', '.join(others)}")
    return said


def in_force(path: Path | None, flags: Iterable[str]) -> Iterator[InForce]:
    """Yield the keys that the file, the environment or a flag sets, as they apply. Raises ``ConfigError``."""
    text = read_file(path) if path else ""
    yield from _set_in(settings_from(text, str(path), flags), _layers(text, str(path), flags))


def _set_in(section: Section, layers: Mapping[str, Values], path: tuple[str, ...] = ()) -> Iterator[InForce]:
    for name, field in type(section).model_fields.items():
        value, here = getattr(section, name), (*path, str(field.alias))
        source = next((source for source, values in layers.items() if _has(values, here)), None)
        if isinstance(value, Section):
            yield from _set_in(value, layers, here)
        elif source is not None:
            key = ".".join(here)
            yield InForce(key, _shown(key, value), source)


def _layers(text: str, name: str, flags: Iterable[str]) -> dict[str, Values]:
    return {"flag": _of_flags(flags), "environment": _of_environment(), name: _of_text(text, name)}


def _merged(layers: Mapping[str, Values]) -> Values:
    merged: Values = {}
    for values in reversed(list(layers.values())):
        merged = _over(merged, values)
    return merged


def _of_text(text: str, name: str) -> Values:
    try:
        values = yaml.load(text, SettingsLoader)  # noqa: S506  # a safe loader, bounded
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{name} must be an object with the sections plugins and tasks, not {type(values).__name__}")
    return _with_keys(values, PlatformSettings)


def _of_environment() -> Values:
    try:
        return _with_keys(EnvSettingsSource(Sources)(), PlatformSettings)
    except SettingsError as error:
        cause = f": {error.__cause__}" if error.__cause__ else ""
        raise ConfigError(f"environment, variables that begin with {PREFIX}: {error}{cause}") from None


def _of_flags(flags: Iterable[str]) -> Values:
    further: Values = {}
    known = [f"--{flag}" for flag in flags if not _put_further(further, flag)]
    return _over(_of_known(known), further)


def _put_further(values: Values, flag: str) -> bool:
    """Put the value of a key below ``plugins.ID`` of any plugin to the others; False: it is a key that is known here.

    The plugin checks it. The value is YAML.
    """
    path, is_set, written = flag.partition("=")
    keys = path.split(".")
    if not is_set or len(keys) < 3 or keys[0] != "plugins" or keys[1] in KNOWN:
        return False
    try:
        value = yaml.load(written, SettingsLoader)  # noqa: S506  # a safe loader, bounded
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"--set {path}: the value is not YAML: {' '.join(str(error).split())}") from None
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {path}: {key} was set to a value before, and can't have keys")
    values[keys[-1]] = value
    return True


def _of_known(arguments: list[str]) -> Values:
    if not arguments:
        return {}
    for argument in arguments:
        _refuse_unknown(argument.removeprefix("--").partition("=")[0])
    try:
        source: CliSettingsSource[Any] = CliSettingsSource(Sources, cli_parse_args=arguments, cli_exit_on_error=False)
        return _with_keys(source(), PlatformSettings)
    except SettingsError as error:
        raise ConfigError(f"{error}: write KEY=VALUE, such as plugins.k8s.default-cpus=2") from None


def _refuse_unknown(path: str) -> None:
    """Raise ``ConfigError`` for a key of ``--set`` that no section has."""
    model: type[Section] = PlatformSettings
    for part in path.split("."):
        fields = {str(field.alias): field for field in model.model_fields.values()}
        field = fields.get(part) or fields.get(part.replace("_", "-").lower())
        if field is None:
            raise ConfigError(f"--set {path}: {part}: unknown key: {hint(part, fields)}")
        below = _section(field.annotation)
        if below is None:
            return
        model = below


def _with_keys(values: Mapping[str, Any], model: type[Section]) -> Values:
    """Return values with their keys as in files: variables have ``_`` where keys have ``-``."""
    fields = {alias: field for field in model.model_fields.values() if (alias := field.alias) is not None}
    written: Values = {}
    for key, value in values.items():
        alias = key if key in fields else str(key).replace("_", "-").lower()
        field = fields.get(alias)
        section = field and _section(field.annotation)
        if section and (value is None or isinstance(value, dict)):  # a section may be empty
            value = _with_keys(value or {}, section)  # noqa: PLW2901
        written[alias if field else key] = value
    return written


def _section(annotation: Any) -> type[Section] | None:
    return next((each for each in (annotation, *get_args(annotation)) if _is_section(each)), None)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _over(below: Values, above: Values) -> Values:
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = _over(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _with_own_environment(settings: PlatformSettings) -> PlatformSettings:
    """Fill in the values that pods take from our own environment, which plugins do not read."""
    config = settings.k8s
    if not config.default_env_vars_from_env:
        return settings
    found = {name: ENVIRONMENT.get(variable) for name, variable in config.default_env_vars_from_env.items()}
    for name, value in found.items():
        if value is None:
            variable = config.default_env_vars_from_env[name]
            log.warning(
                "plugins.k8s.default-env-vars-from-env.%s: %s is not set here: pods get no %s", name, variable, name
            )
    variables = {**config.default_env_vars, **{name: value for name, value in found.items() if value is not None}}
    config = config.model_copy(update={"default_env_vars": variables})
    return settings.model_copy(update={"plugins": settings.plugins.model_copy(update={"k8s": config})})


def _sentence(error: Any, layers: Mapping[str, Values]) -> str:
    """Return where a wrong value is, its key, and what is wrong with it."""
    path = tuple(error["loc"])
    known = path[:-1] if error["type"] == "missing" else path
    where = next((name for name, values in layers.items() if _has(values, known)), "settings")
    key = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).lstrip(".")
    said = told(error)
    if error["type"] == "extra_forbidden":
        said = unknown_key(PlatformSettings, path)
    return f"{where}: {key}: {said}"


def _has(values: Any, path: tuple[Any, ...]) -> bool:
    """Whether a source has a value at this path, or a list on the way there: lists are not merged."""
    for step in path:
        if not isinstance(values, dict):
            return True
        if step not in values:
            return False
        values = values[step]
    return True


Files = Iterable[Path]


def _text_of(path: Path) -> str:
    """Return a file's text; empty if it can't be read: ``adopt`` reports that, if the settings still name it."""
    try:
        return read_file(path)
    except ConfigError:
        return ""


def _nothing(_: PlatformSettings) -> Files:
    return ()


class LiveSettings:
    """The present settings. A file that is broken while it is edited has no effect, and is logged once."""

    def __init__(
        self, path: Path | None = None, flags: Sequence[str] = (), adopt: Callable[[PlatformSettings], Files] = _nothing
    ) -> None:
        """Read them, and log the keys that have no effect. Raises ``ConfigError``.

        ``adopt`` is called with settings before they apply, now and after each change. It may refuse them by a
        ``ConfigError``. It returns the further files that it has read, which are followed, too.
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
        """The settings; use them for one step at most, then get them again."""
        return self._current

    def poll(self) -> list[str]:
        """Check the file, apply changes, and return them, a line for each key."""
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
        """Check the file periodically, until cancelled; ``changed`` is called with each change."""
        while True:
            await asyncio.sleep(every)
            if changes := await asyncio.to_thread(self.poll):
                changed(changes)

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.error("%s; the settings stay as they were", trouble)
        self._trouble = trouble


def differences(old: Section, new: Section, path: str = "") -> Iterator[str]:
    for name, field in type(old).model_fields.items():
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        key = f"{path}{field.alias}"
        if isinstance(before, Section) and isinstance(after, Section):
            yield from differences(before, after, f"{key}.")
        else:
            yield f"{key}: {_shown(key, before)} -> {_shown(key, after)}"


def _shown(key: str, value: Any) -> str:
    if _CONFIDENTIAL in key and isinstance(value, dict):
        return f"{{{', '.join(value)}}} (values are not shown)"
    return repr(value) if isinstance(value, (str, dict)) else str(value)
