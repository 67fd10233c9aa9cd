"""A server that never answered is the caller's error at once; one that has answered may be starting again."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.kube.answers.answer import Answer, NotSent
from tests.kit.transports import ABSENT, creation, stored
from tests.kit.virtual_tests import in_virtual_time


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
        return self.call(stored(body))

    async def look_up(self, name: str) -> Answer:
        return self.call(ABSENT)

    async def list_quotas(self) -> Answer:
        return self.call(Answer(200, {}, b'{"items":[]}'))


@pytest.mark.parametrize(("answered", "key", "calls"), [(0, None, 1), (0, "k", 1), (1, None, 1 + 7), (2, "k", 2 + 6)])
@in_virtual_time
async def test_only_a_server_that_answered_before_is_tried_again(answered: int, key: str | None, calls: int) -> None:
    """API servers restart, but nobody waits for ever; else the client's own retries are the patience."""
    gate, server = AsyncGate(), Gone(answered)
    if answered:
        assert (await gate.create(creation(key=key and "first"), server)).ok
    with pytest.raises(NotSent):
        await gate.create(creation(key=key), server)
    assert server.calls == calls
