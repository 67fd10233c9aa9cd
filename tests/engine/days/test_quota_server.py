"""The server of the random days: what it charges, and how its recounts lie."""

from __future__ import annotations

import random

import pytest

from tests.kit.quota_server import TRAILS_MAX, Agenda, Amounts, QuotaServer, StoredPod, Watch

pytestmark = pytest.mark.no_cover


class Serving:
    """A server with two CPUs, its clock, and the changes that it tells of."""

    def __init__(self, seed: int = 0, *, lies: bool = False) -> None:
        """Start empty."""
        self.agenda = Agenda()
        self.quota: list[tuple[int, frozenset[str]]] = []
        self.living: list[int] = []
        """What lived by the truth after each recount."""
        self.pods: list[tuple[str, bool]] = []
        self.server = QuotaServer(self.agenda, random.Random(seed), {"cpu": 2}, self, lies=lies)
        self.server.recount()

    def quota_changed(self, recounted: frozenset[str]) -> None:
        """Note what is used, and which resources a recount wrote."""
        self.quota.append((self.server.used["cpu"], recounted))
        if recounted:
            self.living.append(self.server.living()["cpu"])

    def pod_changed(self, pod: StoredPod, *, ended: bool) -> None:
        """Note the pod, and whether it has ended."""
        self.pods.append((pod.uid, ended))

    def create(self, uid: str, cpu: int, *, ours: bool = True) -> StoredPod:
        """Create a pod that fits."""
        amounts: Amounts = {"cpu": cpu}
        assert self.server.charge(amounts) is None
        return self.server.store(uid, amounts, ours=ours)

    def later(self, seconds: float) -> None:
        """Let so many seconds pass."""
        end = self.agenda.now + seconds
        while self.agenda.next() <= end:
            self.agenda.step()
        self.agenda.now = end


def test_an_exact_fit_is_stored_and_one_more_is_refused() -> None:
    """The refusal has what was asked, used and limited."""
    serving = Serving()
    serving.create("a", 2)

    refusal = serving.server.charge({"cpu": 1})
    assert refusal is not None
    assert (refusal.requested, refusal.used, refusal.limited) == ({"cpu": 1}, {"cpu": 2}, {"cpu": 2})
    assert serving.quota == [(2, frozenset())]


def test_the_room_of_an_ended_pod_is_free_once_it_is_recounted_and_the_cache_has_it() -> None:
    """And not before."""
    serving = Serving()
    pod = serving.create("a", 2)
    serving.server.end(pod)
    assert serving.server.charge({"cpu": 1}) is not None

    while serving.server.used["cpu"]:
        serving.agenda.step()
    assert serving.quota[-1] == (0, frozenset({"cpu"}))
    assert serving.server.charge({"cpu": 1}) is not None, "the admission's cache trails"
    serving.later(TRAILS_MAX)
    assert serving.server.charge({"cpu": 1}) is None
    assert serving.pods == [("a", False), ("a", True)]


@pytest.mark.parametrize("lies", [False, True])
def test_only_recounts_from_a_late_cache_miss_what_lives(*, lies: bool) -> None:
    """And a later one finds it again."""
    lowest = 2
    for seed in range(50):
        serving = Serving(seed, lies=lies)
        ended = serving.create("a", 1)
        serving.later(0.5)
        serving.server.end(ended)
        serving.create("b", 1)
        serving.later(60)
        lowest = min(lowest, *(used for used, recounted in serving.quota if recounted))
        assert serving.server.used == {"cpu": 1}, "it is found again"
    assert lowest == (0 if lies else 1)


@pytest.mark.parametrize("ours", [False, True])
def test_only_a_strangers_pod_does_not_count_while_a_recount_misses_it(*, ours: bool) -> None:
    """The server takes its room for free, and the engine can't know better."""
    lowest = 2
    for seed in range(50):
        serving = Serving(seed, lies=True)
        serving.server.end(serving.create("a", 1))
        serving.create("b", 1, ours=ours)
        serving.later(60)
        lowest = min(lowest, *serving.living)
        assert serving.server.living() == {"cpu": 1}
    assert lowest == (1 if ours else 0)


def test_a_watch_tells_in_order_and_what_was_missed_once_it_is_back() -> None:
    """Whatever delay each change has."""
    agenda = Agenda()
    told: list[str] = []
    watch = Watch(agenda, told.append)
    watch.add("a", 0.5)
    watch.add("b", 0.1)
    agenda.step()
    agenda.step()
    assert (told, agenda.now) == (["a", "b"], 0.5)

    watch.cut()
    watch.add("c", 0.1)
    assert watch.resume() == ["c"]
    assert told == ["a", "b"]
