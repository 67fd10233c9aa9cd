"""Which objects are gangs: those of which others make pods. What is reserved for them, at a start and a restart."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.parts import Parts
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.gate.gangs import GangAsked, gang_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.charges.parts import Part

log = logging.getLogger(__name__)


def gang_to_create(creation: Creation, parts: tuple[Part, ...], limit: float | None) -> GangAsked | None:
    """Describe a create as a gang; None: no pods are made of its object, or only the cluster knows how much.

    ``limit``: seconds without a new pod after which what is still to come is not reserved any more.
    """
    if not _pods(parts):
        return None
    try:
        return gang_of(
            creation.namespace,
            [(creation.body, 1)],
            resource=creation.resource,
            name=creation.name,
            server=creation.server,
            credential=creation.credential,
            priority=creation.priority,
            timeout=creation.timeout,
            limit=limit,
            makes=lambda _manifest, _resource: parts,
        )
    except GangError as error:
        log.warning("%s is not admitted as a whole: %s", creation.label, error)
        return None


def gang_that_stands(
    namespace: str,
    resource: str,
    stored: Mapping[str, Any],
    made_of_it: tuple[Part, ...],
    *,
    server: str,
    priority: int,
    limit: float | None = None,
) -> GangAsked | None:
    """Describe what others may still make of a living object, after a restart; None: nothing."""
    made = _pods(made_of_it)
    if not made:
        return None
    try:
        asked = Parts((part.demand, part.count or 1) for part in made)
    except GangError as error:
        log.warning("nothing is reserved for what is still made of %s in %s: %s", resource, namespace, error)
        return None
    return GangAsked(
        Creation(server, "", namespace, resource, dict(stored), priority),
        asked,
        limit,
        standing=True,
        pods_made=frozenset(range(len(made))),
        titles=tuple(f"the {part.kind}s of {part.made_by}" for part in made),
        made_from=stored,
    )


def _pods(parts: tuple[Part, ...]) -> list[Part]:
    """Return the pods that others make; none where their number is not known."""
    made = [part for part in parts if not part.suspended and part.kind == "Pod"]
    return [] if any(part.count is None for part in made) else made
