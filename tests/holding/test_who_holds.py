"""Who holds each resource of each quota, and how much of its use is held by no object."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.kube.charges.attribution import Holding, Report, Snapshot, attribute, charged_kinds, confirmed
from backoff_ctrl.k8s.kube.charges.live import By, Ending, Live, Termination

JSON = dict[str, Any]
NOW = datetime(2026, 11, 21, 14, 0, 0, tzinfo=UTC)
OWNED = Ending(By.OWNER)


def pod(name: str, cpu: int = 1, owner: str = "", **more: Any) -> Live:
    """Return a pod that is charged this much cpu."""
    charged = Demand({"count/pods": NANO, "pods": NANO, "requests.cpu": cpu * NANO}, more.pop("scopes", ()))
    ending = more.pop("ending", OWNED if owner else Ending(By.HAND))
    values: JSON = {"created": NOW - timedelta(seconds=60), "charged": charged, "owed": {}, "gone": ending, **more}
    return Live("pods", name, owner or f"Pod/{name}", ending=ending, **values)


def overdue(name: str, cpu: int = 1) -> Live:
    """Return a pod whose deletion is overdue: charged only its count, but the rest is still in ``used``."""
    since = NOW - timedelta(seconds=90)
    stuck = Termination(since, since + timedelta(seconds=30), "n1", ())
    owed = {"pods": NANO, "requests.cpu": cpu * NANO}
    return pod(name, charged=Demand({"count/pods": NANO}), owed=owed, stuck=stuck, ending=Ending(By.NODE, detail="n1"))


def quota(hard: JSON, used: JSON | None, name: str = "q", spec: JSON | None = None, **more: Any) -> JSON:
    """Return a quota as the server returns it."""
    status = {} if used is None else {"hard": hard, "used": used}
    return {"metadata": {"name": name}, "spec": {"hard": spec or hard, **more}, "status": status}


def report(*objects: Live, used: JSON, before: JSON | None = None, hard: JSON | None = None, **more: Any) -> Report:
    """Return the report on one quota, whose limits are 10 unless given."""
    limits = hard or dict.fromkeys(used, "10")
    first = quota(limits, before or used)
    return attribute(Snapshot("team", [first], objects, [quota(limits, used)], **more), NOW)


def only(found: Report, resource: str = "requests.cpu") -> Holding:
    """Return the holding of one resource."""
    (holding,) = [each for _, each in found.holdings if each.resource == resource]
    return holding


def test_holders_are_grouped_by_owner_and_the_largest_comes_first() -> None:
    """Each holder has the creation time of its oldest object."""
    old = NOW - timedelta(days=3)
    objects = [pod("a", 1, "ReplicaSet/web"), pod("b", 2, "ReplicaSet/web", created=old), pod("c", 4), pod("d", 1)]
    holding = only(report(*objects, used={"requests.cpu": "8"}))

    rows = [(each.owner, each.objects, each.amount // NANO) for each in holding.holders]
    assert rows == [("Pod/c", 1, 4), ("ReplicaSet/web", 2, 3), ("Pod/d", 1, 1)]
    assert holding.holders[1].oldest == old
    assert (holding.leaked, holding.overdue, holding.uncounted, holding.full) == (0, 0, 0, False)


def test_overdue_deletions_are_distinguished_from_a_leak() -> None:
    """Use beyond the objects' charges is first attributed to overdue deletions; the rest is leaked."""
    found = report(pod("a", 3), overdue("x", 2), used={"requests.cpu": "9", "count/pods": "2"})

    assert (only(found).overdue, only(found).leaked) == (2 * NANO, 4 * NANO)
    assert (only(found, "count/pods").overdue, only(found, "count/pods").leaked) == (0, 0)
    assert [pod.name for pod, _ in found.stuck] == ["x"]
    assert found.wrong


def test_an_overdue_deletion_that_was_released_is_not_counted() -> None:
    """If ``used`` no longer contains it, nothing is overdue."""
    assert only(report(pod("a", 3), overdue("x", 2), used={"requests.cpu": "3"})).overdue == 0


@pytest.mark.parametrize(
    ("before", "after", "leaked", "uncounted"),
    [("3", "3", 0, 0), ("5", "5", 2, 0), ("3", "5", 0, 0), ("5", "3", 0, 0), ("4", "5", 1, 0), ("1", "2", 0, 1)],
)
def test_a_change_while_objects_are_listed_is_no_leak(before: str, after: str, leaked: int, uncounted: int) -> None:
    """Of the use before and after the listing, the one that explains more counts."""
    holding = only(report(pod("a", 3), used={"requests.cpu": after}, before={"requests.cpu": before}))

    assert (holding.leaked, holding.uncounted) == (leaked * NANO, uncounted * NANO)
    assert holding.busy is (before != after)


@pytest.mark.parametrize(
    ("first", "second", "leaked", "busy"),
    [("7", "7", 4, False), ("7", "5", 2, True), ("5", "7", 2, True), ("3", "7", 0, True), ("7", "3", 0, True)],
)
def test_only_what_is_seen_twice_is_a_leak(first: str, second: str, leaked: int, busy: bool) -> None:
    """A create in flight is charged before it is stored; the second reading no longer shows it as a leak."""
    reports = [report(pod("a", 3), used={"requests.cpu": used}) for used in (second, first)]
    holding = only(confirmed(*reports))

    assert (holding.leaked, holding.overdue, holding.busy) == (leaked * NANO, 0, busy)


def test_a_quota_created_between_two_readings_is_reported_as_read() -> None:
    """There is no first reading to compare it with."""
    second = report(pod("a", 3), used={"requests.cpu": "5"})
    first = attribute(Snapshot("team", [], [], []), NOW)

    assert only(confirmed(second, first)).leaked == 2 * NANO


@given(
    pods=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=12),
    owed=st.lists(st.integers(1, 9), max_size=3),
    used=st.integers(0, 200),
)
def test_the_parts_add_up_to_the_used_amount(pods: list[tuple[int, int]], owed: list[int], used: int) -> None:
    """Holders, overdue and leaked amounts add up to the use; what exceeds it is uncounted."""
    objects = [pod(f"p{index}", cpu, f"Job/j{owner}") for index, (owner, cpu) in enumerate(pods)]
    objects += [overdue(f"x{index}", cpu) for index, cpu in enumerate(owed)]
    holding = only(report(*objects, used={"requests.cpu": str(used)}))

    held = sum(each.amount for each in holding.holders)
    assert held == sum(cpu for _, cpu in pods) * NANO
    assert held + holding.overdue + holding.leaked - holding.uncounted == used * NANO
    assert holding.overdue <= sum(owed) * NANO
    assert not (holding.uncounted and holding.overdue + holding.leaked)


def test_nothing_is_claimed_about_kinds_that_cannot_be_listed() -> None:
    """Otherwise all their use would look like a leak."""
    found = report(used={"secrets": "4"}, unread={"secrets": "may not"})
    holding = only(found, "secrets")

    assert (holding.leaked, holding.overdue, holding.unread) == (0, 0, ("secrets",))
    assert found.wrong
    assert not found.excess


def test_a_quota_charges_the_objects_in_its_scopes() -> None:
    """BestEffort pods are in one quota, all others in the other."""
    objects = [pod("lazy", scopes={"BestEffort"}), pod("busy")]
    hard = {"pods": "9"}
    quotas = [quota(hard, {"pods": "1"}, scope, scopes=[scope]) for scope in ("BestEffort", "NotBestEffort")]
    found = attribute(Snapshot("team", quotas, objects, quotas), NOW)

    owners = {name: [each.owner for each in holding.holders] for name, holding in found.holdings}
    assert owners == {"BestEffort": ["Pod/lazy"], "NotBestEffort": ["Pod/busy"]}
    assert {each.name: each.scopes for each in found.quotas} == {name: (name,) for name in owners}


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        pytest.param(quota({"pods": "9"}, None), "not enforced yet", id="no status"),
        pytest.param(quota({"pods": "9"}, {"pods": "1"}, spec={"pods": "7"}), "was changed", id="edited"),
        pytest.param(quota({"pods": "9"}, {"pods": "1"}, scopes=["Novel"]), "'Novel'", id="unknown scope"),
        pytest.param(quota({}, {}), "limits no resource", id="empty"),
        pytest.param({"metadata": {"name": "q"}, "spec": 3}, "are unknown", id="malformed"),
        pytest.param({}, "limits no resource", id="nothing"),
    ],
)
def test_problems_of_a_quota_are_reported(broken: JSON, problem: str) -> None:
    """The other quotas are reported all the same."""
    sound = quota({"pods": "9"}, {"pods": "1"}, "sound")
    found = attribute(Snapshot("team", [broken, sound], [pod("a")], [broken, sound]), NOW)

    problems = {each.name: each.problem for each in found.quotas}
    assert problem in problems[broken.get("metadata", {}).get("name", "?")]
    assert problems["sound"] == ""
    assert found.wrong


def test_the_fullest_quotas_and_resources_come_first() -> None:
    """A limit of 0 of which nothing is used comes last: no create is known to ask for it."""
    quotas = [
        quota({"pods": "9", "services": "9"}, {"pods": "1", "services": "8"}, "a"),
        quota({"pods": "9", "secrets": "0"}, {"pods": "9", "secrets": "0"}, "b"),
    ]
    found = attribute(Snapshot("team", quotas, [pod("a")], quotas), NOW)

    order = [(name, holding.resource) for name, holding in found.holdings]
    assert order == [("b", "pods"), ("b", "secrets"), ("a", "services"), ("a", "pods")]
    assert [holding.full for _, holding in found.holdings] == [True, False, False, False]


def job(ending: Ending, made_end: datetime | None = None, *, finished: bool = False) -> Live:
    """Return a Job."""
    charged = Demand({"count/jobs.batch": NANO})
    return Live("jobs.batch", "j", "Job/j", NOW, charged, {}, ending, ending, finished=finished, made_end=made_end)


SOON, LATER = NOW + timedelta(minutes=1), NOW + timedelta(minutes=9)


@pytest.mark.parametrize(
    ("resource", "of_pod", "of_job", "expected"),
    [
        pytest.param("requests.cpu", pod("x", 1, "Job/j"), job(OWNED, SOON), Ending(By.DEADLINE, SOON), id="deadline"),
        pytest.param(
            "requests.cpu",
            pod("x", 1, "Job/j", ending=Ending(By.DEADLINE, SOON)),
            job(OWNED, LATER),
            Ending(By.DEADLINE, SOON),
            id="the pod's own deadline is sooner",
        ),
        pytest.param("requests.cpu", pod("x", 1, "Job/other"), job(OWNED, SOON), OWNED, id="another Job"),
        pytest.param("count/pods", pod("x", 1, "Job/j"), job(OWNED, SOON), OWNED, id="a deadline does not end a count"),
        pytest.param(
            "count/pods",
            pod("x", 1, "Job/j", finished=True, ending=Ending(By.FINISHED)),
            job(Ending(By.TTL, SOON), finished=True),
            Ending(By.TTL, SOON),
            id="the TTL of the Job deletes its pods",
        ),
        pytest.param(
            "count/pods",
            pod("x", 1, "Job/j", finished=True, ending=Ending(By.FINISHED)),
            job(Ending(By.FINISHED), finished=True),
            Ending(By.FINISHED),
            id="nothing deletes them",
        ),
    ],
)
def test_a_jobs_ending_applies_to_its_pods(resource: str, of_pod: Live, of_job: Live, expected: Ending) -> None:
    """This holds if Jobs were listed, because a quota counts them."""
    found = report(of_pod, of_job, used={resource: "1", "count/jobs.batch": "1"})

    assert only(found, resource).holders[0].ending == expected


def test_a_holder_shows_which_part_of_its_charge_ends_first() -> None:
    """One of its pods has a deadline, the other must be scaled down."""
    objects = [pod("a", 2, "ReplicaSet/r"), pod("b", 3, "ReplicaSet/r", ending=Ending(By.DEADLINE, SOON))]
    (holder,) = only(report(*objects, used={"requests.cpu": "5"})).holders

    assert (holder.ending, holder.ends, holder.amount) == (Ending(By.DEADLINE, SOON), 3 * NANO, 5 * NANO)


def test_only_the_kinds_that_a_quota_charges_are_listed() -> None:
    """Jobs come first, because they explain their pods."""
    quotas = [quota({"requests.cpu": "1", "count/jobs.batch": "1"}, {}), quota({"services": "1", "x.y/z": "1"}, None)]

    assert charged_kinds(quotas) == ["jobs.batch", "pods", "services"]
    assert charged_kinds([{"spec": 3, "status": None}]) == []
