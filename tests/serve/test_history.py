"""How ceilings went in the last 15 minutes: what changed, bounded, and drawn as it was."""

from __future__ import annotations

import pytest

from backoff_ctrl.api.status.gate import Hold
from backoff_ctrl.api.status.history import CEILINGS_MAX, HEIGHT, LASTS, POINTS_MAX, WIDTH, History, Point, chart
from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.runtime.host import RuntimeAlarms
from backoff_ctrl.k8s.status.serving import Service

ONE = 10**9


class Clock:
    """A time that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        """Return it."""
        return self.now


class Watched:
    """A ledger that quotas are reported to, and its past."""

    def __init__(self) -> None:
        """Nothing was reported yet."""
        self.clock, self.waiting = Clock(), 0
        self.told: list[tuple[tuple[str, str, str], int, int]] = []
        self.ledger = Ledger(RuntimeAlarms(), mode="off")
        source = Service().add(self.ledger, decides=False)
        self.history = History(source, self._holds, lambda: self.told, self.clock)

    def _holds(self, namespace: str) -> dict[tuple[str, str], Hold] | None:
        return {("q", "pods"): Hold(waiting=self.waiting)} if namespace == "team" else None

    def use(self, used: int, limited: int = 10, namespace: str = "team") -> None:
        """Report a quota."""
        amounts = ({"pods": limited * ONE}, {"pods": limited * ONE}, {"pods": used * ONE})
        self.ledger.observe_quota(namespace, "q", ObservedQuota(*amounts))

    def look(self, after: float = 5.0) -> None:
        """Let time go by, and look."""
        self.clock.now += after
        self.history.look()

    def points(self, namespace: str = "team") -> list[tuple[int, int, int]]:
        """Return what was seen: used, limited, waiting."""
        found, _ = self.history.of(namespace, "q", "pods")
        return [(each.used // ONE, each.limited // ONE, each.waiting) for each in found]


def test_each_change_is_a_point_and_nothing_else() -> None:
    """Of use, of the limit and of who waits."""
    watched = Watched()
    watched.use(3)
    for _ in range(3):
        watched.look()
    watched.waiting = 2
    watched.look()
    watched.use(4, 12)
    watched.look()
    assert watched.points() == [(3, 10, 0), (3, 10, 2), (4, 12, 2)]


def test_what_is_older_is_forgotten_but_for_what_was_so_at_the_beginning() -> None:
    """A ceiling that is gone is forgotten at once."""
    watched = Watched()
    for used in (1, 2, 3):
        watched.use(used)
        watched.look(LASTS / 2)
    watched.look(LASTS / 4)
    assert watched.points() == [(1, 10, 0), (2, 10, 0), (3, 10, 0)]
    watched.look(LASTS / 4)
    assert watched.points() == [(2, 10, 0), (3, 10, 0)]
    watched.told = [(("elsewhere", "q", "pods"), ONE, 2 * ONE)]
    watched.ledger.forget_quota("team", "q")
    watched.look()
    assert (watched.points(), watched.points("elsewhere")) == ([], [(1, 2, 0)])


def test_it_is_bounded() -> None:
    """Neither a ceiling that changes all the time nor many of them take more than that."""
    watched = Watched()
    for number in range(POINTS_MAX + 50):
        watched.use(number % 10)
        watched.look(0.1)
    assert len(watched.points()) == POINTS_MAX
    for number in range(CEILINGS_MAX + 10):
        watched.use(1, namespace=f"n{number}")
    watched.look()
    kept = sum(bool(watched.points(f"n{number}")) for number in range(CEILINGS_MAX + 10))
    assert kept == CEILINGS_MAX - 1  # and the first one


@pytest.mark.parametrize("waiting", [0, 4])
def test_it_is_drawn_as_it_was(waiting: int) -> None:
    """Steps over 15 minutes, to the present; the same scale for use and limit, another for who waits."""
    now = 5000.0
    points = [
        Point(now - 2 * LASTS, 2 * ONE, 8 * ONE, 0),
        Point(now - LASTS / 2, 8 * ONE, 8 * ONE, waiting // 2),
        Point(now - LASTS / 4, 8 * ONE, 4 * ONE, waiting),
    ]
    drawn = chart(points, now, lambda amount: str(amount // ONE))
    assert drawn is not None
    middle, later = f"{WIDTH / 2:.1f}", f"{WIDTH * 3 / 4:.1f}"
    assert drawn.used == (
        f"M0.0,{HEIGHT} L0.0,30.8 {middle},30.8 {middle},3.0 {later},3.0 {later},3.0 180.0,3.0 180.0,{HEIGHT} Z"
    )
    assert drawn.limited == f"M0.0,3.0 {middle},3.0 {middle},3.0 {later},3.0 {later},21.5 180.0,21.5"
    assert bool(drawn.waiting) == bool(waiting)
    assert drawn.said == "the last 15 minutes: 2 to 8 used of 4 to 8, " + ("0 to 4" if waiting else "0") + " waiting"
    assert chart([], now, str) is None
