"""The status of a process shows its pools as it shows the quotas of its cluster, and operators act on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.api.main import run
from tests.status.asking import ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.long

PROGRAM = textwrap.dedent(
    """\
    import asyncio, sys
    from backoff_ctrl.k8s.tasks.plugins.protocol import TaskMetadata
    from backoff_ctrl.k8s.tasks.services.webapi.pools import PoolLimits, Pools
    from backoff_ctrl.k8s.status.serving import SERVICE

    async def main():
        pools = Pools()
        for number, project in enumerate("aab"):
            name = f"task-{number}"
            about = TaskMetadata("team", name, name, 0, f"{name}-0", project=project)
            pools.ask("connector", "default", (name, 0), about, PoolLimits(1, project=1), lambda: None)
        print(SERVICE.server.url, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await pools.aclose()
        print(len(SERVICE.sources), flush=True)
        await asyncio.to_thread(sys.stdin.readline)

    asyncio.run(main())
    """
)


@contextmanager
def pools_elsewhere(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process with a pool of one token, for which two wait; yield the URL of its status."""
    environment = {**os.environ, "BACKOFF_CTRL_STATUS": "127.0.0.1:0"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=folder, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["items"]


def test_pools_are_seen_and_paused_as_namespaces_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the commands, in the metrics, and no longer once the pools are closed."""
    with pools_elsewhere(tmp_path) as (url, process):
        at = ("-n", "pool.connector", "--gate", url)
        one, two = asked(capsys, "waiting", *at)
        assert (one["kind"], one["name"], one["place"], one["reason"]) == ("tokens", "team/task-1-0", 1, "quota")
        assert [each["resource"] for each in one["blockers"]] == ["tokens", "tokens.project/a"]
        assert [each["resource"] for each in two["blockers"]] == ["tokens"]
        full = {each["resource"]: (each["used"], each["limited"]) for each in asked(capsys, "ceilings", *at)}
        assert full == {"tokens": ("1", "1"), "tokens.project/a": ("1", "1"), "tokens.project/b": ("0", "1")}
        metrics = ask(url, "/metrics").body.decode()
        of = 'namespace="pool.connector",resourcequota="pool",resource="tokens.project/b"'
        assert f"backoff_ctrl_ceiling_headroom{{{of}}} 1" in metrics
        assert 'backoff_ctrl_waiting{namespace="pool.connector",reason="quota"} 2' in metrics
        assert run(["act", "pause", "pool.connector", "--gate", url]) == 0
        assert "creates in namespace pool.connector wait until you resume it" in capsys.readouterr().out
        assert [each["reason"] for each in asked(capsys, "waiting", *at)] == ["paused-by-operator"] * 2
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "0\n"
        assert asked(capsys, "ceilings", "--gate", url) == []
