"""A full quota, with real pods that take room and give it back."""

from __future__ import annotations

import pytest

from tests.node.objects import creator, limited, pod, used, waits
from tests.node.user import User

pytestmark = [pytest.mark.node, pytest.mark.timeout(600), pytest.mark.usefixtures("release")]


def test_a_create_waits_longer_than_half_a_minute(user: User, namespace: str) -> None:
    """The README's creator waits for 45 s until a pod ends, and then creates its pod."""
    limited(user, namespace, 2)
    user.apply(pod("holder", namespace, "sleep 45"), creator("creator", namespace, "step"))
    user.until_phase("Running", "creator", namespace)
    user.until("the create to wait", lambda: waits(user, namespace, "creator"))
    assert used(user, namespace) == 2
    user.until_phase("Succeeded", "creator", namespace)
    user.until_phase("Succeeded", "step", namespace)
    holder = user.find("pod", "holder", namespace)
    step = user.find("pod", "step", namespace)
    assert holder
    assert step
    ended = holder["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    assert ended <= step["metadata"]["creationTimestamp"]
    assert "created" in user.kubectl("logs", "creator", f"--namespace={namespace}", "--container=creator")


def test_a_pod_without_policies_is_scraped(user: User, namespace: str) -> None:
    """A pod of another namespace reads a sidecar's metrics by its address."""
    limited(user, namespace, 1)
    user.apply(creator("creator", namespace, "step"))
    user.until_phase("Running", "creator", namespace)
    found = user.until("the pod's address", lambda: user.find("pod", "creator", namespace))
    request = r"GET /metrics HTTP/1.1\r\nHost: gate\r\n\r\n"
    user.apply(pod("scraper", "default", f"(printf '{request}'; sleep 5) | nc -w 20 {found['status']['podIP']} 9096"))
    user.until_phase("Succeeded", "scraper")
    assert "backoff_ctrl_proxy_requests_total" in user.kubectl("logs", "scraper")
    user.kubectl("delete", "pod", "scraper", "--now")
