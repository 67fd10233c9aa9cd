"""Which objects are gangs: those of which others make pods. What is reserved for them, at a start and a restart."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.parts import Parts
from backoff_ctrl.k8s.charges.footprint import FootprintError
from backoff_ctrl.k8s.charges.parts import parts_of
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.gate.gangs.asked import GangAsked, gang_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.charges.parts import Part

log = logging.getLogger(__name__)


def gang_to_create(creation: Creation) -> GangAsked | None:
    """Describe a create as a gang; None: nothing is made of its object, or only the cluster knows how much."""
    if not _made(creation.body, creation.resource):
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
        )
    except GangError as error:
        log.warning("%s is not admitted as a whole: %s", creation.label, error)
        return None


def gang_that_stands(
    namespace: str, resource: str, stored: Mapping[str, Any], *, server: str, priority: int
) -> GangAsked | None:
    """Describe what others may still make of a living object, after a restart; None: nothing."""
    made = _made(stored, resource)
    if not made:
        return None
    try:
        parts = Parts((part.demand, part.count or 1) for part in made)
    except GangError as error:
        log.warning("nothing is reserved for what is still made of %s in %s: %s", resource, namespace, error)
        return None
    return GangAsked(
        Creation(server, "", namespace, resource, dict(stored), priority),
        parts,
        standing=True,
        pods_made=frozenset(range(len(made))),
        titles=tuple(f"the {part.kind}s of {part.made_by}" for part in made),
        made_from=stored,
    )


def _made(manifest: Mapping[str, Any], resource: str) -> list[Part]:
    """Return the pods that others make of a manifest; none where their number is not known."""
    try:
        made = [part for part in parts_of(manifest, resource=resource) if not part.suspended and part.kind == "Pod"]
    except (FootprintError, AttributeError):
        return []  # the server will say what is wrong with it
    return [] if any(part.count is None for part in made) else made
