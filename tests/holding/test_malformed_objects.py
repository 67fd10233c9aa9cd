"""Malformed objects are counted, and ``holders`` reports on the rest."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.lab.sandbox import running_sandbox


@pytest.mark.long
def test_a_time_beyond_the_calendar_is_malformed(capsys: pytest.CaptureFixture[str]) -> None:
    """A pod's deadline is after the year 9999: the page says that one object could not be read."""
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"pods": "3"})
        core: Any = client.CoreV1Api(client.ApiClient(client.Configuration(host=sandbox.url)))
        spec = {"containers": [{"name": "c", "image": "i"}], "activeDeadlineSeconds": 2147483647}
        core.create_namespaced_pod("team", {"metadata": {"name": "p"}, "spec": spec})
        core.patch_namespaced_pod_status("p", "team", {"status": {"startTime": "9999-12-31T23:59:59Z"}})

        code = run(["holders", "--apiserver", sandbox.url, "-n", "team"])
        assert code in (0, 1)
        assert "1 object could not be read" in capsys.readouterr().out
