"""The README's commands on an empty cluster, typed as they stand there; the registry has what the first one pushes."""

from __future__ import annotations

import pytest

from tests.cluster.shipping.readme_commands import commands
from tests.node.user import User

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


def test_its_commands_lead_to_a_gated_create(user: User) -> None:
    """The README's commands lead to a pod that a gated create has made."""
    _, *rest = commands()
    for each in rest:
        user.types(each)
    user.until_phase("Succeeded", "creator")
    step = user.find("pod", "step")
    assert step
    assert "backoff-ctrl.dev/create-id" in step["metadata"]["annotations"]
    (quota,) = user.all("resourcequota", "default")
    assert quota["status"]["used"] == {"pods": "1"}  # the creator has ended
    user.kubectl("delete", "pod", "creator", "step", "--now")
    user.kubectl("delete", "quota/team", "rolebinding/creator")
