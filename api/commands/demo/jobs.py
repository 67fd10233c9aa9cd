"""``backoff-ctrl demo --jobs``: the same Jobs with the plain Job controller and with the operator, at the same time."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Final

import click

from backoff_ctrl.api.exits import BadInput, Failed
from backoff_ctrl.k8s.lab.replay.clients import ReplayError
from backoff_ctrl.k8s.lab.replay.jobs import CPUS, OPERATOR, PLAIN, SIDES, JobsRun, make_jobs, run_jobs
from backoff_ctrl.k8s.lab.replay.jobs_picture import draw_jobs
from backoff_ctrl.k8s.status.amounts import aligned

from .output import draw_and_say, progress_display

NUMBER: Final = 24
PICTURE: Final = Path("build/jobs.svg")
PROGRAM: Final = "kube-controller-manager"
_HEADS: Final = {PLAIN: "plain Job controller", OPERATOR: "with the operator"}


def compare_jobs(*, seed: int, program: Path | None, as_json: bool) -> None:
    """Run, print and draw the comparison. ``program``: a kube-controller-manager; default: the one on the PATH.

    Raises ``BadInput`` and ``Failed``.
    """
    jobs = make_jobs(NUMBER, seed)
    program = program or (Path(found) if (found := shutil.which(PROGRAM)) else None)
    with progress_display() as progress:
        bars = {name: progress.add_task(_HEADS[name], total=len(jobs)) for name in SIDES}
        try:
            run = run_jobs(jobs, seed=seed, program=program, on_ended=lambda name: progress.advance(bars[name]))
        except ReplayError as error:
            raise Failed(str(error)) from error
        except OSError as error:
            raise BadInput(f"cannot run the sandbox on this machine: {error}") from error
    click.echo(json.dumps(run.document(), indent=2) if as_json else _text(run))
    draw_and_say(partial(draw_jobs, run), PICTURE)
    if (ended := len(run.sides[OPERATOR].ended)) < len(jobs):
        raise Failed(f"with the operator only {ended} of {len(jobs)} Jobs ended")


def _text(run: JobsRun) -> str:
    document = run.document()
    plain, ours = (document["sides"][name] for name in SIDES)
    rows = [
        (label, *(_cell(side[key], unit) for side in (plain, ours)))
        for label, key, unit in (
            ("Jobs that ended", "jobs_ended", ""),
            ("after", "seconds", " s"),
            ("wait for the first pod, p50", "wait_p50_s", " s"),
            ("longest", "wait_longest_s", " s"),
            ("creates refused", "refused", ""),
            ("idle although a Job waited", "idle_share", " %"),
        )
    ]
    made = f"{run.controller} makes their pods"
    if run.controller.startswith(PROGRAM):
        made += ", and a fake kubelet ends them"
    else:
        made += f" (no {PROGRAM} was found; --controller-manager names one), and a fake kubelet ends them"
    return (
        f"{document['jobs']} Jobs under a quota of {CPUS} CPUs, in two namespaces of one sandbox at the same time. "
        f"{made[0].upper()}{made[1:]}.\n\n" + aligned([("", *_HEADS.values()), *rows], (1, 2))
    )


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return "never"
    return f"{100 * value:.0f} %" if unit == " %" else f"{value:g}{unit}" if unit == "" else f"{value:.1f}{unit}"
