"""All that can go wrong at once: each create is stored once, or its caller got an error, and nothing is left."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID
from tests.gating.storm.plans import ROW
from tests.gating.storm.process import Call, Told
from tests.gating.storm.run import Account, storm

CREATES = 400
"""``python -m tests.gating.storm.run`` has 50,000, over 20 seeds."""


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [pytest.param(0, id="observes", marks=pytest.mark.scheduled), pytest.param(1, id="learns")]
)
def test_a_storm_loses_and_doubles_nothing(seed: int) -> None:
    account = storm(seed, CREATES, forks=2, bugs=2)

    assert account.wrong == []
    assert account.told.waited > 0, "the quota is never full"
    assert account.told.bugs > 0, "no planted bug was met"
    assert "in" in account.errors
    assert account.errors.keys() & {"time limit", "CancelledError", "StoppedError"}, "nobody gave up, or was stopped"


def stored(row: str, name: str, create_id: str = "id") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {ROW: row}, "annotations": {CREATE_ID: create_id}}}


@pytest.mark.parametrize(
    ("call", "pods", "ids", "said"),
    [
        (Call("thread", ("r1",), "in", ["a"]), [stored("r1", "a")], ["id"], ""),
        (Call("thread", ("r1",), "HTTP 504"), [stored("r1", "a")], ["id"], ""),
        (Call("thread", ("r1",), "time limit"), [], [], ""),
        (Call("thread", ("r1",), "in", ["a"]), [stored("r1", "a"), stored("r1", "b")], ["id"], "stored 2 times"),
        (Call("thread", ("r1",), "in", ["a"]), [], ["id"], "is not stored"),
        (Call("thread", ("r1",), "in", ["a"]), [stored("r1", "b")], ["id"], "stored as b"),
        (Call("thread", ("r1",), "HTTP 504"), [stored("r1", "a", "other")], ["id"], "sent were"),
        (Call("thread", ("r1",), "time limit"), [stored("r1", "a")], [], "sent were"),
        (Call("thread", ("r1",)), [], [], "told nothing"),
        (Call("thread", ("r1",), "in", ["a"]), [stored("r1", "a"), stored("r2", "b")], ["id"], "nobody asked for it"),
    ],
)
def test_an_account_names_what_is_wrong(call: Call, pods: list[Any], ids: list[str], said: str) -> None:
    account = Account(0, Told([call], {"r1": ids}), pods, {"created": len(pods), "refused": 0}, [], 0.0)

    assert said in "\n".join(account.wrong)
    assert bool(account.wrong) is bool(said)
