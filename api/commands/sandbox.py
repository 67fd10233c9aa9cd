"""``backoff-ctrl sandbox``: run the embedded API server."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from contextlib import AsyncExitStack
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.ending import at_signals

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import Sandbox
    from backoff_ctrl.k8s.lab.sandbox.objects.kinds import Kind

    Documents = list[tuple[Kind, str, dict[str, Any]]]

_KUBECONFIG_MARK = "# Written by backoff-ctrl sandbox, which replaces it at every start.\n"
_KUBECONFIG = """\
{mark}apiVersion: v1
kind: Config
current-context: backoff-ctrl-sandbox
contexts:
- name: backoff-ctrl-sandbox
  context: {{cluster: backoff-ctrl-sandbox, user: anyone, namespace: default}}
clusters:
- name: backoff-ctrl-sandbox
  cluster: {{server: "{url}"}}
users:
- name: anyone
  user: {{}}
"""


@click.command(name="sandbox")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="The port to listen on; 0 picks a free one.")
@click.option(
    "--quota-file",
    type=click.Path(path_type=Path),
    help="A YAML file with ResourceQuotas (also Namespaces, LimitRanges, PriorityClasses) to create at the start.",
)
@click.option(
    "--finish-after",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Mark pods as Succeeded after this run time; default: they run until deleted. The annotation "
    "sandbox.backoff-ctrl.dev/run-seconds sets the run time of a single pod.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Determines generated names, uids and the outcome of races."
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a kubeconfig for the sandbox to this file. A kubeconfig of another cluster is not replaced.",
)
@click.option(
    "--run-jobs",
    is_flag=True,
    help="Make the pods of Jobs, as Kubernetes' Job controller does: refused by a full quota, a Job is tried again "
    "after 1, 2, 4 ... 60 seconds.",
)
def command(
    port: int,
    quota_file: Path | None,
    finish_after: float | None,
    seed: int,
    kubeconfig: Path | None,
    run_jobs: bool,
) -> None:
    """Run an embedded Kubernetes API server with quota admission, until Ctrl-C.

    It works with kubectl and the official clients. It has no nodes, no authentication and no workload controllers
    (Deployments get no pods, and Jobs only with --run-jobs), and listens on 127.0.0.1 only. Everything in it is lost
    when it stops. GET /sandbox/faults lists the faults that can be simulated; POST switches them on, DELETE switches
    them off.

    \b
    backoff-ctrl sandbox --port 0 --kubeconfig sandbox.kubeconfig
    export KUBECONFIG=$PWD/sandbox.kubeconfig    # in another terminal
    """
    from backoff_ctrl.k8s.lab.sandbox import Sandbox  # noqa: PLC0415 - imports aiohttp
    from backoff_ctrl.k8s.lab.sandbox.quota_file import QuotaFileError, apply_quota_file, load_quota_file  # noqa: PLC0415

    sandbox = Sandbox(port=port, seed=seed)
    if finish_after is not None and not isfinite(finish_after):
        raise BadInput(
            f"--finish-after must be a number of seconds, not {finish_after:g}; leave it out if pods should not end"
        )
    if kubeconfig is not None:
        _check_replaceable(kubeconfig)
    if quota_file is not None:
        try:
            documents = load_quota_file(quota_file.read_text(encoding="utf-8"))
            apply_quota_file(sandbox, documents)
        except OSError as error:
            raise BadInput(f"{quota_file}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{quota_file}: is not UTF-8: a quota file is YAML text") from error
        except QuotaFileError as error:
            raise BadInput(f"{quota_file}: {error}{_meant_in(error.document)}") from error
    try:
        asyncio.run(_serve(sandbox, finish_after, kubeconfig, run_jobs=run_jobs))
    except BrokenPipeError:
        raise  # stdout was closed: not an error of the port
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise BadInput(
            f"cannot listen on port {port}: {reason}; choose another port, or --port 0 for a free one"
        ) from error


def _meant_in(document: dict[str, Any] | None) -> str:
    """Return which field a refused document may mean; empty: all its fields are known."""
    if document is None:
        return ""
    from backoff_ctrl.k8s.tasks.plugins.field_names import field_flaw, model_of  # noqa: PLC0415 - the client

    kind = model_of(str(document.get("apiVersion", "v1")), str(document["kind"]))
    flaw = field_flaw(document, kind, "")
    return "" if flaw is None else f"; {flaw.path}: {flaw.said}"


def _check_replaceable(file: Path) -> None:
    """Raise ``BadInput`` if the file holds a kubeconfig of other origin: credentials must not be lost."""
    try:
        written = file.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(f"{file}: cannot be replaced: {error.strerror}") from error
    if written and not written.startswith(_KUBECONFIG_MARK.encode()):
        raise BadInput(f"{file}: is not a kubeconfig of the sandbox, so it is not replaced: choose another file")


def _write_kubeconfig(file: Path, url: str) -> None:
    """Write the kubeconfig. Raises ``BadInput``."""
    try:
        file.write_text(_KUBECONFIG.format(mark=_KUBECONFIG_MARK, url=url), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file}: cannot be written: {error.strerror}") from error


async def _serve(sandbox: Sandbox, finish_after: float | None, kubeconfig: Path | None, *, run_jobs: bool) -> None:
    from backoff_ctrl.k8s.lab.sandbox.followed import Server  # noqa: PLC0415
    from backoff_ctrl.k8s.lab.sandbox.job_controller import JobController  # noqa: PLC0415
    from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet  # noqa: PLC0415

    ended = asyncio.Event()
    at_signals((signal.SIGINT, signal.SIGTERM), ended.set)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(sandbox)
        await stack.enter_async_context(Kubelet(Server(sandbox.url), finish_after=finish_after))
        if run_jobs:
            await stack.enter_async_context(JobController(Server(sandbox.url)))
        if kubeconfig is not None:
            _write_kubeconfig(kubeconfig, sandbox.url)
        click.echo(_how_to_use(sandbox.url, finish_after, kubeconfig, run_jobs=run_jobs))
        await ended.wait()
    click.echo("The sandbox has stopped; everything in it is gone.")


def _how_to_use(url: str, finish_after: float | None, kubeconfig: Path | None, *, run_jobs: bool) -> str:
    life = "run until they are deleted" if finish_after is None else f"succeed after {finish_after:g} s"
    kubectl = f"kubectl --server {url}" if kubeconfig is None else "kubectl"
    lines = [
        f"An embedded Kubernetes API server listens on {url}; pods {life}. Ctrl-C stops it.",
        f"  {kubectl} get resourcequotas --all-namespaces",
        f"  {kubectl} run one --image=busybox --restart=Never",
        f"  curl {url}/sandbox/counters  # creates seen, rejected, ...",
        f"  curl -X POST {url}/sandbox/faults -d '{{\"quota_conflict_share\": 0.04}}'  # simulate a fault",
        "A simulated Job controller makes the pods of Jobs; Deployments are stored and counted, but get no pods."
        if run_jobs
        else "It has no workload controllers: Jobs (without --run-jobs) and Deployments are stored, but get no pods.",
    ]
    if kubeconfig is not None:
        lines.insert(1, f"  export KUBECONFIG={shlex.quote(str(kubeconfig.absolute()))}")
    return "\n".join(lines)
