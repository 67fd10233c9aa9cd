"""The file of receivers: what it may say, and the sentence for each mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.gate.events.webhooks import Receiver, ReceiversError, read_receivers

if TYPE_CHECKING:
    from pathlib import Path


def test_a_receiver_is_read_with_its_filters_and_its_secret(tmp_path: Path) -> None:
    """The secret is named, not written there."""
    (tmp_path / "secret").write_text("y" * 20 + "\n")
    file = tmp_path / "receivers.yaml"
    file.write_text(
        f"""
receivers:
  - name: ops
    url: https://hooks.example.com/quota
    secret-env: HOOK
    namespaces: ["team-*", prod]
    events: [waiting, declined]
    reasons: [never-fits]
    longer-than: 60
  - {{name: all, url: "http://127.0.0.1:1/", secret-file: {tmp_path}/secret}}
"""
    )
    first, second = read_receivers(file, {"HOOK": "x" * 20})
    url = "https://hooks.example.com/quota"
    filters = (("team-*", "prod"), ("waiting", "declined"), ("never-fits",))
    assert first == Receiver("ops", url, "x" * 20, *filters, 60.0)
    assert (second.secret, second.namespaces, second.longer_than) == ("y" * 20, ("*",), 300.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[", "can't be read"),
        ("at: 2026-99-01", "can't be read"),
        ("7", "the file must be an object"),
        ("{}", "receivers must be a list of 1 to 16"),
        ("{receivers: [], more: 1}", "unknown field 'more'"),
        ("receivers: [{name: a}]", "receivers[0].url must be a text"),
        ("receivers: [{name: a, url: 'ftp://x/'}]", "receivers[0].url must be a URL such as https://"),
        ("receivers: [{name: a, url: 'https://u:p@x/'}]", "without credentials"),
        ("receivers: [{name: a, url: 'https://x/', later: 1}]", "unknown field 'later'"),
        ("receiver: []", "unknown field 'receiver': did you mean receivers?"),
        ("receivers: [{name: a, urll: 'https://x/'}]", "unknown field 'urll': did you mean url?"),
        (
            "receivers: [{name: a, url: 'https://x/', events: [declind]}]",
            "'declind' is not an event; did you mean declined?",
        ),
        ("receivers: [{name: a, url: 'https://x/', events: [lost]}]", "'lost' is not an event; choose from waiting"),
        ("receivers: [{name: a, url: 'https://x/', events: waiting}]", "events must be a list of texts"),
        ("receivers: [{name: a, url: 'https://x/', longer-than: 5m}]", "longer-than must be a number of seconds"),
        ("receivers: [{name: a, url: 'https://x/', secret-env: NONE}]", "the secret is missing or shorter than 16"),
        ("receivers: [{name: a, url: 'https://x/', secret-file: /none}]", "secret-file can't be read"),
        ("receivers: [{name: a, url: 'https://x/'}, {name: a, url: 'https://y/'}]", "must differ"),
    ],
)
def test_each_mistake_is_one_sentence_that_names_file_and_field(tmp_path: Path, text: str, sentence: str) -> None:
    """Nobody should have to guess."""
    file = tmp_path / "receivers.yaml"
    file.write_text(text)
    with pytest.raises(ReceiversError) as caught:
        read_receivers(file, {})
    assert str(caught.value).startswith(str(file))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("event", "namespace", "reason", "waited", "wanted"),
    [
        ("waiting", "team-a", "quota", 60.0, True),
        ("waiting", "team-a", "quota", 59.0, False),
        ("waiting", "prod", "quota", 60.0, False),
        ("waiting", "team-a", "overload", 60.0, False),
        ("created", "team-a", "quota", 60.0, False),
        ("declined", "team-a", "quota", 0.0, True),
    ],
)
def test_filters_must_all_hold(event: str, namespace: str, reason: str, waited: float, wanted: bool) -> None:
    """A declined create need not have waited."""
    receiver = Receiver("r", "http://x/", namespaces=("team-*",), reasons=("quota",), longer_than=60)
    assert receiver.wants(event, namespace, reason, waited) is wanted
