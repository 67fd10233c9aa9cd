"""The parts of the sandbox, built once and wired to each other. No HTTP in here."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from backoff_ctrl.k8s.lab.sandbox.admission.ledger import QuotaLedger
from backoff_ctrl.k8s.lab.sandbox.admission.limit_ranges import LimitRanger
from backoff_ctrl.k8s.lab.sandbox.admission.quota import QuotaAdmission
from backoff_ctrl.k8s.lab.sandbox.admission.quota_controller import QuotaController
from backoff_ctrl.k8s.lab.sandbox.objects.definitions import Definitions
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import Kinds
from backoff_ctrl.k8s.lab.sandbox.objects.store import Pacing, Store

from .faults import Counters, Faults, Settings


class Core:
    """Store, kinds, quota and limit ranges, faults and counters."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.clock = clock
        self.rng = random.Random(settings.seed)
        self.kinds = Kinds()
        self.counters = Counters()
        self.faults = Faults(rng=random.Random(settings.seed + 1))
        self.pacing = Pacing(random.Random(settings.seed + 2), settings.late_events, settings.late_event_max)
        self.store = Store(self.pacing, settings.remembered)
        self.definitions = Definitions(self.store, self.kinds, self.pacing, clock)
        self.limits = LimitRanger(self.store)
        self.ledger = QuotaLedger(self.store, clock)
        shuffler = random.Random(settings.seed + 4) if settings.shuffled_quotas else None
        self.quota = QuotaAdmission(self.ledger, self.faults, clock, shuffler)
        self.controller = QuotaController(self.ledger, self.kinds, self.faults, settings, clock)
