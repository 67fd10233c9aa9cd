"""What the operator keeps of the Tasks of one namespace is bounded; what is beyond that fails, or waits."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.k8s.kube.watching.shares import size_of
from backoff_ctrl.k8s.tasks.cluster.bounds import SPEC_MAX, TaskShares
from backoff_ctrl.k8s.tasks.cluster.cache import Entry, TaskCache
from tests.tasks.storing.test_tasks_of_the_cluster import body

JSON = dict[str, Any]
MANY = 40_000
GOING = {"deletionTimestamp": "2026-09-21T14:13:30Z"}
ENDED = {"phase": "Success", "endedAt": "2026-09-21T14:14:20Z", "attempt": 1}
BEGUN = {"phase": "Running", "attempt": 1, "pluginState": {"made": "it"}}


def task(version: int, name: str = "train", items: int = 2_000, **more: Any) -> JSON:
    """A Task whose spec takes 130 bytes of memory an item."""
    arguments = [f"argument-{each}" for each in range(items)]
    spec = {"type": "container", "container": {"image": "busybox", "args": arguments}, **more.pop("spec", {})}
    return body(version, name, spec=spec, **more)


def size_of_one() -> int:
    cache = TaskCache()
    entry = cache.take(task(1))
    return size_of([entry.read.spec, entry.read.metadata], 1 << 30) + (12 << 10)


def bounded(number: int) -> TaskCache:
    """Return a cache with room for so many tasks."""
    return TaskCache(TaskShares(of_namespace=number * size_of_one()))


def kept(cache: TaskCache, name: str = "train") -> Entry:
    found = cache.named("team", name)
    assert found is not None
    return found


def names_of(cache: TaskCache) -> list[str]:
    return [each.name for each in cache.left_out()]


def test_a_spec_that_is_too_large_fails_with_what_to_do_and_is_not_kept() -> None:
    cache = TaskCache(TaskShares())
    cache.take(task(1, items=MANY))
    entry = kept(cache)
    assert (entry.task.status.phase, entry.task.status.code) == ("PermanentFailure", "InvalidSpec")
    assert "put what is large into a ConfigMap" in str(entry.task.status.reason)
    assert size_of(entry.task.spec, SPEC_MAX) < 4_000
    assert entry.task.spec["type"] == "container"
    assert TaskCache().take(task(1, items=MANY)).task.open, "a store without bounds reads it whole"


def test_large_labels_and_annotations_count() -> None:
    cache = TaskCache(TaskShares())
    cache.take(task(1, metadata={"labels": {f"l{each}": "x" * 60 for each in range(MANY)}}))
    entry = kept(cache)
    assert entry.task.status.phase == "PermanentFailure"
    assert size_of([entry.task.metadata, entry.read.metadata], SPEC_MAX) < 20_000


def test_a_task_beyond_the_share_of_its_namespace_waits_until_others_have_ended() -> None:
    cache = bounded(2)
    for version, name in enumerate("abc", 1):
        cache.take(task(version, name))
    (left,) = cache.left_out()
    assert (left.name, len(cache), cache.has_room(left)) == ("c", 2, False)
    assert "it begins once others have ended" in left.sentence
    at = cache.revision
    cache.take(task(4, "a", status=ENDED))
    assert cache.has_room(left)
    cache.take(task(3, "c"))
    assert names_of(cache) == []
    assert [change.uid for change in cache.changes(at, wishes=True)] == [left.uid]
    assert kept(cache, "c").task.open


def test_the_whole_of_what_is_kept_is_bounded_and_each_namespace_has_some() -> None:
    one = size_of_one()
    cache = TaskCache(TaskShares(of_namespace=3 * one, of_all=3 * one, of_spec=one))
    for version, name in enumerate("abcd", 1):
        cache.take(task(version, name))
    assert names_of(cache) == ["d"]
    for version, name in enumerate("efg", 5):
        cache.take(task(version, name, metadata={"namespace": "other"}))
    assert cache.named("other", "f") is not None
    assert names_of(cache) == ["d", "g"]


def test_of_a_task_that_has_ended_the_small_fields_are_kept_and_count_for_nothing() -> None:
    cache = bounded(1)
    for version, name in enumerate("abcd", 1):
        whole = cache.take(task(version, name, status=ENDED, spec={"ttl": "5m"}))
        assert len(whole.task.spec["container"]["args"]) == 2_000, "who asks for it reads it whole"
        entry = kept(cache, name)
        assert not entry.whole
        assert entry.task.spec == {"type": "container", "ttl": "5m"}
    cache.take(task(9, "e"))
    assert kept(cache, "e").task.open


def test_one_that_runs_again_is_whole_again() -> None:
    cache = bounded(1)
    cache.take(task(1, status=ENDED))
    cache.take(task(2, status=ENDED, spec={"again": 1}, metadata={"generation": 2}))
    assert kept(cache).task.open
    assert len(kept(cache).task.spec["container"]["args"]) == 2_000


def test_what_has_begun_is_kept_by_the_next_leader_too() -> None:
    """It was within the share when it came: its pods run, and their end is to be seen."""
    cache = bounded(1)
    cache.take(task(1, "new"))
    cache.take(task(2, "begun", status=BEGUN))
    assert kept(cache, "begun").whole
    cache.take(task(3, "later"))
    assert names_of(cache) == ["later"]


def test_one_that_is_known_stays_known_when_its_status_grows() -> None:
    cache = bounded(1)
    cache.take(task(1))
    cache.take(task(2, status=BEGUN | {"reason": "x" * 20_000}))
    assert kept(cache).whole


def test_one_that_is_deleted_is_let_go_though_there_is_no_room() -> None:
    cache = bounded(1)
    cache.take(task(1, "a"))
    cache.take(task(2, "b"))
    assert names_of(cache) == ["b"]
    cache.take(task(3, "b", metadata=GOING))
    assert kept(cache, "b").task.abort
    assert names_of(cache) == []
    assert "container" not in kept(cache, "b").task.spec


def test_what_is_left_out_and_gone_is_forgotten() -> None:
    cache = bounded(1)
    for version, name in enumerate("abc", 1):
        cache.take(task(version, name))
    first, _ = cache.left_out()
    cache.forget(first.uid)
    assert names_of(cache) == ["c"]
    cache.keep_only(set(), "other", lambda _: False)
    assert names_of(cache) == ["c"]
    cache.keep_only(set(), None, lambda _: False)
    assert names_of(cache) == []
