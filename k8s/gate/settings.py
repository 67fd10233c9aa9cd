"""The settings of a process: each variable of the environment that is read, once, with its type, default and meaning.

Code that needs one calls ``settings()``, which reads the environment each time: a program may set ``os.environ``
before it makes a client. ``backoff-ctrl doctor`` prints ``in_force()``; the tables in docs/settings.md are made of
``VARIABLES``. What a platform sets for all of its tasks has a file and flags as well: ``plugins/config``.

A typo must not stop a platform: it is reported once, as an error in the log, and by ``backoff-ctrl doctor``.
The wrong part of ``BACKOFF_CTRL_MODE`` then counts as ``shadow``, under which creates are sent at once, as without the
gate; another value that is wrong counts as not set. A variable of an unknown name is reported as a warning: when the
library is imported, and by each command on stderr.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Final, get_origin, get_type_hints

from backoff_ctrl.engine.errors import PolicyError
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.creates.creation import MODES, Mode, OptionError, check_options
from backoff_ctrl.k8s.gate.creates.naming import Signature
from backoff_ctrl.k8s.kube.answers.spelling import hint, misspelt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


log = logging.getLogger(__name__)

ENVIRONMENT: Final[Mapping[str, str]] = os.environ  # noqa: TID251 - here alone
"""The environment, for code that looks up a variable named in a user's file."""
STATUS: Final = "BACKOFF_CTRL_STATUS"
STATUS_TOKEN: Final = "BACKOFF_CTRL_STATUS_TOKEN"  # noqa: S105 - its name
TOKEN_MIN: Final = 16
"""The least characters of a token: a local process could try many guesses a second."""
SERIES_MAX: Final = 50_000
"""Series exposed by default. Namespaces known first come first, so that a series, once exposed, stays."""
PREFIX: Final = "BACKOFF_CTRL_"
"""What our variables begin with."""
SECTIONS: Final = ("PLUGINS", "TASKS")
"""The sections of a platform's settings: ``BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_CPUS`` is a key of one."""
_BELOW: Final = "__"
"""Stands between the names of a section and of its keys."""
_LINKED: Final = "_SERVICE_HOST"
"""Ends the name of a variable that the kubelet sets for each Service of a pod's namespace."""
_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("", "0", "false", "no", "off")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|\*")

Read = Callable[[str, str, list[str]], Any]
"""Reads a variable: its name, its text, and where to add a sentence for what is not understood."""


@dataclass(frozen=True, slots=True)
class Variable:
    """What is declared of a setting, beside its type and default. ``unset`` says for people what applies by default."""

    name: str
    read: Read
    unset: str
    meaning: str
    secret: bool = False

    @property
    def ours(self) -> bool:
        return self.name.startswith(PREFIX)


# -- how each is read ---------


def _text(_: str, text: str, __: list[str]) -> str:
    return text


def _switch(instead: str, *, unset: bool = False) -> Read:
    def read(name: str, text: str, wrong: list[str]) -> bool:
        word = text.strip().lower() or ("1" if unset else "0")
        if word not in (*_YES, *_NO):
            wrong.append(f"{name}={word!r} is neither 1 nor 0: {instead}")
        return word in _YES

    return read


def _modes(name: str, text: str, wrong: list[str]) -> dict[str, Mode]:
    """Read ``shadow`` or ``shadow,team-a=enforce``: a mode for all, and modes of single namespaces."""
    found: dict[str, Mode] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        namespace, _, mode = (each.strip() for each in (part if "=" in part else f"*={part}").partition("="))
        known = next((each for each in MODES if each == mode.lower()), None)
        if not _NAMESPACE.fullmatch(namespace):
            namespace, known = "*", None
        if known is None or namespace in found:
            wrong.append(
                f"{name}={text!r} is not understood at {part!r}: write a mode ({', '.join(MODES)}), and with commas "
                "other modes of single namespaces, each once, such as shadow,team-a=enforce. Until this is corrected, "
                f"{'all namespaces that it does not name are' if namespace == '*' else f'namespace {namespace} is'} "
                "in shadow mode: creates are sent at once, as without the gate"
            )
            known = "shadow"
        found[namespace] = known
    return found


def _seconds(name: str, text: str, wrong: list[str]) -> float | None:
    if not text.strip():
        return None
    try:
        timeout = float(text)
        check_options(timeout, None, None, None)
    except (ValueError, OptionError):
        wrong.append(
            f"{name}={text!r} is not understood: write a number of seconds, 0 or more. "
            "Until this is corrected, creates wait without a limit"
        )
        return None
    return timeout


def _policy(name: str, text: str, wrong: list[str]) -> dict[str, Any]:
    try:
        found = policy_settings(part for part in text.split(",") if part.strip())
        Policy(**found)
    except PolicyError as error:
        sentence = said if (said := str(error)).endswith("?") else f"{said}."
        wrong.append(f"{name}={text!r} is not understood: {sentence} Until this is corrected, the defaults apply")
        return {}
    return found


def policy_settings(parts: Iterable[str]) -> dict[str, Any]:
    """Read settings of the engine's policy, such as ``base=2``. Raises ``PolicyError``; ``Policy`` has ranges."""
    known, found = {each.name for each in fields(Policy)}, {}
    for part in parts:
        key, equals, value = (each.strip() for each in part.partition("="))
        name = key.replace("-", "_")
        if not equals or not value:
            raise PolicyError(f"{part.strip()!r} has no value: write KEY=VALUE, such as base=2")
        if name not in known:
            raise PolicyError(f"unknown setting {key}: {hint(name, known)}")
        found[name] = _number(value)
    return found


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):  # a text that is no number stays one, and its check reports it
            return kind(text)
    return text


def _gate(name: str, text: str, wrong: list[str]) -> str:
    gate = text.strip()
    if not gate or _NAME.fullmatch(gate):
        return gate
    wrong.append(f"{name}: {gate!r} is not a valid gate name: use letters, digits, '-', '_' and '.'. It is ignored")
    return ""


def _gates(name: str, text: str, wrong: list[str]) -> frozenset[str]:
    return frozenset(filter(None, (_gate(name, each, wrong) for each in text.split(","))))


def _listed(_: str, text: str, __: list[str]) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _token(name: str, text: str, wrong: list[str]) -> str:
    token = text.strip()
    if 0 < len(token) < TOKEN_MIN:
        wrong.append(f"{name} is shorter than {TOKEN_MIN} characters: it is not used, and actions are disabled")
    return token


def _series(name: str, text: str, wrong: list[str]) -> int:
    if text.isascii() and text.isdecimal():
        return int(text)
    if text.strip():
        wrong.append(
            f"{name}={text!r} is not understood: write a whole number. Until this is corrected, it is {SERIES_MAX}"
        )
    return SERIES_MAX


# -- what there is ---------


@dataclass(frozen=True, slots=True)
class Settings:
    """What the variables say.

    ``wrong`` holds a sentence for each value that is not understood, ``unknown`` one for each name.
    """

    # fmt: off
    mode: Annotated[Mapping[str, Mode], Variable("BACKOFF_CTRL_MODE", _modes, "`enforce`",
        "`shadow`, or with modes for individual namespaces `shadow,team-a=enforce`; the mode without a name applies to "
        "all others")] = field(default_factory=dict)
    timeout: Annotated[float | None, Variable("BACKOFF_CTRL_TIMEOUT", _seconds, "no limit",
        "default time limit of creates, in seconds")] = None
    policy: Annotated[Mapping[str, Any], Variable("BACKOFF_CTRL_POLICY", _policy, "that of `Policy`",
        "how the gate waits, by the names of `Policy`: `base=2,cap=60`; commands have `--policy KEY=VALUE`, which "
        "wins")] = field(default_factory=dict)
    events: Annotated[bool, Variable("BACKOFF_CTRL_EVENTS", _switch("no Kubernetes events will be written"), "`0`",
        "`1` writes Kubernetes events about creates that wait (`WaitingForQuota`, `NeverFits`, `Admitted`)")] = False
    traces: Annotated[bool, Variable("BACKOFF_CTRL_TRACES", _switch("creates are not traced"), "`0`",
        "`1` makes OpenTelemetry spans of creates ([tracing](operations.md#traces))")] = False
    memory: Annotated[str, Variable("BACKOFF_CTRL_MEMORY", _text, "not kept",
        "a directory, which keeps what was learned across restarts")] = ""
    notify: Annotated[str, Variable("BACKOFF_CTRL_NOTIFY", _text, "no webhooks",
        "the file of receivers that get [webhooks](notifications.md) about creates that wait long or fail")] = ""
    status: Annotated[str, Variable(STATUS, _text, "not served",
        "where this process serves its [status API](status-api.md): `127.0.0.1:9095`")] = ""
    status_hosts: Annotated[tuple[str, ...], Variable("BACKOFF_CTRL_STATUS_HOSTS", _listed, "none",
        "further `Host` names, by commas, for a [proxy in the same pod](operations.md#gates-in-pods)")] = ()
    status_token: Annotated[str, Variable(STATUS_TOKEN, _token, "drawn for each process",
        "the token for [actions](status-api.md#acting)", secret=True)] = ""
    series_max: Annotated[int, Variable("BACKOFF_CTRL_SERIES_MAX", _series, f"`{SERIES_MAX}`",
        "the most series of [metrics](metrics.md)")] = SERIES_MAX
    gate: Annotated[str, Variable("BACKOFF_CTRL_GATE", _text, "host and process id",
        "the gate's name on pages and in metrics")] = ""
    signs_as: Annotated[str, Variable("BACKOFF_CTRL_GATE_NAME", _gate, "none",
        "the name with which ids of creates are signed ([gates in front of gates](options.md#environment-variables))")
    ] = ""
    trusted_gates: Annotated[frozenset[str], Variable("BACKOFF_CTRL_TRUSTED_GATES", _gates, "none",
        "the gates in front of this one, by commas, whose ids it keeps")] = frozenset()
    kubeconfig: Annotated[str, Variable("KUBECONFIG", _text, "`~/.kube/config`",
        "the kubeconfig; of several files the sidecar reads the first")] = ""
    service_host: Annotated[str, Variable("KUBERNETES_SERVICE_HOST", _text, "none",
        "the host of the API server, in a pod")] = ""
    service_port: Annotated[str, Variable("KUBERNETES_SERVICE_PORT", _text, "`443`", "its port")] = "443"
    pod_events: Annotated[bool, Variable(
        "BACKOFF_CTRL_POD_EVENTS", _switch("its pod gets no events", unset=True), "`1`",
        "`0`: a sidecar writes no event about [its own pod](sidecar.md#who-waits-in-a-pod) if a create waits for 30 s")
    ] = True
    pod_name: Annotated[str, Variable("POD_NAME", _text, "none",
        "the pod of this process, which gets these events")] = ""
    pod_namespace: Annotated[str, Variable("POD_NAMESPACE", _text, "none",
        "the namespace of the pod; the PodTemplates in the task manager's serve namespaces without their own")] = ""
    pod_uid: Annotated[str, Variable("POD_UID", _text, "none", "the uid of the pod")] = ""
    authorities: Annotated[str, Variable("SSL_CERT_FILE", _text, "those that grpcio ships",
        "the file of the authorities that connectors are trusted by")] = ""
    state_home: Annotated[str, Variable("XDG_STATE_HOME", _text, "`~/.local/state`",
        "the directory below which tasks are stored")] = ""
    runtime_dir: Annotated[str, Variable("XDG_RUNTIME_DIR", _text, "the temporary directory",
        "the directory below which drawn tokens are kept")] = ""
    listen_pid: Annotated[str, Variable("LISTEN_PID", _text, "none",
        "the process to which its parent, such as systemd, has passed sockets")] = ""
    listen_fds: Annotated[str, Variable("LISTEN_FDS", _text, "`0`", "the number of these sockets")] = "0"
    listen_names: Annotated[str, Variable("LISTEN_FDNAMES", _text, "`listen`", "their names, by colons")] = "listen"
    # fmt: on
    wrong: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def signature(self) -> Signature:
        return Signature(self.signs_as, self.trusted_gates)


VARIABLES: Final[Mapping[str, Variable]] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Settings, include_extras=True).items()
    if get_origin(hint) is Annotated
}
"""The variables, by the names of their settings."""


def read_settings(given: Mapping[str, str] = ENVIRONMENT) -> Settings:
    """Read the variables. Never raises."""
    wrong: list[str] = []
    found = {
        name: each.read(each.name, given[each.name], wrong) for name, each in VARIABLES.items() if each.name in given
    }
    return Settings(**found, wrong=tuple(wrong), unknown=tuple(unknown_variables(given)))


def settings() -> Settings:
    """Read the settings of this process, and log what is wrong with them: once for each value, and each name."""
    found = read_settings()
    _log_once(logging.ERROR, found.wrong)
    _log_once(logging.WARNING, found.unknown)
    return found


def note_unknown() -> None:
    """Log which variables have an unknown name: once for each."""
    _log_once(logging.WARNING, unknown_variables(ENVIRONMENT))


def _log_once(level: int, sentences: Iterable[str]) -> None:
    for sentence in sentences:
        if sentence not in _LOGGED:
            _LOGGED.add(sentence)
            log.log(level, "%s", sentence)


def unlogged_unknown(given: Mapping[str, str] = ENVIRONMENT) -> list[str]:
    """Return a sentence for each variable of an unknown name. The caller reports them: they are not logged."""
    found = [*unknown_variables(given)]
    _LOGGED.update(found)
    return found


_LOGGED: Final[set[str]] = set()


def unknown_variables(given: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable that looks like one of ours, but that no module reads."""
    ours = {each.name for each in VARIABLES.values() if each.ours}
    links = [name.removesuffix(_LINKED) for name in given if name.startswith(PREFIX[:-1]) and name.endswith(_LINKED)]
    linked = tuple(f"{name}_{part}" for name in links for part in ("SERVICE_", "PORT"))
    for name in given:
        if not name.upper().startswith(PREFIX[:5]) or name in ours or (linked and name.startswith(linked)):
            continue
        if said := _unknown(name, ours):
            yield f"{name} is set, but no such variable is read: {said}"


def _unknown(name: str, ours: Iterable[str]) -> str:
    """Return what to write instead of a name that is not among ours; empty: it is a key of a section, or not ours."""
    head, below, key = name.partition(_BELOW)
    sections = [f"{PREFIX}{each}" for each in SECTIONS]
    if head.upper() in sections:
        return ""
    if below and (section := misspelt(head, sections)):
        return f"did you mean {section}{below}{key}?"
    if name.upper().startswith(tuple(f"{section}_" for section in sections)):
        return f"write two underscores before each key, as in {sections[0]}__K8S__DEFAULT_CPUS"
    if near := misspelt(name, ours):
        return f"did you mean {near}?"
    return hint(name, ours) if name.upper().startswith(PREFIX) else ""


@dataclass(frozen=True, slots=True)
class InForce:
    """A setting as it applies now. ``source``: ``default``, ``environment``, ``flag``, or the path of a file."""

    name: str
    value: str
    source: str


def in_force(given: Mapping[str, str] = ENVIRONMENT) -> Iterator[InForce]:
    """Yield our variables, and those of others that are set. Secrets are not shown."""
    default = Settings()
    for name, each in VARIABLES.items():
        wrong: list[str] = []
        text, usual = given.get(each.name, ""), getattr(default, name)
        value = each.read(each.name, text, wrong)
        if text.strip() and (value != usual or not wrong):
            yield InForce(each.name, "(not shown)" if each.secret else _shown(value), "environment")
        elif each.ours:
            yield InForce(each.name, each.unset.replace("`", ""), "default")


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={each}" for key, each in value.items())
    if isinstance(value, tuple | frozenset):
        return ",".join(sorted(value))
    return str(int(value) if isinstance(value, bool) else value)


def gate_name() -> str:
    """Return the name of this process' gate: by default its host and process id."""
    return settings().gate or f"{socket.gethostname()}-{os.getpid()}"
