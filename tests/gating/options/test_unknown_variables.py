"""Variables that look like ours and are none: reported by each command, and when a program imports the library."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.gate.settings import PREFIX, SECTIONS, VARIABLES, settings, unknown_variables
from backoff_ctrl.k8s.tasks.plugins.config import PlatformSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("BACKOFF_CTRL_MOD", "did you mean BACKOFF_CTRL_MODE?"),
        ("BACKOFF_CTRL_TIME_OUT", "did you mean BACKOFF_CTRL_TIMEOUT?"),
        ("backoff_ctrl_mode", "did you mean BACKOFF_CTRL_MODE?"),
        ("BACKOF_CTRL_MODE", "did you mean BACKOFF_CTRL_MODE?"),
        ("BACKOFF_CTRL_STATUS_HOST", "did you mean BACKOFF_CTRL_STATUS_HOSTS?"),
        ("BACKOFF_CTRL_PLUGIN__K8S__DEFAULT_CPUS", "did you mean BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_CPUS?"),
        ("BACKOFF_CTRL_PLUGINS_K8S_DEFAULT_CPUS", "write two underscores before each key"),
        ("BACKOFF_CTRL_LOG_LEVEL", ": "),
        ("BACKOFF_CTRL_", ": "),
    ],
)
def test_an_unknown_name_has_a_sentence_with_what_is_meant(name: str, meant: str) -> None:
    (said,) = unknown_variables({name: "a-secret"})
    assert said.startswith(f"{name} is set, but no such variable is read: ")
    assert meant in said
    assert "a-secret" not in said


def test_known_names_and_those_of_others_have_none() -> None:
    """Sections of a platform's settings; and what the kubelet sets for Services called backoff-ctrl and the like."""
    known = dict.fromkeys((each.name for each in VARIABLES.values()), "1")
    known |= {
        "BACKOFF_CTRL_PLUGINS__K8S__DEFAULT_CPUS": "1",
        "BACKOFF_CTRL_TASKS": "{}",
        "backoff_ctrl_plugins__k8s": "",
    }
    for service in ("BACKOFF_CTRL", "BACKOFF_CTRL_SERVE", "BACKOFF_CTRL_GATEWAY_ADMIN"):
        known |= {f"{service}_SERVICE_HOST": "10.0.0.1", f"{service}_SERVICE_PORT": "1", f"{service}_PORT": "tcp://"}
        known |= {f"{service}_SERVICE_PORT_HTTP": "1", f"{service}_PORT_1_TCP_ADDR": "", f"{service}_PORT_1_TCP": ""}
    others = {"BACKOFF": "1", "BACKOFF_LIMIT": "3", "_BACKOFF_CTRL_COMPLETE": "bash_complete", "HOME": "/"}
    assert [*unknown_variables({**known, **others})] == []
    assert [*unknown_variables({**known, "BACKOFF_CTRL_SERVICES": ""})] != []


def test_the_sections_are_those_of_the_settings() -> None:
    assert tuple(str(field.alias).upper() for field in PlatformSettings.model_fields.values()) == SECTIONS


def test_what_the_chart_and_the_webhook_set_is_known() -> None:
    """A name of theirs that nothing reads would be reported by each pod."""
    texts = [*_texts("helm", "*.yaml"), *_texts("helm", "*.tpl"), *_texts("api/webhooks", "*.py")]
    names = {name for each in texts for name in re.findall(rf"\b{PREFIX}[A-Z_]+\b", each)}
    assert "BACKOFF_CTRL_STATUS" in names
    assert [*unknown_variables(dict.fromkeys(names, "1"))] == []


def _texts(folder: str, pattern: str) -> Iterator[str]:
    for file in (ROOT / folder).rglob(pattern):
        yield file.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [["footprint", "-f", "-"], ["task", "schema"], ["classify"]])
def test_each_command_says_it_once_and_works(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, also where the process has reported it before."""
    import io  # noqa: PLC0415

    monkeypatch.setenv("BACKOFF_CTRL_MOD", "shadow")
    for _ in range(2):
        monkeypatch.setattr(
            "sys.stdin",
            io.TextIOWrapper(io.BytesIO(b"{kind: Pod, apiVersion: v1, spec: {containers: [{name: c, image: x}]}}")),
        )
        code = run(command)
        out, err = capsys.readouterr()
        assert (code, bool(out)) == (0, True), err
        assert err.count("BACKOFF_CTRL_MOD is set") == 1


def test_doctor_fails_a_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BACKOFF_CTRL_EVENT", "1")
    run(["doctor", "--kubeconfig", "/nowhere/at/all"])
    assert "no  environment             BACKOFF_CTRL_EVENT is set" in capsys.readouterr().out


def test_a_program_that_sets_one_later_has_it_in_its_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, as a warning, at the next use of the settings."""
    monkeypatch.setenv("BACKOFF_CTRL_OF_THIS_TEST", "1")
    for _ in range(2):
        settings()
    found = [record for record in caplog.records if "BACKOFF_CTRL_OF_THIS_TEST" in record.getMessage()]
    assert [each.levelname for each in found] == ["WARNING"]


@pytest.mark.parametrize("name", ["GatedApiClient", "AsyncGate", "Gate", "waiting"])
def test_the_library_warns_when_it_is_imported(name: str, tmp_path: Path) -> None:
    """Through logging, once."""
    program = (
        f"import logging; logging.basicConfig(format='%(levelname)s %(message)s'); from backoff_ctrl import {name}"
    )
    given: dict[str, Any] = {"PATH": "", "BACKOFF_CTRL_MDOE": "shadow", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stderr.splitlines() == [
        "WARNING BACKOFF_CTRL_MDOE is set, but no such variable is read: did you mean BACKOFF_CTRL_MODE?"
    ]
