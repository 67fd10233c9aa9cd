"""What is suspended again although it was let in: who did that, how often, and whether letting it in again would help.

A person or a tool applies the file of a running Job once more, and the file says ``suspend: true``: its pods end, and
it waits in line again. A tool that does so each time it is let in (GitOps) would kill its pods for ever: such an object
waits until its spec or our annotation changes. What is known of that is kept in the annotation ``admitted``. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

from backoff_ctrl.k8s.kube.answers.fields import mapping, mappings, metadata_of, text

from .kinds import ADMITTED, STAY_SUSPENDED, AdmissibleKind, Subject

SOON: Final = 600.0
"""Seconds after it was let in: who suspends an object within that time may do so each time."""
OFTEN: Final = 2
"""So many times in a row it is let in and suspended soon after; then it is not let in again."""


@dataclass(frozen=True, slots=True)
class Suspender:
    """Who has suspended an object, as its ``managedFields`` say: a field manager, and when; empty: not known."""

    manager: str = ""
    when: datetime | None = None


@dataclass(frozen=True, slots=True)
class SuspendedAgain:
    """What is noted of an object that was let in and is suspended again.

    ``times``: how often in a row that came soon. ``generation`` is that of its spec by then; None: it is not noted yet.
    """

    at: datetime | None
    times: int = 0
    generation: int | None = None
    by: str = ""

    @classmethod
    def of(cls, subject: Subject) -> Self | None:
        """Return what its annotation says; None: this object was not let in before."""
        noted = subject.admitted
        if not noted:
            return None
        times, again = noted.get("times"), mapping(noted.get("suspended"))
        generation = again.get("generation")
        return cls(
            time_of(noted.get("at")),
            times if isinstance(times, int) and 0 <= times <= OFTEN else 0,
            generation if isinstance(generation, int) else None,
            text(again.get("by")),
        )

    def seen(self, subject: Subject, by: Suspender, now: datetime) -> Self:
        """Return it with a suspension that is not noted yet."""
        waited = None if self.at is None else ((by.when or now) - self.at).total_seconds()
        soon = waited is not None and waited < SOON
        times = min(OFTEN, self.times + 1) if soon else 0
        return replace(self, times=times, generation=subject.generation, by=by.manager)

    @property
    def is_loop(self) -> bool:
        """Whether to let it in again would but end its pods again."""
        return self.times >= OFTEN

    def has_changed(self, subject: Subject) -> bool:
        """Return whether its spec has changed since it was suspended: its tool may have got another file."""
        return self.generation != subject.generation

    def sentence(self, kind: AdmissibleKind) -> str:
        """Say what has happened, and what to do."""
        who = f"the field manager {self.by}" if self.by else "somebody"
        stays = f'To keep it suspended, give it the annotation {STAY_SUSPENDED}: "true"'
        if self.is_loop:
            return (
                f"it is not let in again, since {who} has suspended it twice within {SOON / 60:.0f} minutes of that: "
                f"leave {kind.suspend} out of the file that is applied, then remove the annotation {ADMITTED}. {stays}"
            )
        return (
            f"{who} has suspended it after it was let in, so it waits in line again: leave {kind.suspend} out of the "
            f"file that is applied. {stays}"
        )


def with_note(subject: Subject, again: SuspendedAgain) -> dict[str, Any]:
    """Return the patch that notes on an object that it is suspended again, if it is still as it was seen."""
    suspended = {"generation": again.generation, "by": again.by}
    noted = {**subject.admitted, "times": again.times, "suspended": suspended}
    return {"metadata": {"resourceVersion": subject.version, "annotations": {ADMITTED: json.dumps(noted)}}}


def suspender_of(kind: AdmissibleKind, body: Mapping[str, Any]) -> Suspender:
    """Return the last field manager that has set the field by which an object is suspended."""
    found = Suspender()
    for entry in mappings(metadata_of(body).get("managedFields")):
        fields: Any = entry.get("fieldsV1")
        for name in kind.suspend.split("."):
            fields = mapping(fields).get(f"f:{name}")
        when = time_of(entry.get("time"))
        if isinstance(fields, dict) and (found.when is None or (when is not None and when >= found.when)):
            found = Suspender(text(entry.get("manager")), when)
    return found


def time_of(value: object) -> datetime | None:
    """Return a time as Kubernetes writes it; None: it can't be read."""
    try:
        when = datetime.fromisoformat(text(value))
    except ValueError:
        return None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)
