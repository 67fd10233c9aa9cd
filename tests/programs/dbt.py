"""``python -m tests.programs.dbt``: dbt-core with dbt-duckdb, as the process of the container that the plugin builds.

The pod is the plugin's; only its image is missing, so its command runs here, in dbt's own environment, with a small
project: once well, once with a model that fails.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext, TaskContext, TaskMetadata
from tests.programs.environments import ROOT, Environment

DBT: Final = Environment("dbt", ("dbt-core~=1.10.0", "dbt-duckdb~=1.9.0"))
EXAMPLE: Final = ROOT / "docs" / "examples" / "dbt-plugin" / "backoff_ctrl_dbt" / "__init__.py"
PROJECT: Final = {
    "dbt_project.yml": "name: shop\nprofile: shop\nmodel-paths: [models]\nflags: {send_anonymous_usage_stats: false}\n",
    "profiles.yml": "shop: {target: dev, outputs: {dev: {type: duckdb, path: shop.duckdb}}}\n",
    "models/orders.sql": "select 1 as id, 7 as amount\n",
    "models/totals.sql": "select sum({{ var('column', 'amount') }}) as total from {{ ref('orders') }}\n",
}


def run(plugin: Any, folder: Path, **custom: Any) -> PhaseInfo:
    """Run the container's command in a project; return the phase of the pod that it would have left."""
    about = TaskMetadata("team", "shop", "u", 0, "shop-u-0")
    spec = {"container": {"image": "dbt"}, "custom": {"projectDir": str(folder), "profilesDir": str(folder), **custom}}
    made = plugin.build_resource(TaskContext(about, "dbt", spec, K8sPluginConfig()))
    (container,) = made["spec"]["containers"]
    message = folder / "termination-log"
    path = f"{DBT.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        container["command"], env={**os.environ, "PATH": path, "TERMINATION_LOG": str(message)}, check=False
    )
    terminated = {"exitCode": ended.returncode, "reason": "Error" if ended.returncode else "Completed",
                  "message": message.read_text(encoding="utf-8")}  # fmt: skip
    pod = {
        **made,
        "status": {
            "phase": "Failed" if ended.returncode else "Succeeded",
            "containerStatuses": [{"name": "dbt", "state": {"terminated": terminated}}],
        },
    }
    info: PhaseInfo = plugin.get_task_phase(PluginContext(K8sPluginConfig(), datetime.now(UTC)), pod)
    return info


def main() -> int:
    """Run both; return 1 if one did not end as it should."""
    DBT.make(lambda said: click.echo(said, err=True))
    plugin = runpy.run_path(str(EXAMPLE))["entry"].plugin
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, text in PROJECT.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        good = run(plugin, folder)
        bad = run(plugin, folder, vars={"column": "price"})
    click.echo(f"\n{good.phase.title}: {dict(good.outputs or {})}")
    click.echo(f"{bad.phase.title}, {bad.error.code if bad.error else ''}: {bad.reason[:200]}")
    named = bad.error is not None and bad.error.code == "DbtFailed" and "model.shop.totals" in bad.reason
    return 0 if good.phase.title == "Success" and (good.outputs or {})["counts"] == {"success": 2} and named else 1


if __name__ == "__main__":
    sys.exit(main())
