"""The release of the chart that the parts after Helm's work with."""

from __future__ import annotations

from typing import Final

from tests.node.images import REPOSITORY
from tests.node.user import User

NAMESPACE: Final = "backoff-ctrl"
HERE: Final = ("backoff-ctrl", f"--namespace={NAMESPACE}")
CHART: Final = "./helm/backoff-ctrl"
IMAGE: Final = f"--set=image.repository={REPOSITORY}"
FEW: Final = ("--set=injection.replicas=1", "--set=webhooks.replicas=1")


def installed(user: User, *modes: str) -> None:
    """Have the chart with these modes besides injection, and two replicas of the operator."""
    enabled = [f"--set={each}.enabled=true" for each in modes]
    user.helm("upgrade", "--install", *HERE, CHART, "--create-namespace", "--wait", IMAGE, *FEW, *enabled)
