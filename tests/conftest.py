"""Profiles of the property tests: the same examples everywhere, more of them on demand."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A property that fails must fail again: examples are derived from the test, not from the clock.
settings.register_profile(
    "default", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=20)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=5_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
