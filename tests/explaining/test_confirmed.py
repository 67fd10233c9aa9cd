"""``confirm``: the API server's own answer to a dry run beside the explanation, with no rights but the caller's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backoff_ctrl.api.main import cli
from backoff_ctrl.k8s.kube.cluster.asking import find_place
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.explaining import confirm
from tests.explaining.asking import explain, job, pod, quota
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.scripted_server import Seen, scripted_server
from tests.serve.serving import serving, until
from tests.status.asking import ask

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

JSON = dict[str, Any]
KINDS: JSON = {
    "resources": [
        {"name": "pods/status", "kind": "Pod", "namespaced": True},
        {"name": "pods", "kind": "Pod", "namespaced": True},
        {"name": "namespaces", "kind": "Namespace", "namespaced": False},
    ]
}


def refusal(message: str, code: int = 403) -> tuple[int, JSON]:
    """A Status of the server."""
    reason = {403: "Forbidden", 409: "AlreadyExists", 400: "BadRequest"}.get(code, "")
    return code, {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}


FULL = refusal('pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4')
NEVER = refusal('pods "p" is forbidden: exceeded quota: q, requested: cpu=9, used: cpu=0, limited: cpu=4')
MAY_NOT = refusal('pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "team"')
NO_DRY_RUN = refusal('admission webhook "w.example" does not support dry run', 400)
LIMITS = refusal('pods "p" is forbidden: maximum cpu usage per Container is 1, but request is 2')
THERE = refusal('pods "p" already exists', 409)


@pytest.mark.parametrize(
    ("used", "answer", "verdict", "agrees"),
    [
        ("1", (201, {}), "now", True),
        ("4", (201, {}), "now", False),
        ("4", FULL, "wait", True),
        ("1", FULL, "wait", False),
        ("4", NEVER, "never", False),
        ("1", LIMITS, "refused", False),
        ("1", MAY_NOT, "refused", None),
        ("1", THERE, "refused", None),
        ("1", NO_DRY_RUN, "unknown", None),
        ("1", (429, {}), "unknown", None),
        ("1", (500, {}), "unknown", None),
    ],
)
def test_two_answers_are_compared(used: str, answer: tuple[int, JSON], verdict: str, agrees: bool | None) -> None:
    """What an explanation never looks at, it can't be wrong about: rights, webhooks, names that are taken."""
    found = explain(pod(), quota("q", {"pods": "4"}, {"pods": used}))
    asked: list[tuple[str, str]] = []

    def server(method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, JSON]:
        asked.append((method, path))
        return (200, KINDS) if method == "GET" else answer

    said = confirm(pod(), "team", found, server)
    assert (said.verdict, said.agrees, said.status) == (verdict, agrees, answer[0])
    assert said.message == answer[1].get("message", said.message)
    assert asked == [("GET", "/api/v1"), ("POST", "/api/v1/namespaces/team/pods?dryRun=All")]
    assert any("reserves and charges nothing" in each for each in said.untold)


def test_what_the_server_names_is_told_in_amounts() -> None:
    """As the blockers of the explanation are; for what makes pods, that these were not tried."""
    found = explain(job(), quota("q", {"count/jobs.batch": "1"}, {"count/jobs.batch": "1"}))
    text = 'jobs.batch "j" is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=1, '
    answer = refusal(text + "limited: count/jobs.batch=1")
    jobs = {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]}
    said = confirm(job(), "team", found, lambda method, *_: (200, jobs) if method == "GET" else answer)
    (blocker,) = said.blockers
    assert (blocker.quota, blocker.resource, blocker.asked, blocker.left) == ("q", "count/jobs.batch", "1", "0")
    assert any("not what its controller makes" in each for each in said.untold)


@pytest.mark.parametrize("version", ["v1/../../secrets", "../v1", "a/b/c", "V1", ""])
def test_a_manifest_names_a_kind_and_no_path(version: str) -> None:
    """What comes from outside must not lead the server's name anywhere else."""
    found = explain(pod(), quota("q", {"pods": "4"}))
    said = confirm({**pod(), "apiVersion": version}, "team", found, lambda *_: pytest.fail("it asked"))
    assert (said.verdict, said.agrees) == ("refused", None)


def test_who_is_nobody_to_the_server_is_told_to_send_a_token() -> None:
    """401, and a 403 for the anonymous user."""
    found = explain(pod(), quota("q", {"pods": "4"}))
    anonymous = refusal('pods is forbidden: User "system:anonymous" cannot create resource "pods"')
    for answer in (refusal("Unauthorized", 401), anonymous):
        with pytest.raises(ProblemError) as caught:
            confirm(pod(), "team", found, lambda *_, answer=answer: answer)
        assert caught.value.problem.status == 401
        assert caught.value.problem.errors[0].pointer == "#/headers/Authorization"


def test_no_credential_of_ours_goes_along(tmp_path: Path) -> None:
    """A client certificate would count for more than the caller's token, and lend the caller our rights."""
    file = write_kubeconfig(tmp_path / "config", "https://127.0.0.1:1", {"token": "ours"})
    place = find_place(None, file, None, None)
    place.configuration.cert_file = place.configuration.key_file = "/ours.pem"
    place.configuration.username, place.configuration.password = "our", "password"
    setattr(place.configuration, "refresh_api_key_hook", print)  # noqa: B010 - its type says None
    theirs, nobody = place.as_bearer("theirs"), place.as_bearer("")
    assert theirs.headers() == {"authorization": "Bearer theirs"}
    assert nobody.headers() == {}
    for each in (theirs, nobody):
        kept = vars(each.configuration)
        assert (kept["cert_file"], kept["key_file"], kept["refresh_api_key_hook"]) == (None, None, None)
        assert "ours" not in str(kept)
        assert each.configuration.host == "https://127.0.0.1:1"


@pytest.mark.long
def test_serve_never_lends_its_rights(tmp_path: Path) -> None:
    """Its own token lists quotas; a dry run carries the caller's token, or none at all."""

    def answer(seen: Seen) -> tuple[int, Any]:
        who = seen.headers.get("authorization")
        if seen.path.startswith("/version"):
            return 200, {"gitVersion": "v1.36.3"}
        if seen.path == "/api/v1":
            return (200, KINDS) if who else refusal("Unauthorized", 401)
        if seen.method == "POST":
            return (201, {}) if who == "Bearer theirs" else refusal("Unauthorized", 401)
        return 404, {}

    with scripted_server(answer) as script:
        file = write_kubeconfig(tmp_path / "config", script.url, {"token": "ours"})
        with serving("--kubeconfig", file, quiet=False) as url:
            body = json.dumps(pod()).encode()

            def confirmed(**headers: str) -> Any:
                path = "/v1/explain?confirm=true"
                return ask(url, path, method="POST", body=body, Content_Type="application/json", **headers)

            assert (confirmed().status, confirmed().json["errors"][0]["pointer"]) == (401, "#/headers/Authorization")
            assert confirmed(Authorization="Bearer wrong").status == 401
            found = confirmed(Authorization="Bearer theirs")
            assert (found.status, found.json["confirmation"]["verdict"]) == (200, "now")
        assert {each.headers.get("authorization") for each in script.of("POST")} == {"Bearer wrong", "Bearer theirs"}
        assert any(each.headers.get("authorization") == "Bearer ours" for each in script.of("GET"))


@pytest.mark.long
def test_the_command_asks_as_its_user(tmp_path: Path) -> None:
    """And says what a dry run can't show."""
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"pods": "0"})
        file = write_kubeconfig(tmp_path / "config", sandbox.url)
        run = CliRunner().invoke(
            cli, ["explain", "-f", "-", "--kubeconfig", file, "--confirm"], input=json.dumps(pod())
        )
        assert run.exit_code == 0, run.output
        assert "the API server agrees: would wait" in run.output
        assert "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0" in run.output
        assert "a dry run can't show: " in run.output
        listed = ask(sandbox.url, "/api/v1/namespaces/team/pods").json["items"]
        assert listed == []
        with serving("--apiserver", sandbox.url) as url:
            until(lambda: ask(url, "/readyz").status == 200)
            run = CliRunner().invoke(
                cli, ["explain", "-f", "-", "--gate", url, "--confirm", "--json"], input=json.dumps(pod())
            )
            assert (run.exit_code, json.loads(run.output)["confirmation"]["agrees"]) == (0, True), run.output


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--token-file", "x"), "--confirm"),
        (("--confirm", "--kubeconfig", "x", "--token-file", "x"), "--confirm"),
        (("--confirm", "--token-file", "/absent"), "can't be read"),
        (("--confirm", "--token-file", "/dev/null"), "holds no token: write one there with kubectl create token"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: tuple[str, ...], word: str) -> None:
    """Exit code 2."""
    run = CliRunner().invoke(cli, ["explain", "-f", "-", *arguments], input=json.dumps(pod()))
    assert (run.exit_code, word in run.output, run.output.count("\n")) == (2, True, 1), run.output
