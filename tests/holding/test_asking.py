"""``backoff-ctrl holders`` and the server: which requests it sends, and how it handles unusual answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from backoff_ctrl.api.main import run
from tests.holding.objects import pod, quota
from tests.kit.scripted_server import Script, Seen, failure, scripted_server

if TYPE_CHECKING:
    from collections.abc import Callable


def cluster(answers: Callable[[str, dict[str, list[str]], Seen], Any]) -> Callable[[Seen], Any]:
    """Script an API server with a quota of pods, Secrets and widgets; ``answers`` may answer instead."""
    hard = {"pods": "9", "secrets": "9", "count/widgets.example.com": "9"}

    def answer(seen: Seen) -> Any:
        parts = urlsplit(seen.path)
        if (own := answers(parts.path, parse_qs(parts.query), seen)) is not None:
            return own
        if parts.path == "/version":
            return 200, {"gitVersion": "v1.36.3"}
        if parts.path.endswith("/resourcequotas"):
            return 200, {"items": [quota(hard, {"pods": "1", "secrets": "0"})]}
        if parts.path.endswith("/pods"):
            return 200, {"items": [pod("x")]}
        return (200, {"items": []}) if parts.path.startswith("/api/") else failure(404, "NotFound", "no")

    return answer


def nothing(path: str, query: dict[str, list[str]], seen: Seen) -> Any:
    """Answer nothing, so that the scripted cluster does."""


def ask(script: Script, *options: str) -> int:
    """Run ``holders`` against a scripted cluster; return its exit code."""
    return run(["holders", "-n", "team", "--apiserver", script.url, *options])


def test_only_the_metadata_of_secrets_is_requested(capsys: pytest.CaptureFixture[str]) -> None:
    """No secret data is read, and only the kinds that the quota charges are listed."""
    with scripted_server(cluster(nothing)) as script:
        assert ask(script) == 0
    capsys.readouterr()

    accepted = {urlsplit(seen.path).path: seen.headers["accept"] for seen in script.seen}
    assert accepted["/api/v1/namespaces/team/secrets"].startswith("application/json;as=PartialObjectMetadataList")
    assert accepted["/api/v1/namespaces/team/pods"] == "application/json"
    assert set(accepted) == {
        "/version",
        "/apis/example.com",
        *(f"/api/v1/namespaces/team/{kind}" for kind in ("pods", "resourcequotas", "secrets")),
    }


def test_a_list_that_expires_half_way_is_restarted(capsys: pytest.CaptureFixture[str]) -> None:
    """An expired continue token is answered 410; after the restart nothing is counted twice."""
    first_pages = []

    def answers(path: str, query: dict[str, list[str]], seen: Seen) -> Any:
        if not path.endswith("/pods"):
            return None
        if "continue" not in query:
            first_pages.append(path)
            return 200, {"metadata": {"continue": "t", "remainingItemCount": 1}, "items": [pod("x")]}
        return (200, {"items": [pod("y")]}) if len(first_pages) > 1 else failure(410, "Expired", "too old")

    with scripted_server(cluster(answers)) as script:
        assert ask(script, "--json") == 0
    holders = json.loads(capsys.readouterr().out)["quotas"][0]["resources"][0]["holders"]

    assert [each["owner"] for each in holders] == ["Pod/x", "Pod/y"]
    assert len(first_pages) == 2


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (410, "expired 3 times before it was read completely"),
        (429, "answered 429 to the list of pods (enough)"),
        (500, "answered 500"),
    ],
)
def test_a_list_that_fails_ends_with_one_line_and_code_2(
    status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A partial list would name the wrong holders."""
    with scripted_server(
        cluster(lambda path, *_: failure(status, "No", "enough") if path.endswith("/pods") else None)
    ) as script:
        assert ask(script) == 2
    (line,) = capsys.readouterr().err.splitlines()

    assert sentence in line
    assert line.endswith("try again")


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        ("resourcequotas", b"<html>Sign in</html>"),
        ("resourcequotas", b"[]"),
        ("pods", {"status": "ok"}),
        ("pods", {"items": 3}),
        ("pods", {"items": [], "metadata": "text"}),
        ("pods", {"items": [], "metadata": {"continue": "for ever"}}),
    ],
)
def test_an_answer_that_is_no_list_is_an_error(kind: str, page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A login proxy answers 200 with a page; that must not count as an empty list."""
    with scripted_server(cluster(lambda path, *_: (200, page) if path.endswith(f"/{kind}") else None)) as script:
        assert ask(script) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the list of {kind}" in line
    assert "proxy" in line


@pytest.mark.parametrize(
    "group", [{"preferredVersion": "x", "versions": [1, {}, {"groupVersion": 2}]}, {"versions": 5}, b"[]"]
)
def test_a_malformed_api_group_is_skipped(group: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Its objects cannot be listed; the other kinds are still reported."""
    with scripted_server(cluster(lambda path, *_: (200, group) if path == "/apis/example.com" else None)) as script:
        assert ask(script) == 0
    assert "Pod/x" in capsys.readouterr().out


def test_a_list_whose_pages_repeat_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """Even if the tokens repeat only after several pages."""
    pages = iter("abc" * 100)

    def answers(path: str, *_: Any) -> Any:
        return (200, {"items": [], "metadata": {"continue": next(pages)}}) if path.endswith("/pods") else None

    with scripted_server(cluster(answers)) as script:
        assert ask(script) == 2
    assert "the list of pods" in capsys.readouterr().err
    assert next(pages) == "b"


def test_a_custom_kind_is_found_in_the_version_that_serves_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The preferred version first, then the others."""
    versions = [{"groupVersion": f"example.com/v{number}"} for number in (1, 2)]
    served = {"preferredVersion": versions[1], "versions": versions}

    def answers(path: str, query: dict[str, list[str]], seen: Seen) -> Any:
        if path == "/apis/example.com":
            return 200, served
        return (200, {"items": [{"metadata": {"name": "w"}}]}) if path.startswith("/apis/example.com/v1/") else None

    with scripted_server(cluster(answers)) as script:
        assert ask(script, "--json") == 0
    resources = json.loads(capsys.readouterr().out)["quotas"][0]["resources"]

    (widgets,) = [each for each in resources if each["resource"] == "count/widgets.example.com"]
    assert [each["owner"] for each in widgets["holders"]] == ["widgets.example.com/w"]
    asked = [urlsplit(each.path).path for each in script.seen if "widgets" in each.path]
    assert asked == [f"/apis/example.com/v{number}/namespaces/team/widgets" for number in (2, 1)]


def test_malformed_objects_are_counted_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Malformed entries in the list of pods do not hide the valid ones."""
    items = [pod("x"), {"spec": 3}, "words", {"metadata": {"name": "y"}, "spec": {"containers": "z"}}]
    with scripted_server(
        cluster(lambda path, *_: (200, {"items": items}) if path.endswith("/pods") else None)
    ) as script:
        assert ask(script) == 0

    out = capsys.readouterr().out
    assert "Pod/x" in out
    assert "3 objects could not be read" in out


@pytest.mark.long
def test_a_leak_is_confirmed_by_a_second_reading(capsys: pytest.CaptureFixture[str]) -> None:
    """A create in flight at the first reading is stored at the second, so it is no leak."""
    readings = []

    def answers(path: str, query: dict[str, list[str]], seen: Seen) -> Any:
        if not path.endswith("/pods"):
            return None
        readings.append(path)
        return 200, {"items": [] if len(readings) == 1 else [pod("x")]}

    with scripted_server(cluster(answers)) as script:
        assert ask(script) == 0

    assert len(readings) == 2
    assert "leaked" not in capsys.readouterr().out
