"""The dashboards: current, laid out without overlaps, and each panel a question with its answer's unit and meaning."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.status.catalogue import BY_NAME

ROOT = Path(__file__).parents[2]
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "dashboards").glob("*.json"))}
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, board in BOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row"
]
BUILT_IN = {"__rate_interval", "__range", "__url_time_range", "__value", "__field", "__all"}


def test_the_files_are_those_that_the_code_makes() -> None:
    """Written again, each would be equal byte for byte."""
    checked = subprocess.run(
        [sys.executable, "-m", "dashboards", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_file_that_is_not_current_is_told(tmp_path: Path) -> None:
    """With its name, and with what to do."""
    command = [sys.executable, "-m", "dashboards", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for kind in ("json", "yaml") for path in (ROOT / "dashboards").glob(f"*.{kind}")
    )
    (tmp_path / "backoff-ctrl-gate.json").write_text("{}")
    checked = subprocess.run([*command, "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    assert checked.stderr == "backoff-ctrl-gate.json in dashboards/ not current: run python -m dashboards\n"


def test_there_are_three_boards_that_link_to_each_other() -> None:
    """All namespaces, one namespace, the gates: each leads to the others and to the live page."""
    assert list(BOARDS) == ["backoff-ctrl-gate", "backoff-ctrl-namespace", "backoff-ctrl-overview"]
    for name, board in BOARDS.items():
        assert board["uid"] == name
        assert "backoff-ctrl" in board["tags"]
        boards, page = board["links"]
        assert (boards["type"], boards["tags"], boards["includeVars"]) == ("dashboards", ["backoff-ctrl"], True)
        assert page["url"].startswith("${page}/")


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_is_a_question_and_says_what_its_answer_means(panel: dict[str, Any]) -> None:
    """A title that asks, a description, a unit, thresholds, and what to show where there is nothing."""
    defaults = panel["fieldConfig"]["defaults"]
    assert re.fullmatch(r"[A-Z].*\?", panel["title"])
    assert re.fullmatch(r"[A-Z].{25,}[.]", panel["description"], re.DOTALL)
    assert defaults["unit"] in {"locale", "short", "s", "percentunit", "reqps", "ops", "bytes"}
    steps = [step["value"] for step in defaults["thresholds"]["steps"]]
    assert steps[0] is None
    assert steps[1:] == sorted(steps[1:])
    assert panel["type"] not in {"table", "bargauge"} or defaults["noValue"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    """They lie within 24 columns, below the heading of their row, and no line is left half empty by a gap."""
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARDS[name]["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        for cell in (
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ):
            assert cell not in taken, f"{panel['title']} lies upon {taken[cell]}"
            taken[cell] = panel["title"]
    lines = {y for _, y in taken}
    assert lines == set(range(max(lines) + 1))
    assert all((x, y) in taken for y in lines for x in range(24))


@pytest.mark.parametrize("name", BOARDS)
def test_panels_have_numbers_and_titles_of_their_own(name: str) -> None:
    """Links name a panel by its number; people and tests by its title."""
    panels = BOARDS[name]["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    assert all(one["title"] != other["title"] for one, other in combinations(panels, 2))


@pytest.mark.parametrize("name", BOARDS)
def test_every_variable_that_is_used_is_declared_and_the_other_way_round(name: str) -> None:
    """A query with an unknown variable is empty; one that nothing uses misleads."""
    board = BOARDS[name]
    declared = {each["name"] for each in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_]+)", json.dumps(board))) - BUILT_IN
    assert used == declared
    sources = [each["query"] for each in board["templating"]["list"] if each["type"] == "datasource"]
    assert sources == ["prometheus"]


def test_the_variables_are_those_that_people_expect() -> None:
    """Data source, cluster, namespace, quota and gate, where they have a meaning."""
    names = {name: [each["name"] for each in board["templating"]["list"]] for name, board in BOARDS.items()}
    assert names == {
        "backoff-ctrl-overview": ["datasource", "cluster", "page"],
        "backoff-ctrl-namespace": ["datasource", "cluster", "namespace", "resourcequota", "gate", "page"],
        "backoff-ctrl-gate": ["datasource", "cluster", "gate", "page"],
    }


def test_links_between_panels_lead_to_boards_and_variables_that_exist() -> None:
    """A click on a namespace opens its board."""
    found = set(re.findall(r"/d/([a-z-]+)\?(\S*?)[\"\\]", json.dumps(BOARDS)))
    assert {uid for uid, _ in found} == {"backoff-ctrl-namespace"}
    declared = {each["name"] for each in BOARDS["backoff-ctrl-namespace"]["templating"]["list"]}
    assert {name for _, query in found for name in re.findall(r"var-([a-z]+)=", query)} <= declared


def test_each_metric_of_the_catalogue_is_on_a_board() -> None:
    """And no panel asks for one that is not exposed. Headroom is computed: each gate knows only its own holds."""
    panels = [panel for board in BOARDS.values() for panel in board["panels"] if panel["type"] != "row"]
    queries = "\n".join(target["expr"] for panel in panels for target in panel["targets"])
    asked = {
        re.sub("(?<=seconds)_(bucket|count)$", "", name) for name in re.findall(r"\bbackoff_ctrl_[a-z_]+", queries)
    }
    assert asked == set(BY_NAME) - {"backoff_ctrl_ceiling_headroom"}
