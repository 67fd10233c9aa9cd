"""A watch that ends, breaks, is forgotten or finds nobody: resumed or listed anew, never hammering, nothing missed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.k8s.replay.virtual_time import run_virtual
from backoff_ctrl.k8s.watching.reading import WatchBrokenError
from backoff_ctrl.k8s.watching.status import Seeing
from tests.watch_script import ScriptedServer, elapse, observed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from backoff_ctrl.k8s.watching.reading import Kind


def test_a_stream_that_ends_in_good_order_is_resumed_where_it_ended() -> None:
    """No second list, no loss told, and what happened between the streams is not missed."""

    async def main() -> None:
        server = ScriptedServer()
        server.quota(hard="2")
        async with observed(server) as seen:
            await elapse(30)
            server.quota(hard="3")
            server.end()
            server.quota(hard="5")
            await elapse(1)

            assert seen.desk.left() == 5
            assert server.count("list") == 1
            assert [ask.version for ask in server.asked if (ask.what, ask.plural) == ("watch", "resourcequotas")] == [
                "101",
                "102",
            ]
            assert "lost team" not in seen.desk.news
            assert seen.book.counts.resumed == 1

    run_virtual(main())


def test_a_quiet_watch_is_resumed_from_its_bookmark() -> None:
    """Nothing of ours happens for an hour while the server's history is forgotten: a bookmark keeps it resumable."""

    async def main() -> None:
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
            assert seen.book.counts.expired == 0
            assert server.count("list") == 1

    run_virtual(main())


@pytest.mark.parametrize("as_answer", [True, False], ids=["http-410", "error-event"])
def test_a_forgotten_version_ends_in_a_list(*, as_answer: bool) -> None:
    """410, as an answer or as an event: the list has what was missed, and the deletions too."""

    async def main() -> None:
        server = ScriptedServer()
        server.gone_as_answer = as_answer
        server.quota("old")
        server.quota("kept", hard="2")
        async with observed(server) as seen:
            await elapse(30)
            server.cut()
            server.remove("resourcequotas", "team", "old")
            server.quota("kept", hard="7")
            server.forget_history()
            await elapse(1)

            assert seen.desk.left("kept") == 7
            assert seen.desk.left("old") is None
            assert "team/old is gone" in seen.desk.news
            assert seen.book.of("team") is not None

    run_virtual(main())


@pytest.mark.parametrize("as_answer", [True, False], ids=["http-410", "error-event"])
def test_a_version_forgotten_between_two_streams_is_counted_and_listed_anew(*, as_answer: bool) -> None:
    """The stream had ended in good order, so that it was resumed, in vain."""

    async def main() -> None:
        server = ScriptedServer()
        server.gone_as_answer = as_answer
        server.quota(hard="2")
        async with observed(server) as seen:
            await elapse(30)
            server.end()
            server.quota(hard="3")
            server.quota(hard="4")
            server.forget_history()
            await elapse(2)

            assert seen.book.counts.expired == 1
            assert server.count("list") == 2
            assert seen.desk.left() == 4
            assert seen.desk.observes()

    run_virtual(main())


def test_a_cut_stream_is_told_and_ends_in_a_list() -> None:
    """The engine hears of the loss at once, and of the recovery after a complete list."""

    async def main() -> None:
        server = ScriptedServer()
        server.quota()
        async with observed(server) as seen:
            await elapse(60)
            server.cut()
            await elapse(0.2)

            assert seen.desk.news == ["team/q", "watching team", "lost team", "team/q", "watching team"]
            assert seen.book.counts.reconnects == 1

    run_virtual(main())


@pytest.mark.parametrize("items", ["absent", {"metadata": {}}, "text"])
def test_what_is_no_list_of_quotas_is_no_empty_one(items: Any) -> None:
    """A quota that answers in a list's place, or whatever a proxy says: what is known stays, and is doubted."""

    class Odd(ScriptedServer):
        odd = False

        async def pages(self, kind: Kind, namespace: str | None) -> AsyncIterator[Mapping[str, Any]]:
            async for page in super().pages(kind, namespace):
                without = {"metadata": page["metadata"]}
                yield page if not self.odd else without if items == "absent" else {**without, "items": items}

    async def main() -> None:
        server = Odd()
        server.quota()
        async with observed(server) as seen:
            await elapse(60)
            assert seen.desk.observes()
            server.odd = True
            server.cut()
            await elapse(60)
            assert not seen.desk.observes()
            assert "gone team/q" not in seen.desk.news
            server.odd = False
            await elapse(60)
            assert seen.desk.observes()

    run_virtual(main())


def test_a_server_that_is_away_is_asked_ever_more_rarely_and_found_again() -> None:
    """An hour of outage costs a bounded number of requests; then all is as before."""

    async def main() -> None:
        server = ScriptedServer()
        server.quota()
        async with observed(server, longest_pause=30) as seen:
            server.down = True
            server.cut()
            server.cut(plural="pods")
            await elapse(3600)
            asked = server.times("list")
            away = seen.book.of("team")
            server.down = False
            await elapse(30)

            assert 3600 / 30 < len(asked) < 3600 / 30 * 4
            assert away is not None
            assert away.state is Seeing.LEARNING
            assert "connection refused" in away.why
            assert away.since < 1
            assert seen.desk.observes()
            assert seen.desk.left() == 2

    run_virtual(main())


def test_many_watches_do_not_come_back_at_one_moment() -> None:
    """Attempts of 50 namespaces after a minute away are spread over the pause: no herd."""

    async def main() -> None:
        server = ScriptedServer()
        names = tuple(f"n{number}" for number in range(50))
        async with observed(server, names, longest_pause=30):
            server.down = True
            server.cut()
            await elapse(120)
            late = [ask.at for ask in server.asked if ask.what == "list" and ask.at > 60]

            assert max(sum(1 for other in late if at <= other < at + 1) for at in late) < 20

    run_virtual(main())


def test_a_server_that_ends_every_stream_at_once_is_not_hammered() -> None:
    """However orderly: waits grow as they do after failures."""

    async def main() -> None:
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

    run_virtual(main())


def test_a_server_that_asks_for_patience_is_given_it() -> None:
    """Retry-After 20: no request before that, and a little jitter after it."""

    async def main() -> None:
        server = ScriptedServer()
        async with observed(server):
            await elapse(30)
            server.cut(WatchBrokenError("429: too many requests", 20))
            await elapse(60)
            first, second = server.times("list")

            assert 50 <= second < 50.2
            assert first == 0

    run_virtual(main())


def test_a_break_that_is_over_at_once_is_not_logged_and_a_lasting_one_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line when it is lost, one when it is back."""
    caplog.set_level(logging.INFO, logger="backoff_ctrl.k8s")

    async def main() -> None:
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

    run_virtual(main())

    lost, back = (record.getMessage() for record in caplog.records)
    assert lost.startswith("quotas of namespace team are not watched (connection re")
    assert lost.endswith("the gate learns from refusals instead")
    assert back == "quotas of namespace team are watched"


def test_a_long_list_comes_in_pages_and_is_compared_as_a_whole() -> None:
    """21 quotas in pages of 5: none of them is taken for gone while the other pages come."""

    async def main() -> None:
        server = ScriptedServer()
        server.pages_of = 5
        for number in range(21):
            server.quota(f"q{number}")
        async with observed(server) as seen:
            await elapse(30)
            server.cut()
            server.remove("resourcequotas", "team", "q7")
            await elapse(2)

            assert [each for each in seen.desk.news if each.endswith("gone")] == ["team/q7 is gone"]
            assert seen.book.counts.relists == 3  # one of them of pods

    run_virtual(main())
