"""Read the settings: flags win over the environment, that over the file, that over the defaults."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final, get_args

import yaml
from pydantic import ValidationError
from pydantic_settings import CliSettingsSource, EnvSettingsSource, SettingsError

from backoff_ctrl.k8s.charges.bounded_yaml import BoundedLoader

from .platform import PREFIX, PlatformSettings, Sources
from .settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

Values = dict[str, Any]


class ConfigError(ValueError):
    """The settings can't be used; the message names where each wrong value stands, and its key."""


def load_settings(path: Path | None = None, flags: Iterable[str] = ()) -> PlatformSettings:
    """Return the settings. ``flags`` are ``plugins.k8s.default-cpus=2``. Raises ``ConfigError``."""
    return settings_from(read_file(path) if path else "", str(path), tuple(flags))


def read_file(path: Path) -> str:
    """Return a file's text. Raises ``ConfigError``."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}") from None


def settings_from(text: str, name: str, flags: Iterable[str]) -> PlatformSettings:
    """Return the settings of a file's text, changed by the environment and by flags. Raises ``ConfigError``."""
    layers = _layers(text, name, flags)
    try:
        return _with_own_environment(PlatformSettings.model_validate(_merged(layers)))
    except ValidationError as error:
        raise ConfigError("; ".join(_sentence(each, layers) for each in error.errors())) from None


def without_effect(text: str, name: str, flags: Iterable[str]) -> list[str]:
    """Return a sentence for each key that is set, and that Flyte heeds, but this project does not."""
    layers = _layers(text, name, flags)
    merged = _merged(layers)
    k8s, tasks = (merged.get("plugins") or {}).get("k8s") or {}, merged.get("tasks") or {}
    idle: dict[tuple[str, ...], str] = {("plugins", "k8s", key): why for key, why in _IDLE.items() if key in k8s}
    idle |= {("tasks", key): "nothing here reads it" for key in tasks if key not in _TASKS}
    if (tasks.get("backoff") or {}).get("base-second") in (0, "0"):
        idle["tasks", "backoff", "base-second"] = "with 0 creates wait in line all the same"
    where = {path: next(name for name, values in layers.items() if _has(values, path)) for path in idle}
    return [f"{where[path]}: {'.'.join(path)} has no effect here: {why}" for path, why in idle.items()]


_IDLE: Final = {
    "co-pilot": "tasks move no data",
    "enable-distributed-error-aggregation": "tasks write no error files",
}
_TASKS: Final = ("task-plugins", "backoff")


def _layers(text: str, name: str, flags: Iterable[str]) -> dict[str, Values]:
    """Return what each source says, the strongest first."""
    return {"flag": _of_flags(flags), "environment": _of_environment(), name: _of_text(text, name)}


def _merged(layers: Mapping[str, Values]) -> Values:
    merged: Values = {}
    for values in reversed(list(layers.values())):
        merged = _over(merged, values)
    return merged


def _of_text(text: str, name: str) -> Values:
    try:
        values = yaml.load(text, BoundedLoader)  # noqa: S506  # a safe loader, bounded
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
    arguments = [f"--{flag}" for flag in flags]
    if not arguments:
        return {}
    try:
        source: CliSettingsSource[Any] = CliSettingsSource(Sources, cli_parse_args=arguments, cli_exit_on_error=False)
        return _with_keys(source(), PlatformSettings)
    except SettingsError as error:
        raise ConfigError(f"{error}: write KEY=VALUE, such as plugins.k8s.default-cpus=2") from None


def _with_keys(values: Mapping[str, Any], model: type[Settings]) -> Values:
    """Return values with their keys as files write them: variables have ``_`` where keys have ``-``."""
    fields = {alias: field for field in model.model_fields.values() if (alias := field.alias) is not None}
    written: Values = {}
    for key, value in values.items():
        alias = key if key in fields else str(key).replace("_", "-").lower()
        field = fields.get(alias)
        section = field and _section(field.annotation)
        if section and (value is None or isinstance(value, dict)):  # a section may be left empty
            value = _with_keys(value or {}, section)  # noqa: PLW2901
        written[alias if field else key] = value
    return written


def _section(annotation: Any) -> type[Settings] | None:
    """Return the section that a field holds, if it holds one."""
    return next((each for each in (annotation, *get_args(annotation)) if _is_section(each)), None)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def _over(below: Values, above: Values) -> Values:
    """Return the values with those of a stronger source over them, object by object."""
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = _over(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _with_own_environment(settings: PlatformSettings) -> PlatformSettings:
    """Put in the values that pods take from our own environment: plugins read none themselves."""
    config = settings.k8s
    if not config.default_env_vars_from_env:
        return settings
    found = {name: os.environ.get(variable) for name, variable in config.default_env_vars_from_env.items()}
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
    """Say where a wrong value stands, by its key, and what is wrong with it."""
    path = tuple(error["loc"])
    known = path[:-1] if error["type"] == "missing" else path
    where = next((name for name, values in layers.items() if _has(values, known)), "settings")
    key = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).lstrip(".")
    told = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        told = "there is no such key: correct or remove it"
    elif error["type"] in ("model_type", "dict_type"):
        told = f"must be an object with keys, not {type(error['input']).__name__}"
    return f"{where}: {key}: {told}"


def _has(values: Any, path: tuple[Any, ...]) -> bool:
    """Whether a source has something at this path, or stops being objects on the way there: lists are not merged."""
    for step in path:
        if not isinstance(values, dict):
            return True
        if step not in values:
            return False
        values = values[step]
    return True
