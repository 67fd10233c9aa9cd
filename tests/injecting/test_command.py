"""``backoff-ctrl inject`` from its command line: what is wrong is refused before any pod meets it, and how it ends."""

from __future__ import annotations

import http.client
import signal
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner

from backoff_ctrl.api.main import cli
from backoff_ctrl.k8s.sidecar.authority import new_authority
from tests.injecting.test_strangers import review
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"backoff-ctrl.dev/inject": "true"}},
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--sidecar-arg=--hodl=3", "No such option '--hodl'"),
        ("--sidecar-arg=--hold=soon", "'soon' is not a valid float"),
        ("--sidecar-arg=--hold=-1", "--hold must be a number of seconds between 0 and 86400"),
        ("--sidecar-arg=--hold", "'--hold' requires an argument"),
        ("--sidecar-arg=--listen=0.0.0.0:1", "'--listen=0.0.0.0:1' can't be given"),
        ("--sidecar-arg=hold=1", "'hold=1' can't be given"),
        ("--request=cpu=2", "the sidecar's requests: cpu 2 is more than its limit, 1"),
        ("--limit=memory=0", "the sidecar's limits: memory must be more than 0"),
        ("--request=gpu=1", "'gpu' is not one of cpu, memory"),
    ],
)
def test_what_would_break_every_pod_is_refused_at_the_start(option: str, said: str) -> None:
    """Each labelled pod of the cluster would be refused, or never start. The replicas before serve on meanwhile."""
    done = CliRunner().invoke(cli, ["inject", "-f", "-", option], input=yaml.safe_dump(POD))
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_arguments_that_a_sidecar_takes_are_its() -> None:
    """Beside its own."""
    done = CliRunner().invoke(
        cli, ["inject", "-f", "-", "--sidecar-arg=--hold=20", "--sidecar-arg=--no-mark"], input=yaml.safe_dump(POD)
    )
    assert (done.exit_code, done.stderr) == (0, "")
    (made,) = yaml.safe_load_all(done.stdout)
    assert made["spec"]["initContainers"][0]["args"][-2:] == ["--hold=20", "--no-mark"]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"kind": "Deployment", "metadata": {"name": "d"}}, "Deployment d is not a pod and stays unchanged"),
        ({**POD, "metadata": {"name": "p"}}, 'Pod p lacks the label backoff-ctrl.dev/inject: "true"'),
        ({**POD, "metadata": {"name": "p", "labels": {"backoff-ctrl.dev/inject": "yes"}}}, "Pod p lacks the label"),
    ],
)
def test_what_the_webhook_would_not_be_asked_about_is_said(manifest: dict[str, object], said: str) -> None:
    """What is printed would not come true."""
    done = CliRunner().invoke(cli, ["inject", "-f", "-"], input=yaml.safe_dump(manifest))
    assert done.exit_code == 0
    assert said in done.stderr


@pytest.mark.long
def test_it_serves_on_at_its_end_until_its_service_has_forgotten_it(tmp_path: Path) -> None:
    """A labelled pod that was created meanwhile came without its sidecar, at each upgrade. A second signal ends it."""
    now = datetime.now(UTC)
    pem = tmp_path / "tls.pem"
    pem.write_bytes(new_authority(now).issue(["localhost"], now, timedelta(days=1)).pem)
    command = [
        sys.executable, "-m", "backoff_ctrl", "inject", "--listen=127.0.0.1:0", f"--tls-cert={pem}",
        f"--tls-key={pem}", "--apiserver=http://127.0.0.1:1", "--drain=3600",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        assert asked(port, "/readyz") == (200, "")
        process.send_signal(signal.SIGTERM)
        while asked(port, "/readyz")[0] == 200:
            pass
        assert asked(port, "/inject", review()) == (200, "close")  # and API servers connect anew, elsewhere
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def asked(port: int, path: str, body: bytes | None = None) -> tuple[int, str]:
    """Return status and Connection header of an answer."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=PATIENCE)
    connection.request("GET" if body is None else "POST", path, body)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, answer.headers.get("Connection") or ""
