"""Jobs under a full quota, let in by the operator of the chart: their pods are real."""

from __future__ import annotations

import pytest

from tests.node.objects import job, limited
from tests.node.release import NAMESPACE
from tests.node.user import User

pytestmark = [pytest.mark.node, pytest.mark.timeout(900), pytest.mark.usefixtures("release")]
JOBS, PODS, ROOM = 6, 2, 4


def leader(user: User) -> str:
    lease = user.find("lease", "backoff-ctrl-operator", NAMESPACE)
    return str((lease or {}).get("spec", {}).get("holderIdentity") or "")


@pytest.mark.parametrize("how", ["left alone", "leader killed"])
def test_jobs_wait_in_line(user: User, namespace: str, how: str) -> None:
    """Six Jobs of two pods under a quota of four pods all end, and the Job controller is never refused a pod."""
    user.until("a leader", lambda: leader(user))
    limited(user, namespace, ROOM)
    user.apply(*(job(f"job-{number}", namespace, pods=PODS) for number in range(JOBS)))
    user.until("a Job to end", lambda: ended(user, namespace))
    if how == "leader killed":
        before = leader(user)
        name = before.rpartition("_")[0]
        user.kubectl("delete", "pod", name, f"--namespace={NAMESPACE}", "--force", "--grace-period=0")
        assert user.until("another leader", lambda: (now := leader(user)) != before and now)
    user.until("all Jobs to end", lambda: ended(user, namespace) == JOBS)
    events = user.all("events", namespace, "--field-selector=reason=FailedCreate")
    assert [each["message"] for each in events] == []


def ended(user: User, namespace: str) -> int:
    return sum(each["status"].get("succeeded", 0) >= PODS for each in user.all("jobs", namespace))
