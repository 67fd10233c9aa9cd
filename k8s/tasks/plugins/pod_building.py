"""How a task's pods are built: from a container, from a pod template, or within another object's template. Pure.

To that it adds the platform's and the run's settings: environment, pulls, security, resources, and where the pod may
run. The base of it all is the cluster's PodTemplate, if one is named. Its containers are patterns, as in Flyte:
``default`` is one for all containers, ``primary`` for the primary one, any other for the container of its name;
``default-init`` and those of the same name for init containers. Plugins of other packages find the public functions in
``backoff_ctrl.plugins``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import mapping, mapping_in, mappings, metadata_of
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind

from .config import AcceleratorClass, K8sPluginConfig
from .field_names import CONTAINER, METADATA, POD_SPEC, VARIABLE, model_of, names_of
from .pod_phases import ADJUSTED, PRIMARY_CONTAINER
from .pod_placing import Asked, Bounds, Run, accelerator_of, ask, bounds_of, keep_within, schedule
from .protocol import (
    TaskContext,
    TaskSpecError,
    check_fields,
    insist_on_fields,
    object_at,
    objects_at,
    refuse_custom,
    refuse_unread,
    text_at,
)

TEMPLATE: Final = "spec.template"
"""The path of a task's object in errors."""
_RUN: Final = ("resources", "env", "secrets", "accelerator")
"""What a run may change of a task's pods."""
_KEPT: Final = ("labels", "annotations")
"""The metadata that an object keeps; its name and namespace are the task's."""
_OBJECT: Final = ("apiVersion", "kind", "metadata", "spec", "status")
"""The fields of a manifest. Its status is left out."""
_AMOUNTS: Final = ("requests", "limits")
"""What a run's resources may hold."""
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
RAW_CONTAINER: Final = "raw-container"
_PRIMARY: Final = "primary"
_DEFAULTS: Final = {"containers": "default", "initContainers": "default-init"}
_WHOLE: Final = frozenset({"command", "args"})
"""Lists that are replaced as a whole, not merged."""


def object_of(task: TaskContext, kind: Kind) -> JSON:
    """Return the object that the task describes, without name and status. Raises ``TaskSpecError``."""
    template = task.spec.get("template")
    if not isinstance(template, dict):
        raise TaskSpecError(TEMPLATE, f"must be the {kind.kind} to create, with apiVersion, kind and spec")
    for key, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if template.get(key, expected) != expected:
            raise TaskSpecError(
                f"{TEMPLATE}.{key}", f"must be {expected} for a task of type {task.type}, not {template[key]!r}"
            )
    spec = template.get("spec")
    if not isinstance(spec, dict):
        raise TaskSpecError(f"{TEMPLATE}.spec", f"must be an object: the spec of the {kind.kind}")
    insist_on_fields(template, _OBJECT, TEMPLATE)
    own = object_at(template, "metadata", TEMPLATE)
    insist_on_fields(own, names_of(METADATA), f"{TEMPLATE}.metadata")
    check_fields(template, model_of(kind.api_version, kind.kind), TEMPLATE)
    metadata = {key: dict(own[key]) for key in _KEPT if isinstance(own.get(key), dict)}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": deepcopy(spec)}


def pod_template(task: TaskContext, template: Any, path: str, *, primary: str = "") -> JSON:
    """Return a pod template of an object with everything that the platform and the run add to a task's pod.

    ``template`` is the task's, with ``metadata`` and ``spec``; ``path`` is its path, for errors. The result is a copy
    with resources, environment, pull policy and security of its containers, tolerations, node selector, affinity (those
    of interruptible tasks and of ``spec.accelerator`` too), service account, scheduler and the like.

    ``primary`` names the container that the run's ``spec.resources`` and ``spec.env`` apply to, and that gets the
    default requests and limits; by default the only one. Other containers keep their own requests. No restart policy is
    added: operators have their own rules for it. Raises ``TaskSpecError``.
    """
    made = pod(task, template, path, primary=primary)
    if "restartPolicy" not in template["spec"]:
        del made["spec"]["restartPolicy"]
    metadata = {**(template.get("metadata") or {}), **made["metadata"]}
    return {**template, **({"metadata": metadata} if metadata else {}), "spec": made["spec"]}


def pod(task: TaskContext, template: Any, path: str, *, primary: str = "") -> JSON:
    """Return a whole pod of a template: as ``pod_template`` does, and its restart policy is ``Never`` by default.

    Name and namespace are the manager's to add. Raises ``TaskSpecError``.
    """
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise TaskSpecError(f"{path}.spec", "must be an object: the spec of a pod")
    run = {key: task.spec[key] for key in _RUN if key in task.spec}
    check_fields(template.get("metadata"), METADATA, f"{path}.metadata")
    about = {"podTemplate": _only_pod(template), **({"primaryContainer": primary} if primary else {})}
    try:
        return pod_of_template(replace(task, spec={**run, **about}), needs_primary=False)
    except TaskSpecError as error:
        place = error.path.replace("spec.podTemplate", path, 1)
        raise TaskSpecError(place, str(error).removeprefix(f"{error.path}: ")) from None


def container(task: TaskContext, template: Any, path: str) -> JSON:
    """Return one container as a task's primary one would be created, for objects that have containers but no pod.

    ``template`` is the container, ``path`` its path in the task. Only pods and pod templates report, in an annotation,
    what the platform's limits lowered. Raises ``TaskSpecError``.
    """
    if not isinstance(template, dict):
        raise TaskSpecError(path, "must be an object: a container")
    check_fields(template, CONTAINER, path)
    run = _run_of(task, accelerator_of(task))
    made = deepcopy(template)
    _finish(made, task, path, run, is_primary=True)
    _set_environment(made, task.config, path, run.env)
    return made


def scheduling(task: TaskContext, containers: Any, path: str) -> JSON:
    """Return the fields of a pod's spec about where it may run, for objects that have them outside of a pod template.

    ``containers`` are those of the pod: their requests decide on tolerations, and ``spec.accelerator`` needs a GPU in
    one of them. The keys are ``tolerations``, ``nodeSelector``, ``affinity`` and ``schedulerName``, if not empty.
    Raises ``TaskSpecError``.
    """
    spec: JSON = {"containers": objects_at({"containers": containers}, "containers", path)}
    schedule(spec, task, accelerator_of(task), path)
    if task.config.scheduler_name:
        spec["schedulerName"] = task.config.scheduler_name
    del spec["containers"]
    return spec


def pod_of_container(task: TaskContext) -> JSON:
    """Return the pod of a task that is one container, ``spec.container``. Raises ``TaskSpecError``."""
    refuse_custom(task)
    refuse_unread(task, "container")
    if task.spec.get("container") is None:
        raise TaskSpecError(
            "spec.container", f"a task of type {task.type} needs a container: give it an image at least"
        )
    container = deepcopy(object_at(task.spec, "container", "spec"))
    generated = task.metadata.generated_name
    check_fields(container, CONTAINER, "spec.container")
    container.setdefault("name", generated if _LABEL.fullmatch(generated) else "main")
    _check_container(container, "spec.container")
    if not isinstance(container.get("image"), str) or not container["image"]:
        raise TaskSpecError("spec.container.image", "name the image to run")
    annotations = {} if task.type == RAW_CONTAINER else {PRIMARY_CONTAINER: container["name"]}
    return _pod({"containers": [container]}, {"annotations": annotations}, container["name"], task, "spec.container")


def pod_of_template(task: TaskContext, *, needs_primary: bool) -> JSON:
    """Return the pod of a task with a pod template; ``needs_primary``: its end is that of one of its containers.

    Raises ``TaskSpecError``.
    """
    refuse_custom(task)
    refuse_unread(task, "podTemplate", "primaryContainer")
    if task.spec.get("podTemplate") is None:
        raise TaskSpecError("spec.podTemplate", f"a task of type {task.type} needs a pod template: metadata and spec")
    template = deepcopy(object_at(task.spec, "podTemplate", "spec"))
    insist_on_fields(template, _OBJECT, "spec.podTemplate")
    path = "spec.podTemplate.spec"
    spec = object_at(template, "spec", "spec.podTemplate")
    check_fields(spec, POD_SPEC, path)
    names = _checked_names(spec, path)
    primary = _primary(task, names, needs_primary=needs_primary)
    metadata = object_at(template, "metadata", "spec.podTemplate")
    insist_on_fields(metadata, names_of(METADATA), "spec.podTemplate.metadata")
    check_fields(metadata, METADATA, "spec.podTemplate.metadata")
    kept = {key: object_at(metadata, key, "spec.podTemplate.metadata") for key in ("labels", "annotations")}
    if primary:
        kept["annotations"][PRIMARY_CONTAINER] = primary
    return _pod(spec, kept, primary, task, path)


def _only_pod(template: Mapping[str, Any]) -> JSON:
    """Return the pod of a section that may have further fields, such as the number of pods."""
    metadata = template.get("metadata")
    if isinstance(metadata, Mapping):
        metadata = {key: metadata[key] for key in _KEPT if key in metadata}
    return {"metadata": metadata, "spec": template["spec"]}


def _checked_names(spec: JSON, path: str) -> list[str]:
    """Return the containers' names. Raises ``TaskSpecError`` for a spec that makes no pod."""
    for key in ("initContainers", "containers"):
        spec[key] = objects_at(spec, key, path, "must be an object with a name and an image")
        for index, container in enumerate(spec[key]):
            _check_container(container, f"{path}.{key}[{index}]")
    if not spec["containers"]:
        raise TaskSpecError(f"{path}.containers", "a pod needs at least one container")
    if not spec["initContainers"]:
        del spec["initContainers"]
    return [container["name"] for container in spec["containers"]]


def _check_container(container: Mapping[str, Any], path: str) -> None:
    name = container.get("name")
    if not isinstance(name, str) or not _LABEL.fullmatch(name):
        rule = "at most 63 of a-z, 0-9 and -, with a letter or digit at both ends"
        raise TaskSpecError(f"{path}.name", f"a container needs a name: {rule}")


def _primary(task: TaskContext, names: list[str], *, needs_primary: bool) -> str:
    """Return the container whose end is the task's; empty: all have to succeed."""
    named = text_at(task.spec, "primaryContainer", "spec")
    if named and named not in names:
        raise TaskSpecError("spec.primaryContainer", f"there is no container {named}: choose one of {', '.join(names)}")
    if not named and needs_primary and len(names) > 1:
        raise TaskSpecError(
            "spec.primaryContainer", f"name the container whose end is the task's, one of {', '.join(names)}"
        )
    return named or (names[0] if len(names) == 1 else "")


def _pod(spec: JSON, metadata: JSON, primary: str, task: TaskContext, path: str) -> JSON:
    config = task.config
    accelerator = accelerator_of(task)
    if accelerator.pod_template is not None:
        spec, metadata = on_template(spec, metadata, primary, accelerator.pod_template)
    if task.pod_template is not None:
        spec, metadata = on_template(spec, metadata, primary, task.pod_template)
    lowered = finish_containers(spec, primary, task, _run_of(task, accelerator), path)
    if lowered:
        metadata["annotations"][ADJUSTED] = "; ".join(lowered)
    schedule(spec, task, accelerator, path)
    spec.setdefault("restartPolicy", "Never")
    if task.metadata.service_account and not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = task.metadata.service_account
    if config.scheduler_name and not spec.get("schedulerName"):
        spec["schedulerName"] = config.scheduler_name
    if config.default_pod_security_context is not None and spec.get("securityContext") is None:
        spec["securityContext"] = deepcopy(config.default_pod_security_context)
    if config.default_pod_dns_config is not None and spec.get("dnsConfig") is None:
        spec["dnsConfig"] = deepcopy(config.default_pod_dns_config)
    if config.enable_host_networking_pod is not None:
        spec["hostNetwork"] = config.enable_host_networking_pod
    kept = {key: value for key, value in metadata.items() if value}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}


def on_template(spec: JSON, metadata: JSON, primary: str, template: Mapping[str, Any]) -> tuple[JSON, JSON]:
    """Return a pod's spec and its labels and annotations on top of a PodTemplate."""
    below = mapping_in(template.get("template"), "spec")
    plain = {key: value for key, value in below.items() if key not in _DEFAULTS}
    merged = _over(plain, {key: value for key, value in spec.items() if key not in _DEFAULTS})
    for key, default in _DEFAULTS.items():
        patterns = {each.get("name"): each for each in mappings(below.get(key))}
        if spec.get(key):
            merged[key] = [_container(each, primary, patterns, default) for each in spec[key]]
    own = metadata_of(template.get("template"))
    return merged, {key: _over(mapping(own.get(key)), metadata.get(key) or {}) for key in ("labels", "annotations")}


def _container(own: JSON, primary: str, patterns: Mapping[Any, Mapping[str, Any]], default: str) -> JSON:
    """Return a container merged over the patterns that apply to it, the most general one first."""
    names = [default, _PRIMARY if own["name"] == primary else own["name"]]
    merged: JSON = {}
    for pattern in (patterns[name] for name in names if name in patterns):
        merged = _over(merged, pattern)
    return {**_over(merged, own), "name": own["name"]}


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> JSON:
    """Return objects merged key by key; lists are joined, any other value is that of the upper object."""
    merged = deepcopy(dict(below))
    for key, value in above.items():
        known = merged.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            merged[key] = _over(known, value)
        elif isinstance(known, list) and isinstance(value, list) and key not in _WHOLE:
            merged[key] = [*known, *deepcopy(value)]
        else:
            merged[key] = deepcopy(value)
    return merged


def finish_containers(spec: JSON, primary: str, task: TaskContext, run: Run, path: str) -> list[str]:
    """Set, in place, what the platform and the run add to a pod's containers; the run's settings are for ``primary``.

    Returns a sentence for each amount that the platform's limits lowered. Raises ``TaskSpecError``.
    """
    if run.resources and not primary:
        raise TaskSpecError("spec.resources", "no container is the primary one: write them to the pod template's own")
    lowered = _whole_pod(spec, run.bounds, path)
    for key in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(key) or []):
            at = path if path == "spec.container" else f"{path}.{key}[{index}]"  # that task has one, and no list
            is_primary = key == "containers" and container["name"] == primary
            asked = _finish(container, task, at, run, is_primary=is_primary)
            lowered += [f"container {container['name']}: {each}" for each in asked.lowered]
            of_run = is_primary or (key == "containers" and not primary)
            _set_environment(container, task.config, at, run.env if of_run else ())
    return lowered


def _run_of(task: TaskContext, accelerator: AcceleratorClass) -> Run:
    """Read what a run changes of its containers. Raises ``TaskSpecError``."""
    resources = object_at(task.spec, "resources", "spec")
    if resources:
        insist_on_fields(resources, _AMOUNTS, "spec.resources")
    for index, each in enumerate(objects_at(task.spec, "env", "spec")):
        check_fields(each, VARIABLE, f"spec.env[{index}]")
    env = _variables(task.spec, "spec")
    bounds = bounds_of(task.metadata, task.config, accelerator.resource_name)
    return Run(resources, [*env, *_secrets(task.spec)], accelerator, bounds)


def _finish(container: JSON, task: TaskContext, path: str, run: Run, *, is_primary: bool) -> Asked:
    own, at = object_at(container, "resources", path), f"{path}.resources"
    asked = ask(own, run.resources, run.bounds, at) if is_primary else keep_within(own, run.bounds, at)
    resources = {**own, **asked.manifest}
    if resources:
        container["resources"] = resources
    _set_defaults(container, task.config, is_primary=is_primary)
    return asked


def _whole_pod(spec: JSON, bounds: Bounds, path: str) -> list[str]:
    """Keep a pod's own resources, which its containers share, within the limits as well."""
    own = object_at(spec, "resources", path)
    if not own:
        return []
    asked = keep_within(own, bounds, f"{path}.resources")
    spec["resources"] = {**own, **asked.manifest}
    return [f"the pod: {each}" for each in asked.lowered]


def _set_environment(container: JSON, config: K8sPluginConfig, path: str, env: Sequence[JSON]) -> None:
    """Set the environment: the container's own variables replace defaults, the run's ``env`` replaces both.

    The run's variables are for the primary container; where all have to succeed, for each of them.
    """
    variables: dict[str, JSON] = {
        name: {"name": name, "value": value} for name, value in config.default_env_vars.items()
    }
    for variable in [*_variables(container, path), *deepcopy(env)]:
        variables[variable["name"]] = variable  # one that was set before stays where it was: others may refer to it
    if variables:
        container["env"] = list(variables.values())
    sources = objects_at(container, "envFrom", path)
    sources += [{"secretRef": {"name": name, "optional": True}} for name in config.default_env_from_secrets]
    sources += [{"configMapRef": {"name": name, "optional": True}} for name in config.default_env_from_configmaps]
    if sources:
        container["envFrom"] = sources


def _variables(parent: Mapping[str, Any], path: str) -> list[JSON]:
    """Return a list of environment variables. Raises ``TaskSpecError`` for an invalid one."""
    right = "must be an object with a name, and a value or valueFrom"
    found = objects_at(parent, "env", path, right)
    for index, variable in enumerate(found):
        if not isinstance(variable.get("name"), str) or not variable["name"]:
            raise TaskSpecError(f"{path}.env[{index}]", right)
    return deepcopy(found)


def _secrets(spec: Mapping[str, Any]) -> list[JSON]:
    """Return a variable for each secret that the run names: the kubelet reads it."""
    named = object_at(spec, "secrets", "spec").items()
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": each["secret"], "key": each["key"]}}}
        for name, each in named
    ]


def _set_defaults(container: JSON, config: K8sPluginConfig, *, is_primary: bool) -> None:
    """Set the defaults of other fields. Sidecars get no security context: that is up to their user, as in Flyte."""
    if config.image_pull_policy:
        container.setdefault("imagePullPolicy", config.image_pull_policy)
    if is_primary and config.default_security_context is not None:
        container.setdefault("securityContext", deepcopy(config.default_security_context))
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")  # the phase reports why it failed
