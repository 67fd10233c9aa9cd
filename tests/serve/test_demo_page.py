"""``demo --keep-going``: a workload through one gate, and its live page in the same process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from tests.kit.patience import PATIENCE
from tests.serve.serving import until
from tests.status.asking import ask

COMMAND = [sys.executable, "-m", "backoff_ctrl", "demo", "--keep-going", "--pods", "6"]


@pytest.mark.long
def test_it_prints_where_its_page_is_and_goes_on_until_ctrl_c() -> None:
    """The page shows quotas and decisions over more than one round; every pod of them is created."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told = re.search(r"The live page is at (http://127\.0\.0\.1:\d+)$", process.stdout.readline().strip())
            assert told, process.communicate(timeout=PATIENCE)
            url = told[1]
            until(lambda: ask(url, "/").status == 200)
            until(lambda: len(re.findall('<span class="event created">', ask(url, "/pieces/decisions").body.decode())))
            assert "team" in {each["quota"] for each in ask(url, "/v1/ceilings").json["items"]}
            (gate,) = ask(url, "/v1/gates").json["items"]
            _hear(url, 3 * 6 + 1)  # three for each create at most: one round has ended
            assert ask(url, "/v1/gates").json["items"][0]["started_at"] == gate["started_at"]
        finally:
            process.send_signal(signal.SIGINT)
            rest, said = process.communicate(timeout=PATIENCE)
    ended = re.search(r"Stopped: (\d+) pods were created and (\d+) creates rejected in (\d+) complete rounds", rest)
    assert ended, (rest, said)
    assert int(ended[3]) >= 1
    assert int(ended[1]) >= 6 * int(ended[3])


def _hear(url: str, count: int) -> None:
    """Listen until so many decisions were told."""
    with urllib.request.urlopen(f"{url}/v1/decisions", timeout=PATIENCE) as stream:
        for line in stream:
            count -= line.startswith(b"event: decision")
            if not count:
                return
