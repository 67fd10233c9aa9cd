"""Tasks of the type ``dbt``: dbt in a container, whose results are the task's outputs; a failure names the model.

The container runs ``RUNNER``, a few lines of Python, which any image with dbt has: it runs dbt, and writes a summary of
``run_results.json`` as the container's termination message. Kubernetes keeps 4 KiB of that in the pod's status, where
the plugin reads it: no volume, no storage, no further rights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from backoff_ctrl.plugins import (
    JSON,
    PODS,
    PhaseInfo,
    PluginContext,
    PluginEntry,
    PluginProperties,
    TaskContext,
    TaskMetadata,
    TaskSpecError,
    failed,
    pod,
    pod_ended,
    pod_ended_at,
    pod_phase,
)

COMMANDS = ("build", "run", "test", "seed", "snapshot")
FLAGS = {"select": "--select", "exclude": "--exclude", "target": "--target", "profilesDir": "--profiles-dir"}
KEYS = {"command", "projectDir", "vars", "fullRefresh", *FLAGS}

RUNNER = r"""
import json, os, subprocess, sys
arguments, project = json.loads(sys.argv[1]), sys.argv[2]
code = subprocess.call(["dbt", *arguments], cwd=project)
told = {"exitCode": code}
try:
    with open(os.path.join(project, os.environ.get("DBT_TARGET_PATH", "target"), "run_results.json")) as file:
        found = json.load(file)
    counts, wrong = {}, []
    for each in found["results"]:
        counts[each["status"]] = counts.get(each["status"], 0) + 1
        if each["status"] in ("error", "fail", "runtime error"):
            message = " ".join(str(each.get("message") or "").split())
            wrong.append({"node": each["unique_id"], "status": each["status"], "message": message[:400]})
    told.update(counts=counts, failed=wrong[:5], seconds=round(found["elapsed_time"], 3))
except (OSError, ValueError, KeyError) as error:
    told["unread"] = str(error)[:400]
with open(os.environ.get("TERMINATION_LOG", "/dev/termination-log"), "w") as file:
    file.write(json.dumps(told)[:4096])
sys.exit(code)
"""


class DbtPlugin:
    """Every method is pure."""

    def build_identity_resource(self, task: TaskMetadata) -> JSON:
        return {"apiVersion": "v1", "kind": "Pod"}

    def build_resource(self, task: TaskContext) -> JSON:
        """Return the pod. The container gives the image; what it runs is the plugin's."""
        container = dict(task.spec.get("container") or {})
        for key in ("command", "args"):
            if key in container:
                raise TaskSpecError(f"spec.container.{key}", "a dbt task runs dbt: say what in spec.custom")
        if not container.get("image"):
            raise TaskSpecError("spec.container.image", "name an image with dbt and its adapter")
        arguments, project = arguments_of(task.spec.get("custom"))
        container |= {"name": "dbt", "command": ["python", "-c", RUNNER, json.dumps(arguments), project]}
        return pod(task, {"spec": {"containers": [container]}}, "spec.container", primary="dbt")

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        """Return the pod's phase, with dbt's results."""
        info = pod_phase(resource, context)
        results = results_of(resource)
        if not info.phase.is_terminal or not results:
            return info
        wrong = results.get("failed") or []
        if info.error is not None and wrong:
            first = wrong[0]
            more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            said = f"{first['node']} ended as {first['status']}{more}: {first['message']}"
            info = failed("DbtFailed", said, retryable=True)
        return replace(info, outputs=results)

    def get_properties(self) -> PluginProperties:
        return PluginProperties()

    def is_terminal(self, resource: JSON) -> bool:
        return pod_ended(resource)

    def get_completion_time(self, resource: JSON) -> datetime | None:
        return pod_ended_at(resource)


def arguments_of(custom: Any) -> tuple[list[str], str]:
    """Return dbt's arguments and the folder of its project. Raises ``TaskSpecError``."""
    asked = {} if custom is None else custom
    if not isinstance(asked, Mapping) or asked.keys() - KEYS:
        raise TaskSpecError("spec.custom", f"dbt has these parameters: {', '.join(sorted(KEYS))}")
    command = asked.get("command", "build")
    if command not in COMMANDS:
        raise TaskSpecError("spec.custom.command", f"must be one of {', '.join(COMMANDS)}")
    arguments = [command]
    for key, flag in FLAGS.items():
        if key in asked:
            if not isinstance(asked[key], str):
                raise TaskSpecError(f"spec.custom.{key}", "must be a text")
            arguments += [flag, asked[key]]
    if asked.get("fullRefresh"):
        arguments.append("--full-refresh")
    if "vars" in asked:
        arguments += ["--vars", json.dumps(asked["vars"])]
    return arguments, str(asked.get("projectDir", "."))


def results_of(resource: JSON) -> JSON | None:
    """Return the summary in the pod's status; None: there is none, or nothing of ours."""
    statuses = (resource.get("status") or {}).get("containerStatuses") or ()
    for each in statuses:
        ended = (each.get("state") or {}).get("terminated") or {}
        if each.get("name") == "dbt" and ended.get("message"):
            try:
                found = json.loads(ended["message"])
            except ValueError:
                return None
            return found if isinstance(found, dict) and "exitCode" in found else None
    return None


entry = PluginEntry("dbt", ("dbt",), PODS, DbtPlugin())
