"""``backoff-ctrl phase``: the phase of a Kubernetes object, or of a service's answer, as a plugin reads it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from backoff_ctrl.api.commands.tasks.completing import task_types
from backoff_ctrl.api.commands.tasks.options import SET
from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.kube.answers.fields import mappings, metadata_of
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.charges.manifests import ManifestError, load_manifests, read_source
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginEntry
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry

from .output import DOCUMENT, output_options, written

if TYPE_CHECKING:
    from backoff_ctrl.k8s.kube.cluster.kinds import JSON
    from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
    from backoff_ctrl.k8s.tasks.plugins.registry import Entry, Registry

    _Reads: TypeAlias = PluginEntry | WebPluginEntry


@click.command("phase")
@click.option(
    "-f",
    "--file",
    "source",
    required=True,
    metavar="FILE",
    help="The object, or the answer, as YAML or JSON; - is stdin.",
)
@click.option(
    "--task-type",
    metavar="TYPE",
    shell_complete=task_types,
    help="Ask the plugin of this task type; default: that of the object's kind. Answers of services need it.",
)
@click.option(
    "--config", metavar="FILE", help="The platform's settings, as YAML: plugins.k8s, plugins.generic and plugins.rest."
)
@SET
@click.option(
    "--at", "at", metavar="TIME", help="The time that grace periods are measured at (RFC 3339); default: now."
)
@output_options(*DOCUMENT)
def command(
    source: str,
    task_type: str | None,
    config: str | None,
    settings: tuple[str, ...],
    at: str | None,
    output: str | None,
) -> None:
    """Show how a plugin reads a Kubernetes object, or the answer of a service: the phase, and who caused a failure.

    The file may also contain the object's pods, as a List or as several documents: an image that can't be pulled, or a
    container that ran out of memory, shows only there. No cluster is needed.

    \b
    kubectl get rayjob train -o yaml | backoff-ctrl phase -f -
    curl -s http://ray-head:8265/api/jobs/train | backoff-ctrl phase -f - --task-type ray-job

    Exit codes: 0 done, with any phase; 2 wrong usage or bad input.
    """
    if find_spec("pydantic") is None or find_spec("jsonpath") is None:
        raise BadInput("phase needs the plugin manager's packages: pip install 'backoff-ctrl[tasks]'")
    from backoff_ctrl.k8s.tasks.platform import Platform  # noqa: PLC0415 - likewise
    from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext, PluginError  # noqa: PLC0415 - slow to load

    now = datetime.now(UTC) if at is None else _time(at)
    where = "stdin" if source == "-" else source
    try:
        objects = load_manifests(read_source(source), where)
    except ManifestError as error:
        raise BadInput(str(error)) from None
    platform = Platform(config, settings)
    try:
        resource, entry = _chosen(objects, platform.registry, task_type, where)
    except PluginError as error:
        raise BadInput(str(error)) from None
    if isinstance(entry, WebPluginEntry):
        assert entry.phase_of is not None
        info = entry.phase_of(resource)
    else:
        pods = tuple(each for each in objects if each is not resource and each.get("kind") == "Pod")
        info = entry.plugin.get_task_phase(PluginContext(platform.config(), now, pods), resource)
    document = _document(info, entry, resource if isinstance(entry, PluginEntry) else {})
    click.echo(written(document, output, default=str) if output else _page(document))


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text.upper())  # RFC 3339 allows a small t and z, too
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise BadInput(f"--at: {text!r} is not a time: write it as 2026-03-01T12:00:00Z") from None


def _chosen(objects: list[JSON], plugins: Registry, task_type: str | None, where: str) -> tuple[JSON, _Reads]:
    """Return the object in question, and its plugin. Raises ``BadInput`` unless there is exactly one."""
    if task_type is not None:
        entry = _registered(plugins, task_type)
        if isinstance(entry, WebPluginEntry) and entry.phase_of is not None:
            return _only(objects, objects, where), entry
        if not isinstance(entry, PluginEntry):
            raise BadInput(f"--task-type: plugin {entry.id} runs {task_type} without a Kubernetes object: leave it out")
        kind = entry.resource_to_watch
        found = [each for each in objects if _is_of(each, kind.api_version, kind.kind)]
        if not found:
            raise BadInput(f"{where}: contains no {kind.kind} of {_group(kind.api_version)}, which {entry.id} runs")
        return _only(found, objects, where), entry
    served = [(each, entry) for each in objects for entry in _serving(each, plugins)]
    if not served:
        first = objects[0]
        raise BadInput(
            f"{where}: no plugin runs {first.get('kind') or 'an object without a kind'} of "
            f"{first.get('apiVersion') or 'no apiVersion'}: describe its operator under plugins.generic in --config, "
            "or name a --task-type"
        )
    made = [each for each, _ in served if each["kind"] != "Pod"]
    resource = _only(made or [each for each, _ in served], objects, where)
    return resource, next(entry for each, entry in served if each is resource)


def _registered(plugins: Registry, task_type: str) -> Entry:
    """Return the plugin that registered a task type: the default plugin would hide a typo."""
    entry = plugins.task_types().get(task_type.strip().lower())
    if entry is None:
        known = ", ".join(sorted(plugins.task_types()))
        raise BadInput(f"--task-type: no plugin registered {task_type!r}: choose one of {known}, or leave it out")
    return entry


def _serving(resource: JSON, plugins: Registry) -> list[PluginEntry]:
    """Return the plugin for an object's kind, of its version or else its group; of several, the kind's namesake."""
    kind, api_version = str(resource.get("kind")), resource.get("apiVersion")
    made = [each for each in plugins.entries() if isinstance(each, PluginEntry)]
    of_kind = [each for each in made if each.resource_to_watch.kind == kind]
    found = [each for each in of_kind if _is_of(resource, each.resource_to_watch.api_version, kind)]
    exact = [each for each in found if each.resource_to_watch.api_version == api_version] or found
    return [each for each in exact if each.id == kind.lower()][:1] or exact[:1]


def _only(found: list[JSON], objects: list[JSON], where: str) -> JSON:
    """Return the one object that was not made by any of the others."""
    uids = {metadata_of(each).get("uid") for each in objects} - {None}
    tops = [each for each in found if not uids & _owners(each)] or found
    if len(tops) > 1:
        names = ", ".join(printable(f"{each.get('kind')} {metadata_of(each).get('name')}") for each in tops[:3])
        raise BadInput(f"{where}: contains {len(tops)} objects ({names}): give one, with its pods if you like")
    return tops[0]


def _owners(resource: JSON) -> set[Any]:
    return {each.get("uid") for each in mappings(metadata_of(resource).get("ownerReferences"))}


def _is_of(resource: JSON, api_version: str, kind: str) -> bool:
    """Whether an object is of this kind, in any version of its group."""
    return resource.get("kind") == kind and _group(str(resource.get("apiVersion"))) == _group(api_version)


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0] or "the core group"


def _document(info: PhaseInfo, entry: _Reads, resource: JSON) -> dict[str, Any]:
    metadata, error = metadata_of(resource), info.error
    return {
        "plugin": entry.id,
        "phase": info.phase.title,
        "version": info.version,
        "reason": info.reason,
        "code": error.code if error else None,
        "kind": error.kind.value if error else None,
        "cleanup_on_failure": info.cleanup_on_failure,
        "terminal": info.phase.is_terminal,
        "occurred_at": info.occurred_at.strftime("%Y-%m-%dT%H:%M:%SZ") if info.occurred_at else None,
        "object": {"kind": resource.get("kind"), "namespace": metadata.get("namespace"), "name": metadata.get("name")},
        "custom": dict(info.custom),
        "outputs": None if info.outputs is None else dict(info.outputs),
        "logs": [{"name": each.name, "uri": each.uri} for each in info.logs],
    }


def _page(document: dict[str, Any]) -> str:
    about = document["object"]
    name = "/".join(str(each) for each in (about["namespace"], about["name"]) if each)
    lines = [
        f"{about['kind'] or 'Answer'} {name}".strip(),
        f"  phase: {document['phase']}  (plugin {document['plugin']})",
    ]
    if document["reason"]:
        lines.append(f"  reason: {' '.join(document['reason'].split())}")
    if document["kind"]:
        cause = "the user's code" if document["kind"] == "USER" else "the platform"
        again = "may be retried" if document["phase"] == "RetryableFailure" else "is not retried"
        lines.append(f"  failure: {document['code']}, caused by {cause} ({document['kind']}); {again}")
    if document["cleanup_on_failure"]:
        lines.append("  the object still holds resources: it has to be deleted")
    lines += [f"  {name}: {json.dumps(value, default=str)}" for name, value in document["custom"].items()]
    if document["outputs"] is not None:
        lines.append(f"  outputs: {json.dumps(document['outputs'])}")
    lines += [f"  {each['name']}: {each['uri']}" for each in document["logs"]]
    return "\n".join(printable(line) for line in lines)
