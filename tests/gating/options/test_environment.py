"""Modes, default time limits and names of gates by environment variables; a typo there stops nothing."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client
from kubernetes.client import ApiException

from backoff_ctrl import Gate, GatedApiClient, WaitedTooLong, waiting
from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.gate.creates.naming import Signature
from backoff_ctrl.k8s.gate.settings import VARIABLES, Settings, in_force, read_settings
from tests.kit.gated_creates import core_of, fill, pod

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox


def modes(text: str) -> dict[str, str]:
    return dict(read_settings({"BACKOFF_CTRL_MODE": text}).mode)


def test_a_mode_for_all_and_modes_of_namespaces() -> None:
    """A bare mode is that of all namespaces that are not named."""
    assert modes("") == {}
    assert modes("shadow") == {"*": "shadow"}
    assert modes(" Shadow , team-a=enforce,lab=off") == {"*": "shadow", "team-a": "enforce", "lab": "off"}
    assert modes("team-a=enforce,*=off") == {"team-a": "enforce", "*": "off"}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("shaddow", {"*": "shadow"}),
        ("enforce,team-a=of", {"*": "enforce", "team-a": "shadow"}),
        ("team-a:off", {"*": "shadow"}),
        ("enforce,off", {"*": "shadow"}),
        ("shadow;team=enforce", {"*": "shadow"}),
        ("enforce,Team_A=off", {"*": "shadow"}),
    ],
)
def test_a_typo_in_a_mode_sends_creates_at_once_as_without_the_gate(text: str, read: dict[str, str]) -> None:
    """It must neither stop a platform nor make its creates wait where that may not be meant."""
    found = read_settings({"BACKOFF_CTRL_MODE": text})
    assert found.mode == read
    (sentence,) = found.wrong
    assert sentence.startswith(f"BACKOFF_CTRL_MODE={text!r} is not understood at ")
    assert "write a mode (enforce, shadow, off)" in sentence


def test_other_typos_count_as_not_set() -> None:
    """Each has its sentence."""
    found = read_settings(
        {
            "BACKOFF_CTRL_TIMEOUT": "10m", "BACKOFF_CTRL_SERIES_MAX": "-1", "BACKOFF_CTRL_GATE_NAME": "a/b",
            "BACKOFF_CTRL_TRUSTED_GATES": "front,b c", "BACKOFF_CTRL_STATUS_TOKEN": "a-short-secret",
        }
    )  # fmt: skip
    assert (found.timeout, found.signature) == (None, Signature("", frozenset({"front"})))
    assert found.series_max == Settings().series_max
    assert [re.split("[:= ]", sentence)[0] for sentence in found.wrong] == [
        "BACKOFF_CTRL_TIMEOUT", "BACKOFF_CTRL_STATUS_TOKEN", "BACKOFF_CTRL_SERIES_MAX", "BACKOFF_CTRL_GATE_NAME",
        "BACKOFF_CTRL_TRUSTED_GATES",
    ]  # fmt: skip
    assert "a-short-secret" not in "".join(found.wrong)
    assert read_settings({"BACKOFF_CTRL_TIMEOUT": "nan"}).wrong


@given(st.dictionaries(st.sampled_from([each.name for each in VARIABLES.values()]), st.text()))
def test_no_text_stops_a_platform_and_no_secret_is_shown(texts: dict[str, str]) -> None:
    """Whatever the variables hold; each sentence names its variable, and each of ours has a value in force."""
    found = read_settings(texts)
    assert all(sentence.startswith(tuple(texts)) for sentence in found.wrong)
    shown = {each.name: each for each in in_force(texts)}
    assert {each.name for each in VARIABLES.values() if each.ours} <= shown.keys()
    texts["BACKOFF_CTRL_STATUS_TOKEN"] = "a-secret-of-this-test"
    assert not any("a-secret-of-this-test" in each.value for each in in_force(texts))


def test_the_defaults_are_those_of_an_empty_environment() -> None:
    """And a variable that is empty counts as not set, but for the ports and sockets that others pass."""
    ours = {each.name: "" for each in VARIABLES.values() if each.ours}
    assert read_settings({}) == read_settings(ours) == Settings()
    assert {each.source for each in in_force({})} == {"default"}


def test_a_typo_is_logged_once_and_doctor_reports_it(
    sandbox: BackgroundSandbox,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Creates work all the same."""
    monkeypatch.setenv("BACKOFF_CTRL_MODE", "typo-of-this-test")
    for _ in range(2):
        with GatedApiClient(client.Configuration(host=sandbox.url)) as api:
            core_of(api).create_namespaced_pod("team", pod())
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]

    assert [each.getMessage().partition(" is")[0] for each in errors] == ["BACKOFF_CTRL_MODE='typo-of-this-test'"]
    assert run(["doctor", "--apiserver", sandbox.url, "-n", "team"]) == 1
    assert "no  environment             BACKOFF_CTRL_MODE='typo-of-this-test'" in capsys.readouterr().out


def test_the_environment_sets_the_mode_of_clients_and_the_caller_may_set_another(
    sandbox: BackgroundSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off: the caller gets the server's 403. What the program says counts more."""
    configuration = client.Configuration(host=sandbox.url)
    monkeypatch.setenv("BACKOFF_CTRL_MODE", "off")
    with GatedApiClient(configuration, gate=Gate()) as api, GatedApiClient(configuration, mode="enforce") as strict:
        fill(sandbox, core_of(api))
        with pytest.raises(ApiException, match="exceeded quota") as caught:
            core_of(api).create_namespaced_pod("team", pod())
        assert not isinstance(caught.value, WaitedTooLong)
        with pytest.raises(WaitedTooLong), waiting(timeout=0.05):
            core_of(strict).create_namespaced_pod("team", pod())


def test_the_environment_limits_the_wait_where_nothing_else_does(
    sandbox: BackgroundSandbox, core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``waiting`` and the client's own option count more."""
    fill(sandbox, core)
    monkeypatch.setenv("BACKOFF_CTRL_TIMEOUT", "0.05")
    configuration = client.Configuration(host=sandbox.url)
    with GatedApiClient(configuration, gate=Gate()) as api, GatedApiClient(configuration, timeout=0.06) as own:
        for limited, text in ((api, "after 0.05 s"), (own, "after 0.06 s")):
            with pytest.raises(WaitedTooLong, match=text):
                core_of(limited).create_namespaced_pod("team", pod())
        with pytest.raises(WaitedTooLong, match=r"after 0\.07 s"), waiting(timeout=0.07):
            core_of(api).create_namespaced_pod("team", pod())


def test_a_gate_with_a_mode_has_no_line_of_its_own(sandbox: BackgroundSandbox) -> None:
    """It is a way into the shared ledger, whose quotas are watched; other clients keep their mode."""
    configuration, shadow = client.Configuration(host=sandbox.url), Gate(mode="shadow")
    with GatedApiClient(configuration) as plain, GatedApiClient(configuration, gate=shadow) as watching:
        assert watching.gate.ledger is plain.gate.ledger is shadow.ledger
        assert watching.sight is plain.sight is not None
        assert (watching.gate.mode("team"), plain.gate.mode("team")) == ("shadow", "enforce")
    with GatedApiClient(configuration, gate=Gate()) as apart:
        assert apart.gate.ledger is not shadow.ledger


def test_ids_of_trusted_gates_are_kept(sandbox: BackgroundSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables reach the names that are drawn."""
    monkeypatch.setenv("BACKOFF_CTRL_GATE_NAME", "here")
    monkeypatch.setenv("BACKOFF_CTRL_TRUSTED_GATES", "front, other")
    with GatedApiClient(client.Configuration(host=sandbox.url)) as api:
        for carried, kept in (("front/1", "front/1"), ("strange/1", "here/"), (None, "here/")):
            body = pod()
            if carried:
                body["metadata"]["annotations"] = {"backoff-ctrl.dev/create-id": carried}
            made = core_of(api).create_namespaced_pod("team", body)
            assert made.metadata.annotations["backoff-ctrl.dev/create-id"].startswith(kept)
