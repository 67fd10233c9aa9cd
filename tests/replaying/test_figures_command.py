"""``python -m backoff_ctrl.k8s.lab.replay.figures`` and ``backoff-ctrl demo --virtual``: output, files and exit
codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from backoff_ctrl.api.main import run as backoff_ctrl
from backoff_ctrl.k8s.lab.replay import figures
from backoff_ctrl.k8s.lab.replay.clients import CLIENTS, Result
from backoff_ctrl.k8s.lab.replay.reference import Bounds

RESULT = {
    "creates_sent", "refused", "admitted", "lost", "duplicated", "makespan_s", "wait_p50_s", "wait_p95_s",
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder: the commands write to build/ in the current one."""
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Run the figures command in this process."""
    done = CliRunner().invoke(figures.main, [*arguments, "--processes", "1"])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.long
def test_the_figures_are_the_same_each_time(tmp_path: Path) -> None:
    """Both the table and the file."""
    written = tmp_path / "build" / "figures.json"
    outputs = []
    for _ in range(2):
        code, out, _ = invoke("--seeds", "1,3", "--pods", "25")
        outputs.append((code, out, written.read_text(encoding="utf-8")))
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == 0
    for name in CLIENTS:
        assert name in outputs[0][1]


def test_the_json_is_the_file_and_nothing_else(tmp_path: Path) -> None:
    """Stdout is one document."""
    code, out, _ = invoke("--seeds", "2", "--pods", "20", "--json")
    document = json.loads(out)
    assert code == 0
    assert document == json.loads((tmp_path / "build" / "figures.json").read_text(encoding="utf-8"))
    assert (document["seeds"], document["pods"]) == ([2], 20)


def a_document(learning_refusals: float) -> dict[str, Any]:
    """A document with the published seeds and pods that meets all bars, but has this refused_per_admitted."""
    result = Result(1200, 800, 3600, 0, 0, 100.0, 1.0, 1.0)
    good = figures.compare(result, Bounds(100.0, 1.0, 1.0, 0.0, 0.0))
    summary = {**figures.summarize([good]), "refused_per_admitted": learning_refusals, "refused_per_1000": 0.0}
    return {
        "seeds": list(range(1, 10)),
        "pods": 400,
        "clients": {"gate_observing": {"admitted": 3600}},
        "bars": figures.judge(dict.fromkeys(CLIENTS, summary)),
    }


def test_a_missed_bar_is_named_and_the_exit_code_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    """The line gives the measured figure and the bar."""
    with pytest.raises(SystemExit) as ended:
        figures.judge_aloud(a_document(2.3))
    assert ended.value.code == 1
    assert capsys.readouterr().err == "missed: gate_learning: refused_per_admitted is 2.3, the bar is 2.2\n"


def test_if_all_bars_are_met_a_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """And the command does not exit early."""
    figures.judge_aloud(a_document(2.2))
    assert "bars are met" in capsys.readouterr().err


@pytest.mark.parametrize("seeds", ["", "x", "3-1", "1,1", "-2", "1-", "1-100000"])
def test_invalid_seeds_are_a_usage_error(seeds: str) -> None:
    """Exit code 2 and a message about seeds."""
    code, out, err = invoke("--seeds", seeds)
    assert (code, out) == (2, "")
    assert "seed" in err


def test_an_invalid_trace_is_a_usage_error(tmp_path: Path) -> None:
    """Exit code 2 and a sentence that says what is missing."""
    bad = tmp_path / "bad.csv"
    bad.write_text("name\n", encoding="utf-8")
    code, _, err = invoke("--trace", str(bad))
    assert code == 2
    assert "the header has no column cpu_milli" in err


@pytest.mark.long
def test_the_demo_in_virtual_time_prints_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the keys that scripts rely on."""
    assert backoff_ctrl(["demo", "--virtual", "--pods", "20", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["pods"], document["virtual"]) == (20, True)
    assert set(document["reference"]) >= {"makespan_s", "wait_p50_s", "wait_p95_s", "area_bound_s"}
    assert list(document["clients"]) == ["plain", "ancestor", "gate_learning", "gate_observing"]
    for result in document["clients"].values():
        assert set(result) >= RESULT
        assert (result["admitted"], result["lost"], result["duplicated"]) == (20, 0, 0)
    assert (tmp_path / "build" / "demo.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.long
def test_the_demo_prints_the_size_of_its_workload_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Without ``--json``."""
    assert backoff_ctrl(["demo", "--virtual", "--pods", "20", "--seed", "5"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("20 pods of openb_pods.csv.gz (rows ")
    assert "of the 7,255 that ran; 897 never did" in out
    for name in (*CLIENTS, "reference"):
        assert f"\n {name} " in out


def test_the_demo_refuses_a_broken_trace_with_file_line_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one sentence, no traceback."""
    bad = tmp_path / "bad.csv"
    header = "name,cpu_milli,memory_mib,num_gpu,qos,creation_time,deletion_time,scheduled_time"
    bad.write_text(f"{header}\na,1,1,zero,LS,0,1,0\n", encoding="utf-8")
    assert backoff_ctrl(["demo", "--trace", str(bad), "--pods", "1"]) == 2
    err = capsys.readouterr().err
    assert err == f"backoff-ctrl: {bad}:2: column num_gpu: 'zero' is not a whole number, zero or more\n"


def test_the_demo_refuses_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no JSON of a live table."""
    assert backoff_ctrl(["demo", "--keep-going", "--json"]) == 2
    assert "--keep-going" in capsys.readouterr().err
