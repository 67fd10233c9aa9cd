"""A watch that ends, breaks, expires or finds no server is resumed or listed again: gently, and missing nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.k8s.kube.answers.bounded_json import Trim
from backoff_ctrl.k8s.kube.watching.objects import WatchBrokenError
from backoff_ctrl.k8s.kube.watching.status import WatchState
from tests.kit.virtual_tests import in_virtual_time
from tests.kit.watch_script import ScriptedServer, elapse, observed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from backoff_ctrl.k8s.kube.watching.objects import WatchedKind


@in_virtual_time
async def test_a_stream_that_ends_normally_is_resumed_where_it_ended() -> None:
    """No second list, no loss reported, and changes between the two streams are not missed."""
    server = ScriptedServer()
    server.quota(hard="2")
    async with observed(server) as seen:
        await elapse(30)
        server.quota(hard="3")
        server.end()
        server.quota(hard="5")
        await elapse(1)

        assert seen.ledger.left() == 5
        assert server.count("list") == 1
        assert [ask.version for ask in server.asked if (ask.what, ask.plural) == ("watch", "resourcequotas")] == [
            "101",
            "102",
        ]
        assert "lost team" not in seen.ledger.news
        assert seen.record.counts.resumed == 1


@in_virtual_time
async def test_a_quiet_watch_is_resumed_from_its_bookmark() -> None:
    """For an hour no quota changes while the server's history is compacted: a bookmark keeps the watch resumable."""
    server = ScriptedServer()
    server.quota()
    async with observed(server) as seen:
        server.version = 5000
        server.bookmark()
        await elapse(3600)
        server.forget_history()
        server.end()
        await elapse(1)

        assert [ask.version for ask in server.asked if (ask.what, ask.plural) == ("watch", "resourcequotas")] == [
            "101",
            "5000",
        ]
        assert seen.record.counts.expired == 0
        assert server.count("list") == 1


@pytest.mark.parametrize("as_answer", [True, False], ids=["http-410", "error-event"])
@in_virtual_time
async def test_a_version_that_expires_between_two_streams_is_counted_and_listed_again(*, as_answer: bool) -> None:
    """The stream had ended normally, so the watch first tried to resume: the list shows changes and deletions."""
    server = ScriptedServer()
    server.gone_as_answer = as_answer
    server.quota("old")
    server.quota(hard="2")
    async with observed(server) as seen:
        await elapse(30)
        server.end()
        server.remove("resourcequotas", "team", "old")
        server.quota(hard="4")
        server.forget_history()
        await elapse(2)

        assert seen.record.counts.expired == 1
        assert server.count("list") == 2
        assert (seen.ledger.left(), seen.ledger.left("old")) == (4, None)
        assert "team/old is gone" in seen.ledger.news
        assert seen.ledger.observes()


@in_virtual_time
async def test_a_broken_stream_is_reported_and_followed_by_a_list() -> None:
    """The engine is notified of the loss at once, and of the recovery after a complete list."""
    server = ScriptedServer()
    server.quota()
    async with observed(server) as seen:
        await elapse(60)
        server.cut()
        await elapse(0.2)

        assert seen.ledger.news == ["team/q", "watching team", "lost team", "team/q", "watching team"]
        assert seen.record.counts.reconnects == 1


@pytest.mark.parametrize("items", ["absent", {"metadata": {}}, "text"])
@in_virtual_time
async def test_a_malformed_list_is_not_taken_for_an_empty_one(items: Any) -> None:
    """Such as a single quota, or a proxy's page: known quotas stay, and the watch counts as lost."""

    class Odd(ScriptedServer):
        odd = False

        async def pages(
            self, kind: WatchedKind, namespace: str | None, trim: Trim | None = None
        ) -> AsyncGenerator[Mapping[str, Any], None]:
            async for page in super().pages(kind, namespace, trim):
                without = {"metadata": page["metadata"]}
                yield page if not self.odd else without if items == "absent" else {**without, "items": items}

    server = Odd()
    server.quota()
    async with observed(server) as seen:
        await elapse(60)
        assert seen.ledger.observes()
        server.odd = True
        server.cut()
        await elapse(60)
        assert not seen.ledger.observes()
        assert "gone team/q" not in seen.ledger.news
        server.odd = False
        await elapse(60)
        assert seen.ledger.observes()


@in_virtual_time
async def test_an_unreachable_server_is_tried_ever_more_rarely_and_found_again() -> None:
    """An hour of outage costs a bounded number of requests; afterwards everything is watched as before."""
    server = ScriptedServer()
    server.quota()
    async with observed(server, longest_pause=30) as seen:
        server.down = True
        server.cut()
        server.cut(plural="pods")
        await elapse(3600)
        asked = server.times("list")
        away = seen.record.of("team")
        server.down = False
        await elapse(30)

        assert 3600 / 30 < len(asked) < 3600 / 30 * 4
        assert away is not None
        assert away.state is WatchState.LEARNING
        assert "connection refused" in away.why
        assert away.since < 1
        assert seen.ledger.observes()
        assert seen.ledger.left() == 2


@in_virtual_time
async def test_many_watches_do_not_reconnect_at_the_same_moment() -> None:
    """After a minute's outage the attempts of 50 namespaces are spread over the pause."""
    server = ScriptedServer()
    names = tuple(f"n{number}" for number in range(50))
    async with observed(server, names, longest_pause=30):
        server.down = True
        server.cut()
        await elapse(120)
        late = [ask.at for ask in server.asked if ask.what == "list" and ask.at > 60]

        assert max(sum(1 for other in late if at <= other < at + 1) for at in late) < 20


@in_virtual_time
async def test_a_server_that_ends_every_stream_at_once_is_not_hammered() -> None:
    """Even if they end normally: the pauses grow as after failures."""
    server = ScriptedServer()

    async def end_all() -> None:
        while True:
            server.end()
            await elapse(0.05)

    async with observed(server, longest_pause=10):
        ending = asyncio.ensure_future(end_all())
        await elapse(600)
        ending.cancel()

        assert server.count("watch") < 300


@in_virtual_time
async def test_the_servers_retry_after_is_respected() -> None:
    """Retry-After 20: the next request follows after 20 s and a little jitter."""
    server = ScriptedServer()
    async with observed(server):
        await elapse(30)
        server.cut(WatchBrokenError("429: too many requests", 20))
        await elapse(60)
        first, second = server.times("list")

        assert 50 <= second < 50.2
        assert first == 0


@in_virtual_time
async def test_a_short_interruption_is_not_logged_and_a_lasting_one_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line when the watch is lost, one when it is back."""
    caplog.set_level(logging.INFO, logger="backoff_ctrl.k8s")
    server = ScriptedServer()
    async with observed(server):
        for _ in range(20):
            await elapse(60)
            server.cut()
        await elapse(60)
        assert not caplog.records

        server.down = True
        server.cut()
        server.cut(plural="pods")
        await elapse(600)
        server.down = False
        await elapse(60)

    lost, back = (record.getMessage() for record in caplog.records)
    assert lost.startswith("cannot watch quotas of namespace team (connection re")
    assert lost.endswith("; learning from refusals instead")
    assert back == "watching quotas of namespace team"


@in_virtual_time
async def test_a_long_list_comes_in_pages_and_is_compared_as_a_whole() -> None:
    """21 quotas in pages of 5: none is taken for deleted while further pages are still to come."""
    server = ScriptedServer()
    server.pages_of = 5
    for number in range(21):
        server.quota(f"q{number}")
    async with observed(server) as seen:
        await elapse(30)
        server.cut()
        server.remove("resourcequotas", "team", "q7")
        await elapse(2)

        assert [each for each in seen.ledger.news if each.endswith("gone")] == ["team/q7 is gone"]
        assert seen.record.counts.relists == 3  # one of them of pods
