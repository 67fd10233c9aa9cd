"""The webhook's server where its cluster, its files or our own code fail: it serves on, and says why not."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.api.webhooks.certificates import Installation
from backoff_ctrl.api.webhooks.server import InjectionSettings, Webhook, _again
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.sidecar.authority import new_authority
from backoff_ctrl.k8s.sidecar.certificates import CertificatesError, GivenCertificate, listener_context
from backoff_ctrl.k8s.sidecar.finding import find_upstream
from backoff_ctrl.k8s.sidecar.serving import own_rights
from backoff_ctrl.k8s.sidecar.upstream import ApiServer
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import scripted_server

if TYPE_CHECKING:
    from pathlib import Path

KEPT = InjectionSettings(("127.0.0.1", 0), installation=Installation("gates", "hook", "hook", "hook"))
NOW = datetime.now(UTC).replace(microsecond=0)
EXPIRY = "backoff_ctrl_injection_certificate_expiry_timestamp_seconds"


def pem() -> bytes:
    """Return a key with its certificate."""
    return new_authority(NOW).issue(["localhost"], NOW, timedelta(days=1)).pem


@pytest.mark.parametrize("answer", [{}, {"metadata": None}, {"data": [], "webhooks": [{}], "spec": "x"}])
async def test_answers_that_make_no_sense_are_said_and_tried_again(
    answer: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever stands before the API server."""
    with scripted_server(lambda _: (200, answer)) as script:
        async with ClusterSession(find_place(script.url, None, None, None).configuration) as session:
            webhook = Webhook(KEPT, session)
            await webhook.look()
            await webhook.look()
            await webhook.learn_version()
    assert webhook.why_not
    assert caplog.text.count("the webhook's certificates") == 1  # the same is said once


SAYS_NO, SAYS_YES = (201, {"status": {"allowed": False}}), (201, {"status": {"allowed": True}})


@pytest.mark.parametrize("who", ["webhook", "proxy"])
async def test_missing_rights_are_named_until_they_are_there(who: str, caplog: pytest.LogCaptureFixture) -> None:
    """What the API server last said of them holds while it says nothing that makes sense; each is logged once."""
    all_of_them = 7 if who == "webhook" else 4
    nonsense: list[tuple[Any, int]] = [
        ((500, {}), -1),
        ((201, []), -1),
        ((201, b"<html>"), -1),
        ((201, b"[" * 60_000), -1),
    ]
    rounds = [(SAYS_NO, all_of_them), *nonsense, (SAYS_NO, -1), (SAYS_YES, 0)]
    with scripted_server(lambda _: rounds[0][0]) as script:
        async with ClusterSession(find_place(script.url, None, None, None).configuration) as session:
            webhook, server = Webhook(KEPT, session), ApiServer(find_upstream(script.url, None, None))
            own = own_rights(server, ["team-a"])
            known = 0
            while rounds:
                rights = webhook.rights if who == "webhook" else own
                await rights.ask()
                known = known if rounds[0][1] == -1 else rounds[0][1]
                assert len(rights.lacking) == known, rounds
                rounds.pop(0)
            server.close()
    assert caplog.text.count("lacks the right") == all_of_them


async def test_a_step_that_fails_does_not_end_those_to_come() -> None:
    """Else certificates would not be renewed any more, and nobody would hear of it."""
    times = 0
    third = asyncio.Event()

    async def step() -> None:
        nonlocal times
        times += 1
        if times == 3:
            third.set()
        raise ZeroDivisionError

    task = asyncio.create_task(_again(step, 0))
    await asyncio.wait_for(third.wait(), PATIENCE)
    task.cancel()


async def test_files_of_others_are_read_again_and_a_half_written_one_reaches_nobody(tmp_path: Path) -> None:
    """The certificate before it serves on; when it ends is a metric."""
    file = tmp_path / "tls.pem"
    file.write_bytes(pem())
    ends = f"{EXPIRY} {(NOW + timedelta(days=1)).timestamp():.0f}"
    async with ClusterSession(find_place("http://127.0.0.1:1", None, None, None).configuration) as session:
        webhook = Webhook(InjectionSettings(("127.0.0.1", 0), files=(file, file)), session)
        assert EXPIRY not in webhook.counts.metrics()
        await webhook.look()
        assert (webhook.why_not, ends in webhook.counts.metrics()) == ("", True)
        file.write_bytes(pem()[:300])
        await webhook.look()
        assert (webhook.why_not, ends in webhook.counts.metrics()) == ("", True)
        with pytest.raises(CertificatesError, match="both must be PEM"):
            Webhook(InjectionSettings(("127.0.0.1", 0), files=(file, file)), session)


def test_nobody_may_renegotiate_whoever_issued_the_certificate(tmp_path: Path) -> None:
    """A write of the sidecar never waits for a read: what drives TLS there relies on it."""
    (tmp_path / "tls.pem").write_bytes(pem())
    given = GivenCertificate(tmp_path / "tls.pem", tmp_path / "tls.pem")
    for context in (given.context, listener_context()):
        assert context.options & ssl.OP_NO_RENEGOTIATION
