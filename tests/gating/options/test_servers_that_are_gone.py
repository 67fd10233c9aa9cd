"""A server that never answered is the caller's error at once; one that has answered may be starting again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.k8s.answers.answer import Answer, NotSent, status_answer
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.replay.virtual_time import run_virtual

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Gone:
    """A transport that reaches no server from its so-manieth call on."""

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.calls = 0

    def call(self, answer: Answer) -> Answer:
        self.calls += 1
        if self.calls > self.answers:
            raise NotSent("refused")
        return answer

    async def send(self, body: dict[str, Any]) -> Answer:
        return self.call(Answer(201, {}, json.dumps(body).encode()))

    async def look_up(self, name: str) -> Answer:
        return self.call(status_answer(404, "NotFound", "not found", {}))

    async def list_quotas(self) -> Answer:
        return self.call(Answer(200, {}, b'{"items":[]}'))


def creation(**options: Any) -> Creation:
    body = {"kind": "Pod", "metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}}
    return Creation("s", "me", "team", "pods", body, **options)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_server_that_never_answered_is_not_waited_for(key: str | None) -> None:
    """The client's own retries are the patience, as without the gate."""
    server = Gone(0)
    with pytest.raises(NotSent):
        run_virtual(_create(AsyncGate(), server, key))
    assert server.calls == 1


@pytest.mark.parametrize(("key", "calls"), [(None, 1 + 7), ("k", 2 + 6)])
def test_a_server_that_answered_before_is_tried_again(key: str | None, calls: int) -> None:
    """API servers restart; but nobody waits for ever."""
    server = Gone(1 if key is None else 2)

    async def twice() -> None:
        gate = AsyncGate()
        assert (await gate.create(creation(key=key and "first"), server)).ok
        with pytest.raises(NotSent):
            await gate.create(creation(key=key), server)

    run_virtual(twice())
    assert server.calls == calls


def _create(gate: AsyncGate, server: Gone, key: str | None) -> Coroutine[Any, Any, Answer]:
    return gate.create(creation(key=key), server)
