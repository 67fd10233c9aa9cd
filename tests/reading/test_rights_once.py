"""Each right is checked and listed once, with all that does not work without it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from backoff_ctrl.k8s.kube.cluster.rights import CREATOR, GATEWAY, OwnRights, Right, injection, operator, page, webhooks
from backoff_ctrl.k8s.workloads.admitting.kinds import KINDS

OWN = {"namespace": "gates", "kept": "certificates", "webhook": "hooks"}
RESOURCES = [each.resource for each in KINDS]
TWICE = ["team", "team", "other"]


@pytest.mark.parametrize(
    "rights",
    [
        CREATOR,
        GATEWAY,
        injection(OWN),
        webhooks(OWN, RESOURCES),
        webhooks(None, [*RESOURCES, "jobs.batch"]),
        operator("lease", "gates", (), RESOURCES),
        operator("lease", "gates", TWICE, [*RESOURCES, *RESOURCES]),
        page(TWICE, TWICE),
        page(["team"], ["team"]),
    ],
)
def test_no_right_is_listed_twice(rights: Sequence[Right]) -> None:
    """Two versions of a kind are one right, and so is what two needs ask for."""
    asked = [(each.verb, each.group, each.resource, each.name, each.namespace) for each in rights]
    assert len(asked) == len(set(asked))


def test_one_right_says_all_that_needs_it() -> None:
    (both,) = [each for each in page(["team"], ["team"]) if (each.verb, each.resource) == ("list", "pods")]
    assert "holders" in both.without
    assert "no gates are found there" in both.without


async def test_a_namespace_that_is_named_twice_is_asked_about_once() -> None:
    """``--check-rights team --check-rights team``."""
    asked = []

    async def ask(review: object) -> tuple[int, bytes]:
        asked.append(review)
        return 201, b'{"status": {"allowed": false}}'

    rights = OwnRights(ask, [Right("list", "pods", "no")], ["team", "team"])
    await rights.ask()
    assert (len(asked), len(rights.lacking)) == (1, 1)
