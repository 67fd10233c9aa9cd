"""``backoff-ctrl ceilings`` and ``waiting`` at a real gate whose creates wait on the sandbox."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from backoff_ctrl.api.main import run
from tests.kit.gated_creates import pod
from tests.kit.scripted_server import Seen, scripted_server

if TYPE_CHECKING:
    import pytest

    from tests.status.asking import Crowd


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """Run a command that answers; return its lines, each in words."""
    assert run(list(arguments)) == 0
    out, err = capsys.readouterr()
    assert not err
    return [line.split() for line in out.splitlines()]


def asked_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command with ``--json``; return its document."""
    assert run([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert not err
    return json.loads(out)


def test_who_waits_is_a_line_each_in_the_order_of_the_line(crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    """Namespace, name, age, place, reason, estimate, and all that blocks it."""
    crowd.wait_with("second")
    crowd.wait_with("third")
    head, *lines = asked(capsys, "waiting", "--gate", crowd.url)
    assert head == ["namespace", "name", "waited", "place", "reason", "blocked", "by"]
    blocked = ["q", "pods:", "asked", "1,", "left", "0"]
    assert [[*line[:2], *line[3:]] for line in lines] == [
        ["team", "pods/second", "1", "quota", *blocked],
        ["team", "pods/third", "2", "quota", *blocked],
    ]
    assert all(line[2].endswith("s") for line in lines)
    assert asked(capsys, "waiting", "-n", "team", "--gate", crowd.url, "--limit", "1")[2][:2] == ["1", "more:"]


def test_nothing_waits_is_said_and_no_failure(crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0; with JSON an empty list."""
    crowd.wait_with("second")
    assert run(["waiting", "--gate", crowd.url, "-n", "other"]) == 0
    assert capsys.readouterr().out == "Nothing waits in namespace other.\n"
    found = asked_json(capsys, "waiting", "--gate", crowd.url, "-n", "other")
    assert (found["items"], found["more"]) == ([], 0)
    assert run(["ceilings", "--gate", crowd.url, "-n", "other", "--quota", "q"]) == 0
    assert capsys.readouterr().out == "The gate knows no ceilings of namespace other, quota q.\n"


def test_ceilings_say_how_full_they_are_and_what_creates_wait_for(
    crowd: Crowd, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one learned from the refusal: source, age, and the next probe."""
    crowd.wait_with("second")
    head, line = asked(capsys, "ceilings", "--gate", crowd.url)
    amounts = "used held reserved limited left full"
    assert " ".join(head) == f"namespace quota resource {amounts} source heard waits for"
    assert line[:10] == ["team", "q", "pods", "1", "0", "0", "1", "0", "100%", "learned"]
    assert line[10].endswith("s")
    assert line[11:16] == ["ago", "room,", "or", "a", "probe"]
    assert line[16] == "in"


def test_the_fullest_come_first_and_filters_choose(crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    """Amounts are compared, not texts: 900m of 1 is fuller than 8 of 10; the JSON has the same order.

    Of equally full ones the first by namespace comes first.
    """
    observe(crowd, "a", {"pods": ("8", "10"), "requests.memory": ("1Gi", "4Gi"), "services": ("0", "0")})
    observe(crowd, "b", {"requests.cpu": ("900m", "1")})
    crowd.wait_with("second")  # in team, of the quota q: full, and it blocks
    observe(crowd, "c", {"services": ("0", "0"), "pods": ("0", "0")})
    crowd.wait_with("third", namespace="c")  # a pod: it asks for no services
    lines = asked(capsys, "ceilings", "--gate", crowd.url)[1:]
    assert [line[2] for line in lines] == ["pods", "pods", "requests.cpu", "pods", "requests.memory", *2 * ["services"]]
    assert [line[8] for line in lines] == ["paused", "100%", "90%", "80%", "25%", "none", "none"]
    assert lines[4][3:8] == ["1Gi", "0", "0", "4Gi", "3Gi"]
    assert lines[4][9] == "observed"
    items = asked_json(capsys, "ceilings", "--gate", crowd.url)["items"]
    assert [item["resource"] for item in items] == [line[2] for line in lines]
    chosen = asked(capsys, "ceilings", "--gate", crowd.url, "-n", "a", "--quota", "q", "--resource", "pods")[1:]
    assert [line[:3] for line in chosen] == [["a", "q", "pods"]]


def observe(crowd: Crowd, namespace: str, amounts: dict[str, tuple[str, str]]) -> None:
    """Let the gate know a quota ``q`` of a namespace, of used and limited amounts."""
    from backoff_ctrl.engine.facts.quantities import parse_quantity  # noqa: PLC0415
    from backoff_ctrl.engine.facts.quotas import ObservedQuota  # noqa: PLC0415

    limited = {name: parse_quantity(of) for name, (_, of) in amounts.items()}
    used = {name: parse_quantity(used) for name, (used, _) in amounts.items()}
    crowd.gate.ledger.observe_quota(namespace, "q", ObservedQuota(limited, limited, used))


def test_the_json_is_what_the_instance_answers(crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    """One document: the items of the API as they came, when it was read, and how many a limit leaves out."""
    crowd.wait_with("second")
    crowd.wait_with("third")
    found = asked_json(capsys, "waiting", "--gate", crowd.url)
    whole = crowd.get("/v1/waiting")["items"]
    assert list(found) == ["as_of", "items", "more"]
    assert [item["name"] for item in found["items"]] == ["second", "third"]
    assert [item.keys() for item in found["items"]] == [item.keys() for item in whole]
    limited = asked_json(capsys, "waiting", "--gate", crowd.url, "--limit", "1")
    assert ([item["name"] for item in limited["items"]], limited["more"]) == (["second"], 1)


def test_the_environment_names_the_instance(
    crowd: Crowd, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does for the program that holds the gate; a proxy of the environment is not asked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("BACKOFF_CTRL_STATUS", crowd.url.removeprefix("http://"))
    assert asked_json(capsys, "waiting")["items"] == []
    assert asked_json(capsys, "waiting", "--gate", crowd.url.removeprefix("http://") + "/v1/")["items"] == []


def test_control_characters_of_a_name_are_not_printed(crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that the server refuses in the end still waits meanwhile; nothing of it moves the cursor."""
    crowd.wait_with("second")
    crowd.wait_with("x", manifest=pod("a\x1b[31mb\nc"))
    assert asked(capsys, "waiting", "--gate", crowd.url)[2][1] == "pods/a?[31mb?c"
    assert run(["waiting", "--gate", crowd.url, "--json"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_all_pages_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    """1,001 rows on two pages: the table shows 1,000 and says that there is one more; JSON has them all."""
    with scripted_server(pages) as script:
        _, *lines, last = asked(capsys, "waiting", "--gate", script.url)
        assert len(lines) == 1000
        assert [lines[0][1], lines[999][1]] == ["pods/p0", "pods/p999"]
        assert last[:2] == ["1", "more:"]
        assert len(asked_json(capsys, "waiting", "--gate", script.url)["items"]) == 1001
        assert asked_json(capsys, "waiting", "--gate", script.url)["as_of"] == "2026-11-22T10:00:00Z"


def item(number: int) -> dict[str, Any]:
    """One create that waits, with a key of a later version."""
    return {
        "id": str(number), "gate": "g", "namespace": "team", "kind": "pods", "name": f"p{number}", "owner": None,
        "labels": {}, "gang": None, "priority": 0, "since": "2026-11-22T09:57:00Z", "place": number + 1,
        "reason": "quota", "next_probe_at": None, "estimated_at": "2026-11-22T10:05:00Z", "later": True,
        "blockers": [{"quota": "q", "resource": f"r{n}", "asked": "2", "left": "1", "limited": "9"} for n in range(5)],
    }  # fmt: skip


def pages(seen: Seen) -> Any:
    """Answer 1,001 creates that wait, on two pages."""
    first = "after=" not in seen.path
    assert "limit=1000" in seen.path
    return 200, {
        "as_of": "2026-11-22T10:00:00Z" if first else "2026-11-22T10:00:09Z",
        "items": [item(number) for number in (range(1000) if first else [1000])],
        "next": "c" if first else None,
    }


def test_a_row_tells_ages_and_estimates_by_the_clock_of_the_instance(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the time is here; of many blockers the first three are shown."""
    with scripted_server(pages) as script:
        row = asked(capsys, "waiting", "--gate", script.url, "--limit", "1")[1]
    assert row[2:7] == ["3m", "1", "quota", "in", "5m"]
    blocked = "q r0: asked 2, left 1; q r1: asked 2, left 1; q r2: asked 2, left 1; and 2 more"
    assert " ".join(row[7:]) == blocked


def several(seen: Seen) -> Any:
    """Answer the first in the lines of two gates, one of them at its first requests."""
    one = {**item(0), "gate": "a", "estimated_at": None, "estimated_by": "2026-11-22T10:00:40Z", "blockers": []}
    other = {**item(0), "gate": "b", "estimated_at": None, "reason": "first-contact", "blockers": []}
    return 200, {"as_of": "2026-11-22T10:00:00Z", "items": [one, other], "next": None}


def test_each_place_is_in_the_line_of_a_gate(capsys: pytest.CaptureFixture[str]) -> None:
    """Of several gates each has a first one. Its wait has a bound where no time is likely; reasons are words."""
    with scripted_server(several) as script:
        _, one, other = asked(capsys, "waiting", "--gate", script.url)
    assert one[2:] == ["3m", "1", "at", "a", "quota", "within", "40s"]
    assert other[2:] == ["3m", "1", "at", "b", "first", "requests", "to", "a", "namespace", "-"]


def test_the_commands_load_no_client_of_kubernetes() -> None:
    """They start as fast as the commands that only read."""
    script = (
        "import sys; from backoff_ctrl.api.main import run; run(['ceilings', '-h']); run(['waiting', '-h']);"
        "print(sorted({'kubernetes', 'aiohttp', 'asyncio', 'rich', 'yaml', 'tenacity'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def mixed(seen: Seen) -> Any:
    """Answer a create and a ceiling whose amounts have three units."""
    memory = {"quota": "q", "resource": "limits.memory", "limited": "4Gi"}
    one = {**item(0), "blockers": [{**memory, "asked": "1536Mi", "left": "524288Ki"}]}
    full = {
        **memory, "namespace": "team", "used": "3584Mi", "held": "0", "reserved": "0", "headroom": "524288Ki",
        "unsettled": "0", "kept": False, "source": "observed", "heard_at": "2026-11-22T10:00:00Z", "trend": "-128Mi",
        "block": None, "waiting": 1,
    }  # fmt: skip
    items = [one] if seen.path.startswith("/v1/waiting") else [full]
    return 200, {"as_of": "2026-11-22T10:00:00Z", "items": items, "next": None}


def test_amounts_that_are_compared_have_one_unit(capsys: pytest.CaptureFixture[str]) -> None:
    """That of the limit; JSON has them as the API has."""
    with scripted_server(mixed) as script:
        assert asked(capsys, "waiting", "--gate", script.url)[1][-6:] == [
            "q", "limits.memory:", "asked", "1.5Gi,", "left", "0.5Gi",
        ]  # fmt: skip
        row = asked(capsys, "ceilings", "--gate", script.url)[1]
        assert row[3:10] == ["3.5Gi", "0", "0", "4Gi", "0.5Gi", "87%", "-0.12Gi"]
        assert asked_json(capsys, "ceilings", "--gate", script.url)["items"][0]["headroom"] == "524288Ki"
