"""What the manager counts, for its metrics. A counter is one step of a dict: no lock is needed on one event loop."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class ManagerCounts:
    """Counters from the start of the manager on."""

    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Attempts that failed, by plugin, phase and code."""
    plugin_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Exceptions that plugins raised, by plugin and method."""
    launches: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Creates that ended, by plugin: ``created``, ``adopted``, ``failed``, ``stopped``."""
    reads: Counter[str] = field(default_factory=Counter)
    """Where steps found their objects, by ``cache`` or ``server``."""
    deletions: Counter[str] = field(default_factory=Counter)
    """Objects whose deletion was asked for, by plugin."""
    unexpected_deletions: Counter[str] = field(default_factory=Counter)
    """Objects that somebody else deleted before they had ended, by plugin."""
    finalizer_conflicts: int = 0
    """Finalizers of ours whose object had been changed meanwhile: their removal was tried again."""
