"""What one create is: where it goes, its body, and the caller's options, which are checked before anything is sent.

Also the modes of a namespace: enforce, shadow (decide and count, but send everything) or off.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.requests import Identity
from backoff_ctrl.k8s.kube.answers.fields import mappings, metadata_of, text

from .naming import Named, Signature, name_create
from .wait import Wait, one_line

Mode = Literal["enforce", "shadow", "off"]
Modes: TypeAlias = Mode | Mapping[str, Mode] | Callable[[str], Mode]
"""One mode for all, modes by namespace (``"*"`` for the others), or a function of the namespace."""
MODES: Final[tuple[Mode, ...]] = ("enforce", "shadow", "off")
PRIORITY_MAX: Final = 2**31 - 1  # as Kubernetes' own priorities
_USUAL: Final = (None, 0, None, None)  # options that need no check


class OptionError(ValueError, TypeError):
    """An option of a create, of a client or of a gate has a wrong value. Raised at once, before anything is sent."""


class KeyReusedError(ValueError):
    """An idempotency key was used before for another body. No create was sent."""

    def __init__(self, key: str | None, label: str) -> None:
        """``label`` says which create met the key's object."""
        super().__init__(
            f"the key {key!r} was used before for {label} with another body (labels and annotations count): "
            "use a new key for a new object, or send the same body again"
        )
        self._made_of = key, label

    def __reduce__(self) -> tuple[type[KeyReusedError], tuple[str | None, str]]:
        return KeyReusedError, self._made_of


@dataclass(slots=True)
class Creation:
    """One POST of ``body`` to a namespaced collection.

    ``server`` and ``credential`` select the overload window (any strings that distinguish them); ``resource``
    is ``pods`` or ``jobs.batch``. The options are those of ``Options``. Raises ``OptionError`` for a wrong one.

    Six are for a proxy, which sends for other programs. ``seat``: the place in line that it takes, and keeps for twice
    ``retry_after`` seconds or the policy's ``seat_ttl`` if it leaves uncreated. ``demand``: what it is charged, where
    the body does not show it. ``named``: its name and id, drawn before; None: they are drawn. ``relayed``: its
    credentials can't be refreshed, it waits until its ``timeout`` while no connection can be made, and no line is
    logged when its caller has to come again. ``noticed_at``: when the log reported the wait of an earlier request of
    its caller.
    """

    server: str
    credential: str
    namespace: str
    resource: str
    body: dict[str, Any]
    priority: int = 0
    timeout: float | None = None
    key: str | None = None
    on_wait: Callable[[Wait], object] | None = field(default=None, repr=False)
    gang: Any = None  # the admitted gang that it may be a member of
    seat: Identity | None = None
    retry_after: float = 0.0
    demand: Demand | None = field(default=None, repr=False)
    named: Named | None = field(default=None, repr=False)
    relayed: bool = False
    noticed_at: float | None = None
    asked: dict[str, Any] | None = None  # the body as its caller gave it, where a gang's label was added to it

    def __post_init__(self) -> None:
        if (self.timeout, self.priority, self.key, self.on_wait) != _USUAL:
            check_options(self.timeout, self.priority, self.key, self.on_wait)

    def draw(self, rng: random.Random, signature: Signature, digits: int | None = None) -> Named:
        """Give it a name and an id, unless it has them; ``digits`` as in ``name_create``."""
        return self.named or name_create(
            self.body,
            namespace=self.namespace,
            resource=self.resource,
            key=self.key,
            rng=rng,
            signature=signature,
            asked=self.asked,
            digits=digits,
        )

    @property
    def subject(self) -> tuple[str, ...]:
        """The caller, the kind and the namespace: creates that agree in these are denied or served together."""
        return self.server, self.credential, self.namespace, self.resource

    @property
    def label(self) -> str:
        """Its label for people: resource, namespace and name, or ``pods team/web-*`` before the name is drawn."""
        return one_line(f"{self.resource} {self.namespace}/{self.name}")

    @property
    def name(self) -> str:
        """The name in the manifest; its ``generateName`` followed by ``*`` where the name is missing."""
        metadata = metadata_of(self.body)
        return metadata.get("name") or f"{metadata.get('generateName') or ''}*"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a create.

    ``timeout`` limits the waiting, in seconds; None or infinity: no limit. ``priority``: higher goes first. ``key`` is
    an idempotency key: the same key gives the same object, even after a restart. ``on_wait`` is called with a ``Wait``
    each time the create starts to wait.
    """

    timeout: float | None = None
    priority: int = 0
    key: str | None = None
    on_wait: Callable[[Wait], object] | None = None
    gang: Any = None  # set by the gang's block


@dataclass(frozen=True, slots=True)
class Owner:
    """The object that owns the waiting one, as an ownerReference names it; ``uid`` is empty if it is not given."""

    api_version: str
    kind: str
    name: str
    uid: str = ""


def owner_of(body: Mapping[str, Any]) -> Owner | None:
    """Return the controller that a manifest names, else its first owner. Malformed ownerReferences are skipped."""
    first: Owner | None = None
    for each in mappings(metadata_of(body).get("ownerReferences")):
        owner = owner_named(each)
        if owner is not None and each.get("controller") is True:
            return owner
        first = first or owner
    return first


def owner_named(reference: Mapping[str, Any]) -> Owner | None:
    """Return what an ownerReference names, or None if it is malformed."""
    version, kind, name = (text(reference.get(key)) for key in ("apiVersion", "kind", "name"))
    return Owner(version, kind, name, text(reference.get("uid"))) if version and kind and name else None


def check_options(timeout: object, priority: object, key: object, on_wait: object) -> None:
    """Raise ``OptionError`` for the first option that is wrong. None: it was not given."""
    if timeout is not None and not _is_duration(timeout):
        raise OptionError(f"timeout must be a number of seconds, 0 or more, not {timeout!r}")
    if priority is not None and not _is_priority(priority):
        raise OptionError(f"priority must be a whole number between -2^31 and 2^31, not {priority!r}")
    if key is not None and not (isinstance(key, str) and key.strip() and _is_text(key)):
        raise OptionError(f"key must be a text that is not empty, different for each create, not {key!r}")
    if on_wait is not None and (not callable(on_wait) or inspect.iscoroutinefunction(on_wait)):
        raise OptionError(f"on_wait must be a plain function of one argument, not {on_wait!r}")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a character
        return False
    return True


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0  # nan is not


def _is_priority(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -PRIORITY_MAX <= value <= PRIORITY_MAX


def mode_of(mode: Modes) -> Callable[[str], Mode]:
    """Return a function of the namespace, whichever way the mode was given (``"*"``: the other namespaces).

    Raises ``OptionError`` for an unknown mode; so does the returned function if the caller's own returns one.
    """
    if isinstance(mode, str):
        _check_mode(mode)
        return lambda _: mode
    if isinstance(mode, Mapping):
        modes = dict(mode)
        for each in modes.values():
            _check_mode(each)
        others: Mode = modes.get("*", "enforce")
        return lambda namespace: modes.get(namespace, others)
    if not callable(mode):
        _check_mode(mode)
    return lambda namespace: _checked(mode(namespace))


def _checked(mode: Mode) -> Mode:
    _check_mode(mode)
    return mode


def _check_mode(mode: Any) -> None:
    if mode not in MODES:
        raise OptionError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
