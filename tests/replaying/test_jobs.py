"""The comparison of Jobs: the same ones with the Job controller alone and with the operator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from backoff_ctrl.api.commands.demo.command import command
from backoff_ctrl.k8s.lab.replay.clients import ReplayError
from backoff_ctrl.k8s.lab.replay.jobs import CPUS, OPERATOR, PLAIN, JobsRun, JobToRun, Side, make_jobs, run_jobs
from backoff_ctrl.k8s.lab.replay.jobs_picture import draw_jobs

WIDE = JobToRun("wide", 1.3, 2, 2)
THIN = JobToRun("thin", 1.3)


def check(run: JobsRun, jobs: int) -> None:
    """Check what holds on a busy machine, too: there the quota may notice an end later than the Job controller."""
    plain, ours = run.sides[PLAIN], run.sides[OPERATOR]
    assert len(ours.ended) == jobs
    assert ours.refused < plain.refused
    assert plain.refused >= len(plain.refusals) > 0
    for side in (plain, ours):
        assert side.began.keys() >= side.ended.keys()
        assert max(cpus for _, cpus in side.usage) <= CPUS


@pytest.mark.long
def test_on_the_sandbox_with_the_simulated_job_controller() -> None:
    ended: Counter[str] = Counter()
    run = run_jobs(make_jobs(9, 1), seed=1, on_ended=lambda side: ended.update([side]))
    check(run, 9)
    assert run.controller == "a simulated Job controller"
    assert ended == {name: len(side.ended) for name, side in run.sides.items()}
    said = run.document()["sides"][OPERATOR]
    assert (said["jobs_ended"], said["refused"]) == (9, run.sides[OPERATOR].refused)


@pytest.mark.long
@pytest.mark.scheduled
def test_room_is_idle_for_less_of_the_time_with_the_operator() -> None:
    """On a machine that is busy with other work neither side may keep up: this is a figure of `make jobs`."""
    run = run_jobs(make_jobs(9, 1), seed=1)
    assert run.idle_share(OPERATOR) < run.idle_share(PLAIN)


@pytest.mark.parametrize(
    ("program", "said"),
    [("/bin/true", "is no kube-controller-manager: --version does not name Kubernetes"), (__file__, "can't be run: ")],
)
def test_a_program_that_is_no_controller_manager_is_named(program: str, said: str) -> None:
    with pytest.raises(ReplayError, match=said):
        run_jobs([THIN], seed=1, program=Path(program))


def test_the_same_seed_makes_the_same_jobs() -> None:
    assert make_jobs(24, 3) == make_jobs(24, 3) != make_jobs(24, 4)
    assert {job.parallelism for job in make_jobs(24, 3)} == {1, 2}


@pytest.mark.parametrize(
    ("usage", "began", "idle"),
    [
        ([(0.0, 6.0)], {"wide": 0.0}, 0.0),  # full
        ([(0.0, 5.0)], {}, 1 / 6),  # nobody needs more than one, or all would wait for the wide one
        ([(0.0, 5.0)], {"thin": 0.0}, 0.0),  # one CPU is free, and what waits needs two
        ([(0.0, 6.0), (5.0, 3.0)], {"thin": 0.0}, 5 * 3 / 60),
        ([(0.0, 3.0)], {"thin": 0.0, "wide": 4.0}, 4 * 3 / 60),
        ([(0.0, 3.0)], {"thin": 0.0, "wide": 0.0}, 0.0),  # nothing waits
    ],
)
def test_room_is_idle_while_a_job_waits_that_would_fit(
    usage: list[tuple[float, float]], began: dict[str, float], idle: float
) -> None:
    side = Side({"thin": 0.0, "wide": 0.0}, began, {}, [], usage, until=10.0)
    assert JobsRun([WIDE, THIN], {PLAIN: side}, "nobody").idle_share(PLAIN) == pytest.approx(idle)


@pytest.mark.long
def test_the_picture_says_what_was_measured(tmp_path: Path) -> None:
    done = Side({"wide": 0.0, "thin": 0.0}, {"wide": 0.0, "thin": 0.5}, {"wide": 2.0, "thin": 2.5}, until=2.5)
    done.usage = [(0.0, 2.0), (0.5, 3.0), (2.0, 1.0)]
    late = Side({"wide": 0.0, "thin": 0.0}, {"wide": 0.0}, {"wide": 2.0}, [(1.0, "thin")], [(0.0, 2.0)], 1, 40.0)
    run = JobsRun([WIDE, THIN], {PLAIN: late, OPERATOR: done}, "nobody at all")
    path = tmp_path / "new" / "jobs.svg"
    draw_jobs(run, path)
    text = path.read_text(encoding="utf-8")
    for words in (
        "made by nobody at all",
        "the Job controller alone: 1 of 2 Jobs after 40.0 s, 1 creates refused",
        "with backoff-ctrl operator: 2 of 2 Jobs after 2.5 s, 0 creates refused",
        "is refused a pod",
        f"{100 * run.idle_share(PLAIN):.0f} % of the quota was idle",
    ):
        assert words in text
    draw_jobs(JobsRun([WIDE, THIN], {PLAIN: done, OPERATOR: late}, "nobody at all"), path)
    assert ">40<" in path.read_text(encoding="utf-8"), "the axis ends where the longer side does"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--jobs", "--pods", "5"], "--jobs runs Jobs of its own on a sandbox: it cannot be combined with --pods"),
        (["--jobs", "--virtual", "--gangs"], "it cannot be combined with --gangs or --virtual"),
        (["--controller-manager", __file__], "--controller-manager says who makes the pods of --jobs: give that, too"),
        (["--gangs", "--kubeconfig", "x"], "--gangs runs in virtual time: it cannot be combined with --kubeconfig"),
    ],
)
def test_options_of_another_comparison_are_refused(options: list[str], said: str) -> None:
    done = CliRunner().invoke(command, options)
    assert (done.exit_code, said in done.output) == (2, True), done.output
