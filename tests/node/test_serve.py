"""The page of the chart through its Service, with the certificate that the chart made."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.node.objects import limited, pod
from tests.node.release import NAMESPACE
from tests.node.user import User

pytestmark = [pytest.mark.node, pytest.mark.timeout(600), pytest.mark.usefixtures("release")]
NAME = f"backoff-ctrl-serve.{NAMESPACE}.svc"


@pytest.fixture
def ask(user: User, tmp_path: Path) -> list[str]:
    """Return a command that asks the Service by its name, and trusts the chart's certificate alone."""
    secret = user.find("secret", "backoff-ctrl-serve-tls", NAMESPACE)
    service = user.find("service", "backoff-ctrl-serve", NAMESPACE)
    assert secret
    assert service
    authority = tmp_path / "ca.crt"
    authority.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    address = f"{NAME}:443:{service['spec']['clusterIP']}"
    return ["curl", "-sS", "--max-time", "20", "--cacert", str(authority), "--resolve", address]


def test_the_page_is_served(user: User, namespace: str, ask: list[str]) -> None:
    """`serve` answers through its Service: page, quotas for an account's token, and 401 without one."""
    limited(user, namespace, 2)
    user.apply(pod("holder", namespace, "sleep 600"))
    user.until_phase("Running", "holder", namespace)
    user.kubectl("create", "serviceaccount", "viewer", f"--namespace={namespace}")
    user.kubectl("create", "clusterrolebinding", f"viewer-{namespace}", "--clusterrole=view",
                 f"--serviceaccount={namespace}:viewer")  # fmt: skip
    token = user.kubectl("create", "token", "viewer", f"--namespace={namespace}").strip()
    allowed = [*ask, "-H", f"Authorization: Bearer {token}"]
    assert "<title>" in user.types([*ask, f"https://{NAME}/"])
    assert "200" in user.types([*allowed, "-o", "/dev/null", "-w", "%{http_code}", f"https://{NAME}/readyz"])
    assert user.types([*ask, "-o", "/dev/null", "-w", "%{http_code}", f"https://{NAME}/v1/ceilings"]) == "401"

    def quotas() -> list[object]:
        found = json.loads(user.types([*allowed, f"https://{NAME}/v1/ceilings?namespace={namespace}"]))
        return list(found["items"])

    assert user.until("the quota on the page", quotas)
    assert "# HELP" in user.types([*allowed, f"https://{NAME}/metrics"])
    words = ("exec", f"--namespace={NAMESPACE}", "deployment/backoff-ctrl-serve", "--", "backoff-ctrl", "doctor")
    user.kubectl(*words, "--for=serve")
    user.kubectl("delete", "clusterrolebinding", f"viewer-{namespace}")
