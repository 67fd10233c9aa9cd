"""The picture shows what was measured."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from backoff_ctrl.k8s.lab.replay.clients import Result, Run
from backoff_ctrl.k8s.lab.replay.picture import PictureError, draw, hardest_pressed, waiters
from backoff_ctrl.k8s.lab.replay.workload import Pod, Workload


def workload() -> Workload:
    """Three small pods in one namespace and a huge one in another."""
    pods = [Pod(f"p{i}", "ls", float(i), 10.0, {"limits.cpu": 1000, "requests.nvidia.com/gpu": 1}) for i in range(3)]
    pods.append(Pod("huge", "be", 0.0, 600.0, {"limits.cpu": 9000}))
    return Workload(
        tuple(pods), {"ls": {"limits.cpu": 3000, "requests.nvidia.com/gpu": 1}, "be": {"limits.cpu": 9000}}, seed=3
    )


def test_it_shows_the_most_contended_resource_of_the_largest_namespace() -> None:
    """That is where pods wait."""
    assert hardest_pressed(workload()) == ("ls", "requests.nvidia.com/gpu")


def test_waiting_pods_have_arrived_and_are_not_created_yet() -> None:
    """As the steps of a curve."""
    assert waiters(workload(), {"p0": 0.0, "p1": 10.0, "p2": 20.0}, "ls") == (
        [0.0, 1.0, 2.0, 10.0, 20.0],
        [0, 1, 2, 1, 0],
    )


@pytest.mark.long
def test_the_picture_is_an_svg_that_names_client_limit_and_counts(tmp_path: Path) -> None:
    """Labels are text, not paths, and the file is reproducible."""
    usage = [(0.0, "ls", {"requests.nvidia.com/gpu": 10**9}), (10.0, "ls", {"requests.nvidia.com/gpu": 0})]
    run = Run("gate_observing", Result(3, 0, 3, 0, 0, 1.0, 1.0, 1.0), usage, {"p0": 0.0, "p1": 10.0, "p2": 20.0})
    path = tmp_path / "new" / "demo.svg"
    draw(workload(), [run, run], path)
    text = path.read_text(encoding="utf-8")
    for word in ("used", "limited", "waiting pods (right axis)", "GPUs", "3 creates sent", "namespace ls", "seed 3"):
        assert word in text
    first = path.read_bytes()
    draw(workload(), [run, run], path)
    assert path.read_bytes() == first


@pytest.mark.long
def test_no_run_is_cut_off(tmp_path: Path) -> None:
    """All panels share an axis, which ends where the longest run does, be it the first or not."""
    runs = [
        Run("plain", Result(3, 0, 3, 0, 0, 1.0, 1.0, 1.0), [(end, "ls", {"requests.nvidia.com/gpu": 0})], {})
        for end in (10.0, 3000.0)
    ]
    draw(workload(), runs, tmp_path / "demo.svg")
    assert ">3000<" in (tmp_path / "demo.svg").read_text(encoding="utf-8")


@pytest.mark.long
def test_no_text_is_cut_off(tmp_path: Path) -> None:
    """With all clients, their longest names and large numbers, in a font that is a tenth wider than ours, too."""
    from matplotlib.textpath import TextPath  # noqa: PLC0415 - loads matplotlib

    usage = [(0.0, "team-longname", {"limits.memory": 10**9})]
    pods = tuple(Pod(f"p{i}", "team-longname", float(i), 10.0, {"limits.memory": 10**6}) for i in range(3))
    many = Workload(pods, {"team-longname": {"limits.memory": 10**6}}, seed=123456)
    clients = ("plain", "ancestor", "gate_learning", "gate_observing", "proxy")
    path = tmp_path / "demo.svg"
    draw(many, [Run(each, Result(12345, 12345, 0, 0, 0, 1.0, 1.0, 1.0), usage, {}) for each in clients], path)
    picture = ET.parse(path).getroot()
    width = float(picture.attrib["viewBox"].split()[2])
    seen = 0
    for text in picture.iter("{http://www.w3.org/2000/svg}text"):
        style = dict(each.split(": ", 1) for each in text.attrib["style"].split("; "))
        if not text.text or "rotate(-90" in text.attrib["transform"]:
            continue
        size = float(style["font-size"].removesuffix("px"))
        long = TextPath((0, 0), text.text, size=size).get_extents().width * 1.1
        at = text.attrib.get("x") or text.attrib["transform"].removeprefix("translate(").split()[0]
        left = float(at) - long * {"start": 0, "middle": 0.5, "end": 1}[style.get("text-anchor", "start")]
        assert 0 <= left < left + long <= width, text.text
        seen += len(text.text) > 60
    assert seen >= 1 + len(clients)


def test_without_matplotlib_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PictureError, match=r"install backoff-ctrl\[demo\]"):
        draw(workload(), [], tmp_path / "demo.svg")
