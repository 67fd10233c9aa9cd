"""``backoff-ctrl holders``: a page of at most 100 columns, with a last line that names the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.kube.charges.attribution import Snapshot, attribute
from backoff_ctrl.k8s.kube.charges.live import live
from backoff_ctrl.k8s.status.holders_page import document, page
from tests.holding.objects import JSON, NOW, at, pod, quota

if TYPE_CHECKING:
    from backoff_ctrl.k8s.kube.charges.attribution import Report


def report(*pods: JSON, unread: dict[str, str] | None = None, malformed: int = 0, **amounts: tuple[str, str]) -> Report:
    """Return the report on these pods and one quota, whose amounts are ``used, hard`` by resource."""
    names = {"cpu": "requests.cpu", "count": "count/pods"}
    hard = {names.get(name, name): limit for name, (_, limit) in amounts.items()}
    used = {names.get(name, name): use for name, (use, _) in amounts.items()}
    objects = [live("pods", each, NOW) for each in pods]
    quotas = [quota(hard, used)]
    return attribute(Snapshot("team", quotas, objects, quotas, unread or {}, malformed), NOW)


def last_line(found: Report) -> str:
    """Return the last sentence, on one line."""
    return " ".join(page(found).split("\n\n")[-1].split())


LATE: JSON = {"deletionTimestamp": at(-600), "deletionGracePeriodSeconds": 30}
DYING: JSON = {"deletionTimestamp": at(-70), "deletionGracePeriodSeconds": 900}
WEB = [pod(f"w{number}", "ReplicaSet/web-7d4b9c") for number in range(3)]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        pytest.param(
            report(*WEB, cpu=("3", "4"), pods=("3", "9")),
            "No quota is full, no deletion is stuck and no charge is leaked; the fullest resource is requests.cpu of "
            "compute at 75%. What asks for more than is left waits: backoff-ctrl waiting shows it, and jobs list what "
            "is suspended.",
            id="nothing",
        ),
        pytest.param(
            report(*WEB, pod("x", "Job/train", cpu="500m"), cpu=("3500m", "3500m"), pods=("4", "9")),
            "Next: requests.cpu of compute is full; scale down or delete its largest holder, ReplicaSet/web-7d4b9c "
            "(or its Deployment, if it has one), which holds 3 (85%), or ask for a larger limit.",
            id="largest",
        ),
        pytest.param(
            report(pod("x", "Job/train"), cpu=("1", "1"), pods=("1", "1")),
            "Next: pods of compute is full; stop or delete its largest holder, Job/train, which holds 1 (100%), or "
            "ask for a larger limit (1 other resource is full, too).",
            id="two full",
        ),
        pytest.param(
            report(*WEB, pod("x", deadline=60, status={"startTime": at(0)}), cpu=("4", "4")),
            "Next: requests.cpu of compute is full; wait up to 60s until Pod/x frees 1, or scale down",
            id="wait",
        ),
        pytest.param(
            report(pod("x"), cpu=("4", "4")),
            "Next: 3 of requests.cpu of compute is charged but used by no object: it is released when the next",
            id="leak, full",
        ),
        pytest.param(
            report(pod("x"), cpu=("1", "1"), pods=("2", "2")),
            "Next: 1 of pods of compute is charged but used by no object",
            id="the leak first of two full resources",
        ),
        pytest.param(
            report(pod("x"), cpu=("4", "5"), pods=("2", "5")),
            "No quota is full, but 3 of requests.cpu of compute is charged but used by no object (as are amounts of 1 "
            "other resource)",
            id="leak, room",
        ),
        pytest.param(
            report(pod("x", **LATE), cpu=("1", "1"), count=("1", "9")),
            "Next: 1 of requests.cpu of compute is charged but used by no object: it is released when the next",
            id="overdue",
        ),
        pytest.param(
            report(pod("x", **LATE), count=("1", "1")),
            "Next: count/pods of compute is full; pod x should have been deleted 10m ago: check its node (kubectl get "
            "node n1); if the node is dead, run kubectl -n team delete pod x --grace-period=0 --force.",
            id="node is gone",
        ),
        pytest.param(
            report(pod("x", finalizers=["a/b"], **DYING), pods=("1", "1")),
            "Next: pods of compute is full; pod x should have been deleted 70s ago: the controller that set its "
            "finalizer a/b must remove it.",
            id="finalizer",
        ),
        pytest.param(
            report(pod("x", **LATE), count=("1", "9")),
            "No quota is full, but pod x should have been deleted 10m ago: check its node",
            id="stuck, room",
        ),
        pytest.param(
            report(
                *(pod(f"d{n}", "Job/j", status={"phase": "Succeeded"}) for n in range(3)), pod("x"), count=("4", "4")
            ),
            "Next: count/pods of compute is full; 3 of the counted objects have finished, 3 of them owned by Job/j: "
            "delete them (kubectl -n team delete pods --field-selector=status.phase=Succeeded, then =Failed).",
            id="finished",
        ),
        pytest.param(
            report(cpu=("0", "0")),
            "No quota is full, no deletion is stuck and no charge is leaked; a limit of 0 allows no "
            "requests.cpu of compute.",
            id="forbidden",
        ),
        pytest.param(
            report(pod("x", deletionTimestamp=at(-5), deletionGracePeriodSeconds=30), pods=("1", "4")),
            "No quota is full; the deletion of 1 pod is overdue, which is normal for up to a minute; the fullest ",
            id="just late",
        ),
        pytest.param(
            report(malformed=2, pods=("0", "4")),
            "No quota is full; 2 objects could not be read; the fullest resource is pods of compute at 0%.",
            id="malformed",
        ),
        pytest.param(
            report(pods=("?", "4")), "No quota is full; the server has not counted pods of compute.", id="not counted"
        ),
        pytest.param(
            report(secrets=("4", "4"), unread={"secrets": "may not"}),
            "Next: secrets of compute is full, and its holders are unknown because secrets cannot be listed: ask for a "
            "larger limit.",
            id="unread, full",
        ),
        pytest.param(
            report(secrets=("1", "4"), unread={"secrets": "may not"}),
            "No quota is full; the holders of secrets are unknown; the fullest resource is secrets of compute at 25%.",
            id="unread, room",
        ),
    ],
)
def test_the_last_line_names_the_best_next_step(found: Report, sentence: str) -> None:
    """Excess charge first, then dead pods, then charge that ends soon, then the largest holder; or that all is well."""
    assert last_line(found).startswith(sentence)
    assert document(found)["next"].startswith(sentence)
    assert document(found)["ok"] is sentence.startswith(
        "No quota is full, no deletion is stuck and no charge is leaked"
    )


ROOM = report(*WEB, cpu=("3", "4"), pods=("3", "9"))
LEAK = report(pod("x"), cpu=("4", "5"), pods=("2", "5"))
LATELY = report(pod("x", deletionTimestamp=at(-5), deletionGracePeriodSeconds=30), pods=("1", "4"))


@pytest.mark.parametrize("found", [ROOM, LEAK, LATELY], ids=["room", "leak", "late"])
@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        (None, "What asks for more than is left waits: backoff-ctrl waiting shows it"),
        (1, "Still 1 create waits, for more than is left or for another reason"),
        (4, "Still 4 creates wait, for more than is left or for another reason"),
    ],
)
def test_nothing_is_called_well_while_creates_wait_or_may_wait(found: Report, waiting: int | None, said: str) -> None:
    """A quota that is not full may have too little left: only with the gates' word that nothing waits all is well."""
    told = document(found, waiting)
    assert said in told["next"]
    assert "Nothing is wrong" not in told["next"]
    assert not (waiting and told["ok"])


def test_all_is_well_where_nothing_waits() -> None:
    told = document(ROOM, 0)
    assert told["next"] == (
        "Nothing is wrong: no quota is full, no deletion is stuck, no charge is leaked and nothing waits; the fullest "
        "resource is requests.cpu of compute at 75%."
    )
    assert told["ok"] is True
    assert "Nothing is wrong" not in document(LEAK, 0)["next"]


def test_the_page_shows_who_holds_what() -> None:
    """Holders are sorted by amount, with their share of the used amount and what frees it."""
    train = pod("t", "Job/train", cpu="4", deadline=3600, status={"startTime": at(-1800)})
    lines = page(report(*WEB, train, cpu=("8", "8"), pods=("4", "20"))).splitlines()

    assert lines == [
        "namespace team at 2026-11-21 14:00:00 UTC",
        "",
        "quota compute",
        "  requests.cpu: 8 of 8 used (100%): FULL",
        "    holder                             objects       held  share oldest  what frees it",
        "    Job/train                                1          4    50%   120m  deadline in 30m",
        "    ReplicaSet/web-7d4b9c                    3          3    37%   120m  scale down or delete it",
        "    (leaked: held by no object)                         1    12%         next release, or ≤ 5 min",
        "  pods: 4 of 20 used (20%)",
        "    holder                             objects       held  share oldest  what frees it",
        "    ReplicaSet/web-7d4b9c                    3          3    75%   120m  scale down or delete it",
        "    Job/train                                1          1    25%   120m  deadline in 30m",
        "",
        "Next: 1 of requests.cpu of compute is charged but used by no object: it is released when the next",
        "object of that kind ends or is deleted in the namespace, at the latest at the quota controller's",
        "next recount within 5 minutes.",
    ]


def test_the_page_shows_what_is_stuck() -> None:
    """Since when, how long it is still charged, and what it waits for."""
    found = report(pod("x", "Job/j", **LATE), pod("y", finalizers=["a/b"], **DYING), count=("2", "9"))
    text = page(found)

    assert "pods stuck in deletion: 2" in text
    assert "    x of Job/j                                           10m count only  node n1" in text
    assert "    y                                                    70s   13m more  finalizer a/b" in text


def test_a_large_namespace_fits_the_page() -> None:
    """Ten holders of a full resource and three of another one; the rest is one row. No row is longer than 100
    characters, however long the names are. --json has all holders."""
    long = "a-very-long-name-that-a-user-chose-for-their-pods-with-a-hash-at-its-end-"
    pods = [pod(f"{long}{number:03}", cpu="1") for number in range(200)]
    found = report(*pods, pod("x" * 200, **LATE, finalizers=["y" * 200]), cpu=("200", "200"), pods=("200", "900"))
    lines = page(found).splitlines()

    assert max(map(len, lines)) == 100
    assert sum(line.startswith("    Pod/a-very") for line in lines) == 13
    assert [line.split()[0] for line in lines if "more" in line] == ["190", "197"]
    assert any("…its-end-007 " in line for line in lines)
    assert len(document(found)["quotas"][0]["resources"][0]["holders"]) == 200


def test_names_print_no_control_characters() -> None:
    """Owner names come from whoever creates objects."""
    assert "\x1b" not in page(report(pod("x", "Job/\x1b[2J"), cpu=("1", "1")))
    assert "\x1b" not in document(report(pod("x", "Job/\x1b[2J"), cpu=("1", "1")))["next"]


@pytest.mark.parametrize(
    ("amounts", "line"),
    [
        (("5", "4"), "requests.cpu: 5 of 4 used (125%): over its limit by 1"),
        (("0", "0"), "requests.cpu: 0 of 0 used: its limit allows none"),
        (("1", "0"), "requests.cpu: 1 of 0 used: over its limit by 1"),
        (("invalid", "4"), "requests.cpu: ? of 4 used: not counted by the quota controller yet"),
        (("1m", "1k"), "requests.cpu: 0.001 of 1,000 used (<1%)"),
        (("4999", "5k"), "requests.cpu: 4,999 of 5,000 used (99%)"),
    ],
)
def test_the_heading_of_a_resource_says_how_full_it_is(amounts: tuple[str, str], line: str) -> None:
    """Over its limit, forbidden, unknown, nearly empty and nearly full."""
    assert f"  {line}" in page(report(cpu=amounts)).splitlines()


def test_in_a_busy_namespace_a_leak_may_be_creates_in_flight() -> None:
    """If the use changed while the objects were listed, creates in flight look like a leak."""
    before, after = (quota({"pods": "9"}, {"pods": used}) for used in "34")
    found = attribute(Snapshot("team", [before], [live("pods", pod("x"), NOW)], [after]), NOW)

    assert "(leaked, or creates in flight)" in page(found)
    assert "within 5 minutes, unless it belongs to creates in flight." in last_line(found)


def test_objects_that_cannot_be_read_are_counted() -> None:
    """The page says so, because their charge is in no row and would look like a leak."""
    assert "2 objects could not be read" in page(report(malformed=2, cpu=("0", "1")))
