"""What is kept of the objects of tasks is bounded by namespace: what is beyond that is read from the server instead."""

from __future__ import annotations

from backoff_ctrl.k8s.kube.answers.objects import Object, object_of
from backoff_ctrl.k8s.kube.watching.cache import Cache, Whole
from backoff_ctrl.k8s.kube.watching.objects import WatchedKind
from backoff_ctrl.k8s.kube.watching.shares import Shares
from backoff_ctrl.k8s.tasks.plugins.marks import ATTEMPT, MARKS, TASK_UID, key_of

PODS = WatchedKind("/api/v1", "pods", frozenset({"Pod"}))
LIMIT = 60_000


def pod(name: str, version: int, data: int, namespace: str = "team") -> Object:
    metadata = {"name": name, "namespace": namespace, "uid": f"u-{name}", "resourceVersion": str(version)}
    labels = {TASK_UID: f"t-{name}", ATTEMPT: "0", "app": "x" * data}
    return object_of({"metadata": {**metadata, "labels": labels}, "spec": {"data": "x" * data}})


class Recorder:
    """A cache with a bound, and what it reports."""

    def __init__(self) -> None:
        self.told: list[tuple[Object, bool]] = []
        keeping = Whole(Shares(LIMIT, 2 * LIMIT, guaranteed=0), MARKS)
        self.cache = Cache(PODS, None, ("v1", "Pod"), self._changed, lambda: None, lambda *_: None, keeping)
        self.cache.begin()
        self.cache.listed("0")

    def _changed(self, found: Object, gone: bool) -> None:
        self.told.append((found, gone))

    def known(self, name: str) -> bool:
        return self.cache.find(("team", name)) is not None


def test_an_object_that_is_too_large_is_reported_and_not_kept() -> None:
    found = Recorder()
    found.cache.put(pod("large", 1, LIMIT))
    found.cache.put(pod("small", 2, 10))
    found.cache.put(pod("small", 3, 10, "other"))
    assert not found.known("large")
    assert found.known("small")
    assert not found.cache.knows_all("team"), "else its absence would mean that it does not exist"
    assert found.cache.knows_all("other")
    kept, gone = found.told[0]
    assert (key_of(kept), gone) == (("t-large", 0), False)
    assert len(str(kept)) < 1000


def test_the_end_of_one_that_is_not_kept_is_reported() -> None:
    """By an event, or because a later list does not have it."""
    found = Recorder()
    for name in ("a", "b"):
        found.cache.put(pod(name, 1, LIMIT))
    found.told.clear()
    found.cache.remove(pod("a", 2, LIMIT))
    found.cache.begin()
    found.cache.listed("3")
    assert [(key_of(each), gone) for each, gone in found.told] == [(("t-a", 0), True), (("t-b", 0), True)]
    assert found.cache.knows_all("team")


def test_one_that_has_become_smaller_is_kept_and_one_that_has_grown_is_not() -> None:
    found = Recorder()
    found.cache.put(pod("a", 1, LIMIT))
    found.cache.put(pod("a", 2, 10))
    assert found.known("a")
    found.cache.put(pod("a", 3, LIMIT))
    assert not found.known("a")
    assert len(found.told) == 3


def test_what_is_gone_makes_way_for_others_of_its_namespace() -> None:
    found = Recorder()
    for name in ("a", "b", "c"):
        found.cache.put(pod(name, 1, LIMIT // 3))
    assert [found.known(name) for name in ("a", "b", "c")] == [True, True, False]
    found.cache.remove(pod("a", 2, LIMIT // 3))
    found.cache.put(pod("c", 3, LIMIT // 3))
    assert found.known("c")


def test_an_object_of_the_same_name_counts_in_place_of_the_one_before() -> None:
    """Its deletion may have been missed."""
    found = Recorder()
    found.cache.put(pod("a", 1, LIMIT // 3))
    again = pod("a", 2, LIMIT // 3)
    found.cache.put(object_of({**again.body, "metadata": {**again.body["metadata"], "uid": "other"}}))
    found.cache.put(pod("b", 3, LIMIT // 3))
    assert found.known("b")
