"""``backoff-ctrl sandbox``: the embedded API server for a person, or for a script that starts it."""

from __future__ import annotations

import asyncio
import os
import signal
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff_ctrl.api.exits import BadInput

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox import Sandbox
    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind

    Documents = list[tuple[Kind, str, dict[str, Any]]]


@click.command(name="sandbox")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port to listen on; 0 picks a free one.")
@click.option(
    "--quota-file",
    type=click.Path(path_type=Path),
    help="YAML with ResourceQuotas (and Namespaces, LimitRanges, PriorityClasses) to start with.",
)
@click.option(
    "--finish-after",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Run pods and let them succeed after so long. An annotation "
    "sandbox.backoff-ctrl.dev/run-seconds gives a pod its own run time.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Names, uids and races follow from it.")
def command(port: int, quota_file: Path | None, finish_after: float | None, seed: int) -> None:
    """Serve an embedded Kubernetes API server with quota admission, until Ctrl-C.

    It answers kubectl and the official clients; it has no nodes and no authentication, and listens on
    127.0.0.1 only. GET /sandbox/faults names the faults that POST can switch on, DELETE switches them off.
    """
    from backoff_ctrl.k8s.sandbox import Sandbox  # noqa: PLC0415 - loads aiohttp: only when it is needed
    from backoff_ctrl.k8s.sandbox.quota_file import QuotaFileError, apply_quota_file, load_quota_file  # noqa: PLC0415

    sandbox = Sandbox(port=port, seed=seed)
    if finish_after is not None and not isfinite(finish_after):
        raise BadInput(f"--finish-after must be a number of seconds, not {finish_after:g}; leave it out for no end.")
    if quota_file is not None:
        try:
            documents = load_quota_file(quota_file.read_text(encoding="utf-8"))
            apply_quota_file(sandbox, documents)
        except OSError as error:
            raise BadInput(f"{quota_file} can't be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{quota_file} is no UTF-8 text.") from error
        except QuotaFileError as error:
            raise BadInput(f"{quota_file}: {error}.") from error
    try:
        asyncio.run(_serve(sandbox, finish_after))
    except BrokenPipeError:
        raise  # whoever read our lines has gone: no fault of the port
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise BadInput(f"Port {port} can't be used: {reason}. Take another, or --port 0 for a free one.") from error


async def _serve(sandbox: Sandbox, finish_after: float | None) -> None:
    """Serve until SIGINT or SIGTERM."""
    from backoff_ctrl.k8s.sandbox.kubelet.kubelet import Kubelet, Server  # noqa: PLC0415

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with sandbox, Kubelet(Server(sandbox.url), finish_after=finish_after):
        click.echo(_how_to_use(sandbox.url, finish_after))
        await ended.wait()
    click.echo("The sandbox is gone, and everything in it.")


def _how_to_use(url: str, finish_after: float | None) -> str:
    life = "run until they are deleted" if finish_after is None else f"succeed after {finish_after:g} s"
    return "\n".join(
        (
            f"An embedded Kubernetes API server listens on {url}; pods {life}. Ctrl-C ends it.",
            f"  kubectl --server {url} get resourcequotas --all-namespaces",
            f"  kubectl --server {url} run one --image=busybox --restart=Never",
            f"  curl {url}/sandbox/counters",
            f"  curl -X POST {url}/sandbox/faults -d '{{\"quota_conflict_share\": 0.04}}'",
        )
    )
