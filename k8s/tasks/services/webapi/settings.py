"""The settings of web API plugins, below ``plugins.ID``: Flyte's keys, defaults and ranges, and a few of our own.

A plugin brings its own defaults (``PluginConfig``); what the platform sets goes over them. A section may hold further
keys, which the plugin reads by itself. Keys are spelt as in Flyte, ``caching.resyncInterval``; case, ``-`` and ``_`` do
not matter, since environment variables have only capitals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from backoff_ctrl.k8s.kube.answers.spelling import hint
from backoff_ctrl.k8s.kube.operators.sections import Duration
from backoff_ctrl.k8s.kube.operators.wrong_values import OBJECTS, keys_at, shown, told
from backoff_ctrl.k8s.tasks.plugins.web_protocol import PluginConfig, RateLimit

POOL_MAX: Final = 1_000_000
RATE_MAX: Final = 1_000_000
"""The most that a plugin's own rate limits may be."""


class SettingsError(ValueError):
    """A section can't be used; the message names the key, and says what is possible."""


class Section(BaseModel):
    """A section: unknown keys are errors, and values are immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class Caching(Section):
    """How jobs are followed."""

    size: int = Field(default=100_000, ge=10, le=500_000)
    """The most jobs that are followed at a time; a task beyond them waits before its job is created. A namespace has at
    most as many of them as it leaves free, so a half if it is alone: its long jobs keep no other namespace waiting."""
    resync_interval: Annotated[Duration, Field(ge=timedelta(seconds=5), le=timedelta(hours=1))] = timedelta(seconds=30)
    """How long the state of a job is good, before it is read again."""
    workers: int = Field(default=10, ge=1, le=10_000)
    """How many jobs are read at a time. With 1, the servers that tasks name share one more read."""
    max_system_failures: int = Field(default=5, ge=0, le=1_000_000)
    """How many reads of a job may fail in a row; one more ends the attempt as `RefreshFailed`."""


class Limiter(Section):
    """A rate limit."""

    qps: float | None = Field(default=None, ge=1, le=100_000)
    """Requests a second."""
    burst: int | None = Field(default=None, ge=5, le=10_000)
    """How many of them may follow each other at once."""

    def over(self, own: RateLimit) -> RateLimit:
        """Return this limit; the plugin's own fills in what is not set."""
        return RateLimit(own.qps if self.qps is None else self.qps, own.burst if self.burst is None else self.burst)


class Constraints(Section):
    """How much of each pool one project, and one namespace, may have."""

    project: int | None = Field(default=None, ge=0, le=POOL_MAX)
    """The most tokens of one project; not set: the plugin's own limit."""
    namespace: int | None = Field(default=None, ge=0, le=POOL_MAX)
    """The most tokens of one namespace; not set: the plugin's own limit."""


class WebApiSection(Section):
    """The keys of a section that every web API plugin has."""

    caching: Caching = Caching()
    read_rate_limiter: Limiter = Limiter()
    """Limits reads of jobs; 30 a second and 300 at once, unless the plugin says otherwise."""
    write_rate_limiter: Limiter = Limiter()
    """Limits creates and deletes of jobs; 20 a second and 200 at once, unless the plugin says otherwise."""
    resource_quotas: dict[str, Annotated[int, Field(ge=0, le=POOL_MAX)]] | None = None
    """The tokens of each pool, by its name: as many jobs may exist at a time. 0 pauses a pool."""
    resource_constraints: Constraints = Constraints()
    resource_meta: Any = None
    """Read so that Flyte's files are accepted, and unused."""
    creates_in_flight: int = Field(default=10, ge=1, le=10_000)
    """How many creates may be sent and not answered at a time: a kill leaves so many in doubt, at most. With 1, the
    servers that tasks name share one more."""
    call_timeout: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(hours=1))] = timedelta(seconds=60)
    """How long a call of the service may take."""
    allowed_hosts: list[str] = Field(default_factory=list)
    """The hosts that the plugin may reach, such as `*.example.com` or `jobs.example.com:8443`; empty: any. A link-local
    address, such as 169.254.169.254, has to be listed as it is."""


@dataclass(frozen=True, slots=True)
class WebApiSettings:
    """What is in force for one plugin."""

    caching: Caching
    read: RateLimit
    write: RateLimit
    pools: Mapping[str, int]
    project: int | None
    namespace: int | None
    creates_in_flight: int
    call_timeout: float
    allowed_hosts: tuple[str, ...]


def read_section(plugin: str, section: Mapping[str, Any], own_keys: frozenset[str] = frozenset()) -> WebApiSection:
    """Read a section as it was written. ``own_keys`` are those that the plugin reads by itself.

    Raises ``SettingsError``.
    """
    own = {plain(key) for key in own_keys}
    common = {key: value for key, value in section.items() if plain(key) not in own}
    try:
        return WebApiSection.model_validate(spelt(common, WebApiSection))
    except ValidationError as error:
        said = (sentence(plugin, each, WebApiSection, own_keys) for each in error.errors())
        raise SettingsError("; ".join(said)) from None


def settings_of(section: WebApiSection, own: PluginConfig) -> WebApiSettings:
    """Return a plugin's settings: the section's, over the plugin's own defaults."""
    limits, pools = section.resource_constraints, section.resource_quotas
    return WebApiSettings(
        section.caching,
        section.read_rate_limiter.over(own.read_rate_limiter),
        section.write_rate_limiter.over(own.write_rate_limiter),
        dict(own.resource_quotas or {}) if pools is None else pools,
        own.project if limits.project is None else limits.project,
        own.namespace if limits.namespace is None else limits.namespace,
        section.creates_in_flight,
        section.call_timeout.total_seconds(),
        tuple(section.allowed_hosts),
    )


def check_config(own: PluginConfig) -> None:
    """Raise ``TypeError`` or ``ValueError`` for defaults of a plugin that are not possible."""
    for name in ("read_rate_limiter", "write_rate_limiter"):
        limit = getattr(own, name)
        if not isinstance(limit, RateLimit):
            raise TypeError(f"get_config: {name} is {limit!r} instead of a RateLimit")
        if not (0 < limit.qps <= RATE_MAX and 1 <= limit.burst <= RATE_MAX):
            raise ValueError(f"get_config: {name} is {limit!r}: both are numbers from 1 on")
    counts = {f"resource_quotas[{pool!r}]": most for pool, most in (own.resource_quotas or {}).items()}
    for name, most in (counts | {"project": own.project, "namespace": own.namespace}).items():
        if most is not None and (type(most) is not int or not 0 <= most <= POOL_MAX):
            raise ValueError(f"get_config: {name} is {most!r} instead of a number from 0 to {POOL_MAX}")


def plain(key: object) -> str:
    """Return a key without what spellings differ in."""
    return str(key).replace("-", "").replace("_", "").lower()


def spelt(section: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Return a section with its keys as the model spells them; of two spellings of one key the later counts."""
    known = {plain(field.alias): (field.alias, field.annotation) for field in model.model_fields.values()}
    found: dict[str, Any] = {}
    for key, value in section.items():
        alias, inner = known.get(plain(key), (None, None))
        if isinstance(inner, type) and issubclass(inner, BaseModel) and isinstance(value, Mapping):
            value = spelt(value, inner)  # noqa: PLW2901
        found[alias or str(key)] = value
    return found


def sentence(plugin: str, error: Any, model: type[BaseModel], further: Iterable[str] = ()) -> str:
    """Return an error of pydantic with its key; ``further`` are keys of the section beside those of the model."""
    key = ".".join(("plugins", plugin, *(str(each) for each in error["loc"])))
    said = told(error)
    if error["type"] == "extra_forbidden":
        place = error["loc"]
        known = [*keys_at(model, place[:-1]), *(further if len(place) == 1 else ())]
        said = f"unknown key: {hint(str(place[-1]), known)}"
    elif error["type"] not in OBJECTS | {"missing"}:
        said = f"{shown(error['input'])} is not possible: {said[:1].lower()}{said[1:]}"
    return f"{key}: {said}"
