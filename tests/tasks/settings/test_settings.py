"""The platform's settings: where they are read from, what is refused, and how they change while a program runs."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.kube.operators.sections import format_duration, parse_duration
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.config_file import ConfigError, LiveSettings
from tests.kit.patience import PATIENCE

ROOT = Path(__file__).parents[3]

FLYTE = """
plugins:
  k8s:
    inject-finalizer: true
    default-cpus: 2
    default-memory: 3Gi
    default-annotations: {a: "1"}
    default-env-from-configmaps: [c]
    resource-tolerations:
      nvidia.com/gpu: [{key: flyte/gpu, operator: Equal, value: dedicated, effect: NoSchedule}]
    interruptible-node-selector-requirement: {key: spot, operator: In, values: ["true"]}
    image-pull-backoff-grace-period: 1h30m
    create-container-error-grace-period: 60000000000
    enable-host-networking-pod: false
    gpu-resource-name: amd.com/gpu
    default-pod-security-context: {runAsNonRoot: true}
    co-pilot: {name: flyte-copilot-, image: "x:y", start-timeout: 30s}
    update-base-backoff-duration: 20
    enable-distributed-error-aggregation: true
    disable-inject-owner-references: true
    accelerator-devices: {A100: nvidia-tesla-a100}
    accelerator-device-classes: {GOOGLE_TPU: {resource-name: google.com/tpu, unpartitioned-toleration: {key: tpu}}}
  spark: {spark-config-default: []}
tasks:
  task-plugins:
    enabled-plugins: [container, sidecar]
    default-for-task-types: {container: container}
  backoff: {base-second: 2, max-duration: 30s}
  max-plugin-phase-versions: 100000
storage: {type: minio}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_a_file_as_flytes_users_have_it(tmp_path: Path) -> None:
    """The same keys are read, sections of others are left alone, and what is not set has Flyte's default."""
    settings = LiveSettings(written(tmp_path, FLYTE)).current
    k8s = settings.k8s

    assert (k8s.inject_finalizer, k8s.default_cpus, k8s.default_memory) == (True, "2", "3Gi")
    assert k8s.image_pull_backoff_grace_period == timedelta(hours=1, minutes=30)
    assert k8s.create_container_error_grace_period == timedelta(minutes=1)
    assert (k8s.co_pilot.image, k8s.co_pilot.start_timeout, k8s.co_pilot.cpu) == ("x:y", timedelta(seconds=30), "500m")
    assert settings.tasks.task_plugins.enabled_plugins == ["container", "sidecar"]
    assert settings.tasks.task_plugins.default_for_task_types == {"container": "container"}
    assert k8s.default_annotations == {"a": "1"}


def test_keys_of_flytes_that_do_nothing_here_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the source that sets them, when the settings are first read; nothing is said of any other."""
    path = written(tmp_path, FLYTE)
    monkeypatch.setenv("BACKOFF_CTRL_TASKS__BACKOFF__BASE_SECOND", "0")
    live = LiveSettings(path)
    written(tmp_path, FLYTE.replace("default-cpus: 2", "default-cpus: 3"))
    assert live.poll() == ["plugins.k8s.default-cpus: '2' -> '3'"]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        f"{path}: plugins.k8s.co-pilot has no effect here: tasks move no data",
        f"{path}: plugins.k8s.enable-distributed-error-aggregation has no effect here: tasks write no error files",
        f"{path}: tasks.max-plugin-phase-versions has no effect here: this program does not read it",
        "environment: tasks.backoff.base-second has no effect here: with 0 creates wait in line all the same",
        f"{path}: this program reads plugins and tasks alone, not storage",
    ]
    caplog.clear()
    monkeypatch.delenv("BACKOFF_CTRL_TASKS__BACKOFF__BASE_SECOND")
    LiveSettings(written(tmp_path, "plugins: {k8s: {default-cpus: 1}}\ntasks: {backoff: {base-second: 3}}"))
    assert caplog.records == []


@pytest.mark.parametrize(
    ("backoff", "policy"),
    [
        ("{}", {}),
        ("{base-second: 3}", {"base": 3.0}),
        ("{max-duration: 1m}", {"base": 1.0, "cap": 60.0}),
        ("{base-second: 2, max-duration: 10m}", {"base": 2.0, "cap": 600.0}),
        ("{base-second: 0, max-duration: 5s}", {"base": 1.0, "cap": 5.0}),
        ("{base-second: 30}", {"base": 20.0}),  # no delay is longer than the longest
        ("{max-duration: 500ms}", {"base": 0.5, "cap": 0.5}),
    ],
)
def test_flytes_back_off_sets_base_and_cap_of_the_policy(tmp_path: Path, backoff: str, policy: dict[str, Any]) -> None:
    """In ranges that the gate has."""
    found: dict[str, Any] = LiveSettings(
        written(tmp_path, f"tasks: {{backoff: {backoff}}}")
    ).current.tasks.backoff.policy()
    assert found == policy
    Policy(**found)


@pytest.mark.parametrize(
    ("backoff", "said"),
    [
        ("{base-second: -1}", r"tasks\.backoff\.base-second: .*greater than or equal to 0"),
        ("{max-duration: 0s}", r"tasks\.backoff\.max-duration: "),
        ("{max-duration: soon}", r"tasks\.backoff\.max-duration: 'soon' is not a duration"),
        ("{base-seconds: 2}", r"tasks\.backoff\.base-seconds: unknown key"),
    ],
)
def test_a_back_off_that_can_not_be(tmp_path: Path, backoff: str, said: str) -> None:
    """The error names the key."""
    with pytest.raises(ConfigError, match=said):
        LiveSettings(written(tmp_path, f"tasks: {{backoff: {backoff}}}"))


def test_defaults() -> None:
    """They are Flyte 1.16's."""
    told = K8sPluginConfig().model_dump(
        by_alias=True, exclude={"co_pilot", "reservation_limit", "create_error_limit", "task_resources"}
    )

    assert {key: value for key, value in told.items() if value} == {
        "default-annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        "default-cpus": "1000m",
        "default-memory": "1024Mi",
        "create-container-error-grace-period": "3m0s",
        "create-container-config-error-grace-period": "0s",
        "image-pull-backoff-grace-period": "3m0s",
        "pod-pending-timeout": "0s",
        "gpu-device-node-label": "k8s.amazonaws.com/accelerator",
        "gpu-partition-size-node-label": "k8s.amazonaws.com/gpu-partition-size",
        "gpu-resource-name": "nvidia.com/gpu",
        "default-pod-template-resync": "30s",
        "update-base-backoff-duration": 10,
        "update-backoff-retries": 5,
    }


def test_flags_win_over_the_environment_that_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Key by key, however each of them spells it."""
    path = written(
        tmp_path, "plugins: {k8s: {default-cpus: 1, default-memory: 1Gi, default-labels: {a: file, b: file}}}"
    )
    monkeypatch.setenv("BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_CPUS", "2")
    monkeypatch.setenv("BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_MEMORY", "2Gi")
    monkeypatch.setenv("BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_LABELS", '{"b": "environment"}')
    monkeypatch.setenv("BACKOFF_CTRL_PLUGINS__K8S__CO_PILOT__CPU", "2")
    monkeypatch.setenv("BACKOFF_CTRL_TASKS__TASK_PLUGINS__ENABLED_PLUGINS", '["pod"]')
    settings = LiveSettings(
        path, ["plugins.k8s.default-cpus=3", "plugins.k8s.task-resources.above-limits=refuse"]
    ).current

    assert (settings.k8s.default_cpus, settings.k8s.default_memory) == ("3", "2Gi")
    assert settings.k8s.default_labels == {"a": "file", "b": "environment"}
    assert (settings.k8s.co_pilot.cpu, settings.k8s.task_resources.above_limits) == ("2", "refuse")
    assert settings.tasks.task_plugins.enabled_plugins == ["pod"]


def test_variables_of_pods_from_our_own_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are looked up when the settings are read; one that is missing is left out, and said."""
    monkeypatch.setenv("OUTER", "value")
    monkeypatch.setenv("BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_ENV_VARS_FROM_ENV", '{"INNER": "OUTER", "LOST": "NOWHERE"}')

    assert LiveSettings().current.k8s.default_env_vars == {"INNER": "value"}
    assert "default-env-vars-from-env.LOST: NOWHERE is not set here" in caplog.text


BAD = [
    ("plugins: {k8s: {default-cpus: 1 core}}", 'plugins.k8s.default-cpus: "1 core" is not a quantity'),
    ("plugins: {k8s: {default-memory: -1}}", "plugins.k8s.default-memory: -1 is negative"),
    ("plugins: {k8s: {default-cpu: 1}}", "plugins.k8s.default-cpu: unknown key: did you mean default-cpus?"),
    ("plugin: {k8s: {default-cpus: 1}}", "plugin: unknown key: did you mean plugins?"),
    ("task: {backoff: {base-second: 1}}", "task: unknown key: did you mean tasks?"),
    ("tasks: {back-off: {base-second: 1}}", "tasks.back-off: unknown key: did you mean backoff?"),
    ("tasks: {gc: {max-tl: 1h}}", "tasks.gc.max-tl: unknown key: did you mean max-ttl?"),
    ("plugins: {k8s: {task-resources: {limit: {cpu: 1}}}}", "plugins.k8s.task-resources.limit: unknown key: did you mean limits?"),
    ("plugins: {k8s: {task-resources: {limits: {memroy: 1Gi}}}}", "plugins.k8s.task-resources.limits: memroy: unknown; did you mean memory?"),
    ("plugins: {k8s: {accelerator-device-classes: {X: {resource: a}}}}", "plugins.k8s.accelerator-device-classes.X.resource: unknown key: did you mean resource-name?"),
    ("plugins: {k8s: {default-security-context: {runAsUsr: 1}}}", "plugins.k8s.default-security-context: runAsUsr: unknown; did you mean runAsUser?"),
    ("plugins: {k8s: {default-tolerations: [{efect: NoSchedule}]}}", "plugins.k8s.default-tolerations[0]: efect: unknown; did you mean effect?"),
    ("plugins: {k8s: {default-affinity: {nodeAfinity: {}}}}", "plugins.k8s.default-affinity: nodeAfinity: unknown; did you mean nodeAffinity?"),
    ("plugins: {k8s: {pod-pending-timeout: soon}}", "plugins.k8s.pod-pending-timeout: 'soon' is not a duration: write 30s"),
    ("plugins: {k8s: {image-pull-policy: Often}}", "plugins.k8s.image-pull-policy: Input should be ''"),
    ("plugins: {k8s: {default-tolerations: [{}, x]}}", "plugins.k8s.default-tolerations[1]: must be an object with keys, not str"),
    ("plugins: {k8s: {task-resources: {projects: [{domain: d}]}}}", "plugins.k8s.task-resources.projects[0].project: Field required"),
    ("plugins: {k8s: {task-resources: {limits: {cpu: many}}}}", "plugins.k8s.task-resources.limits.cpu: "),
    ("plugins: {k8s: {default-cpus: 1, default-memory: 1Gi, default-cpus: 2}}", "the key default-cpus is there twice: keep one"),
    ("plugins: {k8s: {default-tolerations: [{effect: 3}]}}", "default-tolerations[0]: effect: must be a text, not a whole number"),
    ("plugins: []", "plugins: must be an object with keys, not list"),
    ("- plugins", "must be an object with the sections plugins and tasks, not list"),
    ("plugins: {k8s", "is not YAML: while parsing a flow mapping"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    """The error names the file, the key and what would be right."""
    path = written(tmp_path, text)

    with pytest.raises(ConfigError) as caught:
        LiveSettings(path)

    assert str(caught.value).startswith(f"{path}")
    assert message in str(caught.value)


def test_wrong_values_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where they come from, not that the file is wrong."""
    path = written(tmp_path, "plugins: {k8s: {default-cpus: 1}}")

    with pytest.raises(ConfigError, match=r"^flag: plugins\.k8s\.default-cpus: "):
        LiveSettings(path, ["plugins.k8s.default-cpus=x"])
    for key, said in (
        ("plugins.k8s.nonsense", "nonsense: unknown key: choose from accelerator-device-classes, "),
        ("plugins.k8s.default-cpu", r"default-cpu: unknown key: did you mean default-cpus\?"),
        ("plugin.k8s.default-cpus", r"plugin: unknown key: did you mean plugins\?"),
        ("tasks.back-off.base-second", r"back-off: unknown key: did you mean backoff\?"),
    ):
        with pytest.raises(ConfigError, match=rf"^--set {key}: {said}"):
            LiveSettings(path, [f"{key}=1"])
    with pytest.raises(ConfigError, match=r"can't be read: .*No such file"):
        LiveSettings(tmp_path / "gone.yaml")
    monkeypatch.setenv("BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_CPUS", "y")
    with pytest.raises(ConfigError, match=r"^environment: plugins\.k8s\.default-cpus: "):
        LiveSettings(path)
    monkeypatch.delenv("BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_CPUS")
    monkeypatch.setenv("BACKOFF_CTRL_PLUGINS__K8S", "[]")
    with pytest.raises(ConfigError, match=r"^environment: plugins\.k8s: must be an object with keys"):
        LiveSettings(path)
    monkeypatch.setenv("BACKOFF_CTRL_PLUGINS__K8S", "{")
    with pytest.raises(ConfigError, match=r"^environment, variables that begin with BACKOFF_CTRL_: .*: Expecting"):
        LiveSettings(path)


@pytest.mark.parametrize("text", ["", "plugins:", "plugins: {k8s: }", "other: 1"])
def test_an_empty_section_is_the_defaults(tmp_path: Path, text: str) -> None:
    """People comment out what is below a key."""
    assert LiveSettings(written(tmp_path, text)).current.k8s == K8sPluginConfig()


def test_a_change_is_taken_over_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Key by key, old and new; values of environment variables are not shown, and flags go on winning."""
    caplog.set_level(logging.INFO)
    path = written(tmp_path, "plugins: {k8s: {default-cpus: 1, default-env-vars: {TOKEN: secret}}}")
    live = LiveSettings(path, ["plugins.k8s.scheduler-name=mine"])
    before = live.current

    assert live.poll() == []
    written(
        tmp_path,
        "plugins: {k8s: {default-cpus: 2, scheduler-name: theirs, default-env-vars: {TOKEN: hidden, B: c}, pod-pending-timeout: 5m}}",
    )

    assert live.poll() == [
        "plugins.k8s.default-env-vars: {TOKEN} (values are not shown) -> {TOKEN, B} (values are not shown)",
        "plugins.k8s.default-cpus: '1' -> '2'",
        "plugins.k8s.pod-pending-timeout: 0:00:00 -> 0:05:00",
    ]
    assert (live.current.k8s.default_cpus, before.k8s.default_cpus) == ("2", "1")
    assert live.current.k8s.scheduler_name == "mine"
    assert "plugins.k8s.default-cpus: '1' -> '2'" in caplog.text
    assert "secret" not in caplog.text
    assert live.poll() == []


def test_changes_within_sections_and_of_objects(tmp_path: Path) -> None:
    """A section's keys are told one by one, an object as a whole."""
    path = written(tmp_path, "plugins: {k8s: {default-labels: {a: b}}}")
    live = LiveSettings(path)
    written(tmp_path, "plugins: {k8s: {default-labels: {a: c}, task-resources: {above-limits: refuse}}}")

    assert live.poll() == [
        "plugins.k8s.default-labels: {'a': 'b'} -> {'a': 'c'}",
        "plugins.k8s.task-resources.above-limits: 'clamp' -> 'refuse'",
    ]


def test_a_file_that_breaks_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, and what is mended is taken over."""
    path = written(tmp_path, "plugins: {k8s: {default-cpus: 1}}")
    live = LiveSettings(path)
    written(tmp_path, "plugins: {k8s: {default-cpus: one}}")

    assert (live.poll(), live.poll()) == ([], [])
    path.unlink()
    assert live.poll() == []
    said = [record.getMessage() for record in caplog.records]
    assert (len(said), live.current.k8s.default_cpus) == (2, "1")
    assert said[0].endswith("; the settings stay as they were")
    written(tmp_path, "plugins: {k8s: {default-cpus: 3}}")
    assert live.poll() == ["plugins.k8s.default-cpus: '1' -> '3'"]


async def test_a_program_follows_its_file(tmp_path: Path) -> None:
    """It is told what has changed, and goes on until it is cancelled."""
    path = written(tmp_path, "plugins: {k8s: {default-cpus: 1}}")
    live, changed = LiveSettings(path), asyncio.get_running_loop().create_future()
    following = asyncio.create_task(live.follow(changed.set_result, every=0))
    written(tmp_path, "plugins: {k8s: {default-cpus: 2}}")

    assert await asyncio.wait_for(changed, PATIENCE) == ["plugins.k8s.default-cpus: '1' -> '2'"]
    assert live.current.k8s.default_cpus == "2"
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert LiveSettings().poll() == []


DURATIONS: list[tuple[Any, str]] = [
    ("30s", "30s"), ("3m", "3m0s"), ("1h30m", "1h30m0s"), ("1.5s", "1.5s"), (".5s", "500ms"), ("250ms", "250ms"), ("5us", "5µs"),
    ("0", "0s"), (0, "0s"), (180000000000, "3m0s"), ("180000000000", "3m0s"), ("+2h", "2h0m0s"), ("-0s", "0s"), ("1m1.001s", "1m1.001s"),
    ("1ns", "1µs"), (5, "1µs"), ("999ns", "1µs"), ("1001ns", "2µs"), ("1s1ns", "1.000001s"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), DURATIONS)
def test_durations(value: Any, text: str) -> None:
    """They are read and written as Go does."""
    assert format_duration(parse_duration(value)) == text


@pytest.mark.parametrize(
    "value", ["", "s", "1d", "3m 2s", "-3m", -1, True, None, 1.5, [], "1e3s", "9999999h", "9" * 70, 10**30]
)
def test_no_durations(value: Any) -> None:
    """The error says how one is written."""
    with pytest.raises(ValueError, match=r"write (a duration|30s|a shorter)"):
        parse_duration(value)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=100_000)))
def test_any_duration_is_read_as_it_was_written(duration: timedelta) -> None:
    """To the microsecond."""
    assert parse_duration(format_duration(duration)) == duration


def test_each_setting_is_described() -> None:
    """Their page shows it."""
    assert all(field.description for field in K8sPluginConfig.model_fields.values())
