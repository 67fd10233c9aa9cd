"""What a described state means for a task: its phase with a reason, and for a failure its code.

``kube/operators`` has the descriptions, and reads the state from an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from backoff_ctrl.k8s.kube.operators.meanings import Case, Described, StateMeaning
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.kube.operators.reading import ReportedState, case_of, said_by

from .phases import PhaseInfo, failed

SHOWN: Final = 2_000
"""Characters of an object's own message that a reason repeats."""


def meaning_of(config: Described, resource: Mapping[str, Any], told: ReportedState) -> PhaseInfo:
    """Return the meaning of the state."""
    return meant_by(config.states.get(told.state, config.other), config, resource, told)


def meant_by(meaning: StateMeaning, config: Described, resource: Mapping[str, Any], told: ReportedState) -> PhaseInfo:
    """Return a meaning, by its first matching case."""
    case = case_of(meaning, resource)
    phase = case.phase if case is not None and case.phase is not None else meaning.phase
    said = (case.reason if case is not None else "") or meaning.reason
    if not said and told.state and told.state not in config.states:
        said = f"in state {told.state[:100]}"
    words = told.words if phase.is_failure or config.message or not said else ""
    if "{message}" in said:
        said, words = said.replace("{reason}", told.code).replace("{message}", told.message[:SHOWN]), ""
    reason = ": ".join(filter(None, (said, words[:SHOWN])))
    if not phase.is_failure:
        return PhaseInfo(phase, reason=reason, occurred_at=told.since)
    info = failed(
        said_by(_chosen(case, meaning, "code") or config.code, resource) or told.code,
        reason,
        kind=_chosen(case, meaning, "kind") or ErrorKind.USER,
        retryable=phase is Phase.RETRYABLE_FAILURE,
        cleanup=bool(_chosen(case, meaning, "cleanup")),
    )
    return replace(info, occurred_at=told.since)


def _chosen(case: Case | None, meaning: StateMeaning, key: str) -> Any:
    own = getattr(case, key) if case is not None else None
    return getattr(meaning, key) if own is None else own
