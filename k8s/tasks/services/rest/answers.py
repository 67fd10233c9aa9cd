"""What a service's answer says: the job's id, whose it is, its phase; or in a sentence why it can't be read. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import mapping
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.operators.paths import Text, word_of
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.kube.operators.reading import ReportedState
from backoff_ctrl.k8s.tasks.plugins.kept import flaw_of_kept
from backoff_ctrl.k8s.tasks.plugins.meanings import meaning_of, meant_by
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, TaskLog

from .service_config import ANSWER, ID, ID_LONGEST, ServiceConfig

SAID: Final = 500
"""Characters of what a service says that a sentence repeats."""
DIGITS_MAX: Final = 9
"""Digits of a Retry-After: what has more is no number of seconds."""
DETAIL_MAX: Final = 2_000
"""Characters of a detail that is shown with a phase: a longer text is cut, any other longer value left out."""
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_HTML: Final = re.compile(r"\s*(<!doctype html|<html|<head|<body)", re.IGNORECASE)
_HALF: Final = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. ``body`` is an object or a list, or None; then ``flaw`` gives the reason, as the end of a sentence.

    ``text`` is what was sent. ``retry_after``: the seconds that the service asks to wait.
    """

    status: int
    body: Any = None
    flaw: str = ""
    text: str = ""
    retry_after: float | None = None

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_gone(self) -> bool:
        return self.status in (404, 410)


def read_answer(status: int, content: bytes, limit: int, retry_after: str = "") -> Answer:
    """Read an answer's bytes, of which there may be more than ``limit``, and its header ``Retry-After``."""
    asked = retry_after.strip()
    after = float(asked) if asked.isascii() and asked.isdecimal() and len(asked) <= DIGITS_MAX else None
    if len(content) > limit:
        return Answer(status, flaw=f"it has more than {limit} bytes (answer-max)", retry_after=after)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Answer(status, flaw=f"it is not UTF-8: byte {error.start} is wrong", retry_after=after)
    return replace(_read_text(status, text), retry_after=after)


def _read_text(status: int, text: str) -> Answer:
    if not text.strip():
        return Answer(status, flaw="it is empty")
    begin = printable(" ".join(text[:SAID].split()))[:60]
    try:
        body = json.loads(text, parse_constant=_no_number, parse_float=_number)
    except (ValueError, RecursionError):
        if _HTML.match(text):
            title = _TITLE.search(text[:10_000])
            page = "an HTML page" + (f' "{printable(" ".join(title[1].split()))[:100]}"' if title else "")
            return Answer(status, flaw=f"it is {page} and no JSON", text=page)
        return Answer(status, flaw=f"it is no JSON, and begins with {begin!r}", text=text)
    if not isinstance(body, dict | list):
        return Answer(status, flaw=f"it is {begin}, and no object", text=text)
    return Answer(status, _whole(body) if "\\u" in text else body, text=text)


def id_of(config: ServiceConfig, body: object) -> str:
    """Return the id of the job that an answer is about; empty if the answer has no valid id."""
    found = next(filter(None, (word_of(path.first(mapping(body))) for path in config.job_id.path)), "")
    return found if len(found) <= ID_LONGEST and found.isprintable() else ""


def another(config: ServiceConfig, body: object, document: Mapping[str, Any]) -> str:
    """Return how an answer shows that it is about another job; empty: it does not."""
    wrong = (f"{path} is {found[:100]!r} instead of {right!r}" for path, found, right in _signs(config, body, document)
             if found != right)  # fmt: skip
    return next(wrong, "")


def is_ours(config: ServiceConfig, body: object, document: Mapping[str, Any]) -> bool:
    """Whether an item of a list is the task's job: it has one of the job's signs, and all signs that it has match."""
    signs = list(_signs(config, body, document))
    return bool(signs) and all(found == right for _, found, right in signs)


def state_of(config: ServiceConfig, body: object) -> str:
    """Return the state in an answer, or an empty text."""
    return word_of(config.state.first(mapping(body)))


def phase_of(config: ServiceConfig, body: Mapping[str, Any], document: Mapping[str, Any]) -> PhaseInfo:
    """Return what an answer means for the task. ``document`` has the values for links to logs."""
    info = meaning_of(config, body, ReportedState(state_of(config, body), config.words(body).rstrip(".")))
    known = {**document, ANSWER: body}
    links = ((link.name, link.url.of(known)) for link in config.logs)
    facts = {name: shown for name, value in config.facts(body).items() if (shown := _bounded(value)) is not None}
    info = replace(
        info,
        custom=facts,
        logs=tuple(TaskLog(name, url) for name, url in links if url),
        occurred_at=config.ended_at(body) if info.phase.is_terminal else None,
    )
    return _with_outputs(config, info, body) if info.phase is Phase.SUCCESS else info


def phase_of_gone(config: ServiceConfig) -> PhaseInfo:
    """Return what it means that the service does not know the job."""
    return meant_by(config.gone, config, {}, ReportedState(""))


def message_of(config: ServiceConfig, answer: Answer) -> str:
    """Return what an error answer says, for people."""
    said = ": ".join(filter(None, (word_of(path.first(mapping(answer.body))) for path in config.error)))
    return printable(" ".join((said or _point_of(answer.text)).split()))[:SAID] or answer.flaw or "it says no more"


def _signs(config: ServiceConfig, body: object, document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield where an answer says whose job it is about, what it says, and what it says of ours."""
    known = [(path, Text("$.id")) for path in config.job_id.path] if ID in document else []
    for path, template in (*config.ours.items(), *known):
        found, right = word_of(path.first(mapping(body))), template.of(document)
        if found and right is not None:
            yield str(path), found, right


def _with_outputs(config: ServiceConfig, info: PhaseInfo, body: Mapping[str, Any]) -> PhaseInfo:
    found = {name: path.first(body) for name, path in config.outputs.items()}
    outputs = {name: value for name, value in found.items() if value is not None}
    if flaw := flaw_of_kept(outputs):
        return info.with_reason(f"its outputs are not kept: {flaw}")
    return replace(info, outputs=outputs) if outputs else info


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value[:DETAIL_MAX]
    return value if len(json.dumps(value, ensure_ascii=False)) <= DETAIL_MAX else None


def _point_of(text: str) -> str:
    """Return the beginning of a text; of a Python traceback the last line with a word, which says what was wrong."""
    if not text.lstrip().startswith("Traceback "):
        return text[: 4 * SAID]
    return next(line for line in reversed(text.splitlines()) if re.search(r"\w", line))


def _whole(value: Any) -> Any:
    """Return JSON in which half a character is a question mark: no store takes it."""
    if isinstance(value, str):
        return _HALF.sub("?", value)
    if isinstance(value, dict):
        return {_HALF.sub("?", key): _whole(each) for key, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list) else value


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _number(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:20]} is too large")
    return found
