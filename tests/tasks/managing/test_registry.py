"""Which plugin serves a task type, and what is refused at the start, with a sentence that names the setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.plugins.protocol import PluginEntry, PluginError, PluginProperties
from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from tests.tasks.small_plugins import POD, PodPlugin, entry

PODS = entry(PodPlugin(), "container", "python-task", name="pod")
TASKS = entry(PodPlugin(), "container", name="container")
SIDECAR = entry(PodPlugin(), "sidecar")
OTHERS = entry(PodPlugin(), "rest", default=True)


def test_a_type_has_its_own_plugin_then_the_default_then_an_error_that_says_what_is_served() -> None:
    registry = Registry([PODS, SIDECAR, OTHERS])
    assert registry.resolve("container") is PODS
    assert registry.resolve(" Python-Task ") is PODS
    assert registry.resolve("anything") is OTHERS
    with pytest.raises(PluginError, match=r"'anything': choose one of container, python-task, sidecar"):
        Registry([PODS, SIDECAR]).resolve("anything")


def test_names_are_trimmed_and_lower_cased_and_a_mixed_case_default_serves_two_types() -> None:
    registry = Registry(
        [PODS, TASKS, SIDECAR],
        enabled=[" POD ", "Container"],
        defaults={"Container": " Pod ", "PYTHON-TASK": "pod"},
    )
    assert [registry.resolve(each).id for each in ("container", "python-task")] == ["pod", "pod"]
    assert [each.id for each in registry.entries()] == ["container", "pod"]
    assert registry.get("sidecar") is None


def test_a_web_plugin_may_be_the_default_of_a_type_that_others_serve_too() -> None:
    """Two such defaults are none; the settings win over one."""

    def web(name: str, *, default: bool) -> WebPluginEntry:
        own = ("Container",) if default else ()
        return WebPluginEntry(name, ("container",), lambda _: None, default_for_task_types=own)  # type: ignore[arg-type, return-value]

    jobs = web("jobs", default=True)
    assert Registry([PODS, jobs, web("more", default=False)]).resolve("container") is jobs
    assert Registry([PODS, jobs], defaults={"container": "pod"}).resolve("container") is PODS
    with pytest.raises(PluginError, match="both serve task type 'container'"):
        Registry([jobs, web("more", default=True)])


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: Registry([PODS, TASKS]), r"pod and container both serve task type 'container'.*default-for-task-types"),
    (lambda: Registry([PODS, PODS]), "two plugins are called pod"),
    (
        lambda: Registry([PODS], enabled=["pods"]),
        r"enabled-plugins names 'pods', which is not a plugin: choose from pod",
    ),
    (lambda: Registry([PODS], enabled=["pod", "POD"]), "enabled-plugins names 'pod' twice"),
    (lambda: Registry([PODS], enabled="pod"), "enabled-plugins is a list"),
    (
        lambda: Registry([PODS, SIDECAR], enabled=["pod"], defaults={"sidecar": "sidecar"}),
        r"default-for-task-types gives task type 'sidecar' to 'sidecar', which enabled-plugins does not name",
    ),
    (lambda: Registry([PODS], defaults={"container": "ray"}), "to 'ray', which is not a plugin"),
    (lambda: Registry([PODS], defaults={"spark": "pod"}), "to 'pod', which serves only: container, python-task"),
    (lambda: Registry([PODS], defaults={"container": "pod", " CONTAINER": "pod"}), "names task type 'container' twice"),
    (lambda: Registry([OTHERS, entry(PodPlugin(), "x", default=True)]), "rest, x all serve whatever"),
    (lambda: entry(PodPlugin(), "x", name=" "), "without an id"),
    (lambda: PluginEntry("x", (), POD, PodPlugin()), "names no task types"),
    (lambda: entry(PodPlugin(PluginProperties(generated_name_max_length=7)), "x"), "at most 7 characters: 8 to 253"),
]


@pytest.mark.parametrize(("make", "said"), BAD, ids=[each[1][:40] for each in BAD])
def test_what_can_not_work_is_refused_at_the_start(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(PluginError, match=said):
        make()


def connecting(*types: str, waits: bool = False) -> WebPluginEntry:
    """A plugin that has learned these task types from its service; ``waits``: it has not learned all yet."""
    return WebPluginEntry("web", ("web",), lambda _: NotImplemented, discovered_task_types=types, discovering=waits)


def test_task_types_that_a_service_tells_are_served_where_no_plugin_does() -> None:
    """Or where the settings say so, before the service has told them, too."""
    registry = Registry([connecting("Rest", "sidecar"), SIDECAR])
    assert [registry.resolve(each).id for each in ("rest", "sidecar", "web")] == ["web", SIDECAR.id, "web"]
    with pytest.raises(PluginError):
        registry.resolve("other")
    chosen = Registry([connecting(), SIDECAR], defaults={"sidecar": "web", "soon": "web"})
    assert [chosen.resolve(each).id for each in ("sidecar", "soon")] == ["web", "web"]


def test_while_a_service_has_not_told_all_an_unknown_type_may_be_its() -> None:
    """A default plugin goes first."""
    assert Registry([connecting(waits=True), SIDECAR]).resolve("other").id == "web"
    assert Registry([connecting(waits=True), OTHERS]).resolve("other") is OTHERS
