"""The parts of the sandbox, built once and wired to each other. No HTTP in here."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from backoff_ctrl.k8s.sandbox.admission.claim_protection import ClaimProtection
from backoff_ctrl.k8s.sandbox.admission.ledger import QuotaLedger
from backoff_ctrl.k8s.sandbox.admission.limit_ranges import LimitRanger
from backoff_ctrl.k8s.sandbox.admission.quota import QuotaAdmission
from backoff_ctrl.k8s.sandbox.admission.quota_controller import QuotaController
from backoff_ctrl.k8s.sandbox.faults import Counters, Faults
from backoff_ctrl.k8s.sandbox.objects.definitions import Definitions
from backoff_ctrl.k8s.sandbox.objects.kinds import Kinds
from backoff_ctrl.k8s.sandbox.objects.store import Pacing, Store


@dataclass(frozen=True, slots=True)
class Settings:
    """How the sandbox behaves. Durations are in seconds.

    ``release_delay``: from a release to the new status of the quota (measured on an idle server: 1-2 ms).
    ``fill_delay``: from creating or changing a quota to its enforcement. ``resync_every``: between full recounts.
    ``writes_per_second``: status writes of the quota controller, for the whole cluster; a kube-controller-manager
    does 20 by default (after a burst of 30), None means no limit.
    ``shuffled_quotas``: evaluate the quotas of a namespace in a different order each time, as a real server does
    (seen: any of six was named first); without it they are evaluated by name.
    ``late_events``: share of changes that watchers see only after the writer's answer, up to ``late_event_max``
    seconds late. ``bookmark_every``: for watches that ask for bookmarks. ``remembered``: events of each kind
    that a watch can resume from. ``largest_body``: limit on a request body, in bytes.
    """

    seed: int = 0
    release_delay: float = 0.002
    fill_delay: float = 0.002
    resync_every: float = 300.0
    writes_per_second: float | None = None
    shuffled_quotas: bool = False
    late_events: float = 0.01
    late_event_max: float = 0.005
    bookmark_every: float = 15.0
    remembered: int = 20_000
    largest_body: int = 3 * 1024 * 1024


class Core:
    """Store, kinds, quota and limit ranges, faults and counters."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        """Build and wire all parts; nothing runs yet."""
        self.settings = settings
        self.clock = clock
        self.rng = random.Random(settings.seed)
        self.kinds = Kinds()
        self.counters = Counters()
        self.faults = Faults(rng=random.Random(settings.seed + 1))
        self.pacing = Pacing(random.Random(settings.seed + 2), settings.late_events, settings.late_event_max)
        self.store = Store(self.pacing, settings.remembered)
        self.definitions = Definitions(self.store, self.kinds, self.pacing, clock)
        self.claims = ClaimProtection(self.store, self.pacing)
        self.limits = LimitRanger(self.store)
        self.ledger = QuotaLedger(self.store, clock)
        shuffler = random.Random(settings.seed + 4) if settings.shuffled_quotas else None
        self.quota = QuotaAdmission(self.ledger, self.faults, clock, shuffler)
        self.controller = QuotaController(
            self.ledger,
            self.kinds,
            self.faults,
            random.Random(settings.seed + 3),
            release_delay=settings.release_delay,
            fill_delay=settings.fill_delay,
            resync_every=settings.resync_every,
            writes_per_second=settings.writes_per_second,
            clock=clock,
        )
