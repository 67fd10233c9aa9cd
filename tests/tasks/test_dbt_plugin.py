"""The example package for dbt: what its pods run, and what their ends say. (``tests.programs.dbt`` runs dbt itself.)"""

from __future__ import annotations

import json
import re
import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext, TaskSpecError
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from tests.tasks.small_plugins import task

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "dbt-plugin" / "backoff_ctrl_dbt" / "__init__.py"
PLUGIN = runpy.run_path(str(EXAMPLE))["entry"].plugin


def dbt(**spec: Any) -> Any:
    return task("shop", type="dbt", spec={"container": {"image": "dbt"}, **spec})


def ended(code: int, message: str, reason: str = "Error") -> Any:
    """The phase of a pod whose container left this message."""
    terminated = {"exitCode": code, "reason": reason, "message": message}
    status = {"phase": "Failed" if code else "Succeeded",
              "containerStatuses": [{"name": "dbt", "state": {"terminated": terminated}}]}  # fmt: skip
    pod = {**PLUGIN.build_resource(dbt()), "status": status}
    return PLUGIN.get_task_phase(PluginContext(K8sPluginConfig(), datetime.now(UTC)), pod)


@pytest.mark.parametrize(
    ("custom", "arguments"),
    [
        (None, ["build"]),
        (
            {"command": "run", "select": "orders+", "fullRefresh": True},
            ["run", "--select", "orders+", "--full-refresh"],
        ),
        ({"vars": {"day": "2026-01-01"}}, ["build", "--vars", '{"day": "2026-01-01"}']),
    ],
)
def test_its_container_runs_dbt_with_what_the_task_asks_for(custom: Any, arguments: list[str]) -> None:
    (container,) = PLUGIN.build_resource(dbt(custom=custom))["spec"]["containers"]
    assert json.loads(container["command"][3]) == arguments
    assert container["resources"]["requests"] == {"cpu": "1000m", "memory": "1024Mi"}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"custom": {"selct": "a"}}, "spec.custom"),
        ({"custom": {"command": "drop"}}, "spec.custom.command"),
        ({"custom": {"select": 7}}, "spec.custom.select"),
        ({"container": {}}, "spec.container.image"),
        ({"container": {"image": "dbt", "args": ["x"]}}, "spec.container.args"),
    ],
)
def test_a_wrong_task_is_refused_with_its_path(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(TaskSpecError) as caught:
        PLUGIN.build_resource(dbt(**spec))
    assert caught.value.path == path


def test_the_results_are_the_outputs() -> None:
    told = {"exitCode": 0, "counts": {"success": 2}, "failed": [], "seconds": 0.1}
    info = ended(0, json.dumps(told), "Completed")
    assert (info.phase.title, info.outputs) == ("Success", told)


def test_a_failure_names_the_model() -> None:
    wrong = [{"node": "model.shop.totals", "status": "error", "message": "no column price"}]
    info = ended(1, json.dumps({"exitCode": 1, "counts": {"success": 1, "error": 1}, "failed": wrong}))
    assert (info.error.code, info.error.kind) == ("DbtFailed", "USER")
    assert info.reason == "model.shop.totals ended as error: no column price"
    assert info.outputs["counts"] == {"success": 1, "error": 1}


@pytest.mark.parametrize("message", ["", "not JSON", "[1]", '{"a": 1}'])
def test_any_other_message_changes_nothing(message: str) -> None:
    """The container may have died before it could write one."""
    info = ended(137, message, "OOMKilled")
    assert info.error.code == "OOMKilled"
    assert info.outputs is None


def test_the_task_of_the_page_is_one_that_the_plugin_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "dbt.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    wish = wish_of(read_task(yaml.safe_load(written)))
    (container,) = PLUGIN.build_resource(task("shop", type="dbt", spec=wish.spec))["spec"]["containers"]
    assert json.loads(container["command"][3]) == ["build", "--select", "orders+", "--vars", '{"day": "2026-01-01"}']
    assert {each["name"] for each in container["env"]} == {"WAREHOUSE_PASSWORD"}
