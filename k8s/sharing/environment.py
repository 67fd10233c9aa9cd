"""The environment variables that set how creates are gated and who is notified of them.

A typo in an environment variable must not stop a platform (law 18): it is reported once, as an error in the log, and
by ``backoff-ctrl doctor``. The wrong part of ``BACKOFF_CTRL_MODE`` then counts as ``shadow``, under which creates are
sent at once, as without the gate; another value that is wrong counts as not set.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final

from backoff_ctrl.engine.errors import PolicyError
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.creates.creation import MODES, Mode, OptionError, check_options
from backoff_ctrl.k8s.creates.naming import UNSIGNED, Signature

log = logging.getLogger(__name__)

MODE: Final = "BACKOFF_CTRL_MODE"
POLICY: Final = "BACKOFF_CTRL_POLICY"
TIMEOUT: Final = "BACKOFF_CTRL_TIMEOUT"
GATE_NAME: Final = "BACKOFF_CTRL_GATE_NAME"
TRUSTED_GATES: Final = "BACKOFF_CTRL_TRUSTED_GATES"
EVENTS: Final = "BACKOFF_CTRL_EVENTS"
TRACES: Final = "BACKOFF_CTRL_TRACES"
MEMORY: Final = "BACKOFF_CTRL_MEMORY"
STATUS: Final = "BACKOFF_CTRL_STATUS"
NOTIFY: Final = "BACKOFF_CTRL_NOTIFY"
_YES: Final = ("1", "true", "yes", "on")
_NO: Final = ("", "0", "false", "no", "off")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|\*")


@dataclass
class Environment:
    """What the variables say. ``wrong`` holds a sentence for each value that is not understood."""

    mode: dict[str, Mode] = field(default_factory=dict)
    timeout: float | None = None
    policy: dict[str, Any] = field(default_factory=dict)
    signature: Signature = UNSIGNED
    events: bool = False  # write Kubernetes events of creates that wait
    traces: bool = False  # make spans of creates
    memory: str = ""  # the directory of the memory files, one per API server; empty: nothing is kept
    status: str = ""  # the address to serve the status at; empty: it is not served
    notify: str = ""  # the file of receivers of notifications; empty: there are none
    wrong: list[str] = field(default_factory=list)


def read_environment(given: Mapping[str, str] = os.environ) -> Environment:
    """Read the variables. Never raises."""
    found = Environment(memory=given.get(MEMORY, ""), status=given.get(STATUS, ""), notify=given.get(NOTIFY, ""))
    _read_mode(given.get(MODE, ""), found)
    _read_timeout(given.get(TIMEOUT, ""), found)
    _read_policy(given.get(POLICY, ""), found)
    _read_gates(given.get(GATE_NAME, ""), given.get(TRUSTED_GATES, ""), found)
    found.events = _read_switch(EVENTS, given, "no Kubernetes events will be written", found)
    found.traces = _read_switch(TRACES, given, "creates are not traced", found)
    return found


def environment() -> Environment:
    """Read the variables of this process, and log what is wrong with them: once for each value."""
    found = read_environment()
    for sentence in found.wrong:
        if sentence not in _LOGGED:
            _LOGGED.add(sentence)
            log.error("%s", sentence)
    return found


_LOGGED: Final[set[str]] = set()


def _read_switch(variable: str, given: Mapping[str, str], instead: str, found: Environment) -> bool:
    word = given.get(variable, "").strip().lower()
    if word not in (*_YES, *_NO):
        found.wrong.append(f"{variable}={word!r} is neither 1 nor 0: {instead}")
    return word in _YES


def _read_mode(text: str, found: Environment) -> None:
    """Read ``shadow`` or ``shadow,team-a=enforce``: a mode for all, and modes of single namespaces."""
    for part in filter(None, (each.strip() for each in text.split(","))):
        namespace, _, mode = (each.strip() for each in (part if "=" in part else f"*={part}").partition("="))
        known = next((each for each in MODES if each == mode.lower()), None)
        if not _NAMESPACE.fullmatch(namespace):
            namespace, known = "*", None
        if known is None or namespace in found.mode:
            found.wrong.append(
                f"{MODE}={text!r} is not understood at {part!r}: write a mode ({', '.join(MODES)}), and with commas "
                "other modes of single namespaces, each once, such as shadow,team-a=enforce. Until this is corrected, "
                f"{'all namespaces that it does not name are' if namespace == '*' else f'namespace {namespace} is'} "
                "in shadow mode: creates are sent at once, as without the gate"
            )
            known = "shadow"
        found.mode[namespace] = known


def _read_timeout(text: str, found: Environment) -> None:
    if text.strip():
        try:
            timeout = float(text)
            check_options(timeout, None, None, None)
        except (ValueError, OptionError):
            found.wrong.append(
                f"{TIMEOUT}={text!r} is not understood: write a number of seconds, 0 or more. "
                "Until this is corrected, creates wait without a limit"
            )
        else:
            found.timeout = timeout


def _read_policy(text: str, found: Environment) -> None:
    try:
        settings = policy_settings(part for part in text.split(",") if part.strip())
        Policy(**settings)
    except PolicyError as error:
        found.wrong.append(f"{POLICY}={text!r} is not understood: {error}. Until this is corrected, the defaults apply")
    else:
        found.policy = settings


def policy_settings(parts: Iterable[str]) -> dict[str, Any]:
    """Read settings of the engine's policy, such as ``base=2``. Raises ``PolicyError``; ``Policy`` has ranges."""
    known, found = {each.name for each in fields(Policy)}, {}
    for part in parts:
        key, equals, value = (each.strip() for each in part.partition("="))
        name = key.replace("-", "_")
        if not equals or not value:
            raise PolicyError(f"{part.strip()!r} has no value: write KEY=VALUE, such as base=2")
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(sorted(known))}"
            raise PolicyError(f"unknown setting {key}: {hint}")
        found[name] = _number(value)
    return found


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _read_gates(name: str, trusted: str, found: Environment) -> None:
    names = [each.strip() for each in trusted.split(",") if each.strip()]
    for variable, text in [(GATE_NAME, name.strip()), *((TRUSTED_GATES, each) for each in names)]:
        if text and not _NAME.fullmatch(text):
            found.wrong.append(
                f"{variable}: {text!r} is not a valid gate name: use letters, digits, '-', '_' and '.'. It is ignored"
            )
    valid = frozenset(each for each in names if _NAME.fullmatch(each))
    found.signature = Signature(name.strip() if _NAME.fullmatch(name.strip()) else "", valid)
