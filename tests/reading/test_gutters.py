"""Texts that other programs have wrapped: in a box, behind a bar, behind the time on each line."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from backoff_ctrl.k8s.kube.answers.gutters import unwrapped
from backoff_ctrl.k8s.kube.answers.rejections import Lane, Rejection, read_rejection

FULL = (
    'Error from server (Forbidden): error when creating "f.yaml": pods "web-0" is forbidden: exceeded quota: team, '
    "requested: limits.memory=1500M,requests.cpu=1500m, used: limits.memory=7Gi,requests.cpu=1, "
    "limited: limits.memory=8Gi,requests.cpu=20"
)
MUST_SPECIFY = (
    'Error creating: pods "web-0" is forbidden: failed quota: team: must specify limits.cpu for: main,sidecar; '
    "limits.memory for: main; requests.cpu for: sidecar"
)
RBAC = 'pods is forbidden: User "system:serviceaccount:team:default" cannot create resource "pods" in API group ""'


def before(gutter: str) -> Callable[[Sequence[str]], list[str]]:
    return lambda lines: [gutter + line for line in lines]


def box(corners: str, side: str, flat: str, title: str = "") -> Callable[[Sequence[str]], list[str]]:
    def draw(lines: Sequence[str]) -> list[str]:
        width = max(map(len, lines))
        inner = [f"{side} {line.ljust(width)} {side}" for line in lines]
        top = title.center(width + 2, flat)
        return [f"{corners[0]}{top}{corners[1]}", *inner, f"{corners[2]}{flat * (width + 2)}{corners[3]}"]

    return draw


def clocked(lines: Sequence[str]) -> list[str]:
    return [f"2026-11-28T14:47:{number:02}.12345678{number % 10}Z {line}" for number, line in enumerate(lines)]


def hanging(begin: str, indent: str, aside: str = "") -> Callable[[Sequence[str]], list[str]]:
    """The first line begins with something of its own, and the others are indented."""
    return lambda lines: [begin + lines[0] + aside, *(indent + line for line in lines[1:])]


def literals(lines: Sequence[str]) -> list[str]:
    return ["(" + repr(lines[0]), *(f" {line!r}" for line in lines[1:-1]), f" {lines[-1]!r})"]


GUTTERS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "bar": before("| "),
    "indented bar": before("    | "),
    "line": before("│ "),
    "heavy line": before("┃ "),
    "quoted": before("> "),
    "quoted twice": before("> > "),
    "comment": before("# "),
    "docker": before("web-1  | "),
    "kubectl logs": before("[pod/web-0/main] "),
    "time": clocked,
    "time and level": lambda lines: clocked(before("ERROR ")(lines)),
    "time and bar": lambda lines: clocked(before("| ")(lines)),
    "clock": before("[14:47:07] "),
    "date and clock": before("2026-11-28 14:47:07,123 "),
    "zone": before("2026-11-28T14:47:07+01:00 "),
    "klog": before("E1128 14:47:07.123456       1 main.go:12] "),
    "syslog": before("Nov 28 14:47:07 host kubelet[123]: "),
    "container runtime": before("2026-11-28T14:47:07.123456789Z stderr F "),
    "coloured": before("\x1b[31m│\x1b[0m "),
    "box": box("╭╮╰╯", "│", "─"),
    "box with a title": box("╭╮╰╯", "│", "─", " Error "),
    "ascii box": box("++++", "|", "-"),
    "stars": box("****", "*", "*"),
    "double box": box("╔╗╚╝", "║", "═"),
    "box with a clock": lambda lines: before("14:47:07 ")(box("┌┐└┘", "│", "─")(lines)),
    # what is known of none of these but that all lines begin with it
    "pytest": before("E       "),
    "line numbers": lambda lines: [f"{number:6}\t{line}" for number, line in enumerate(lines, 8)],
    "grep": lambda lines: [f"{number}:{line}" for number, line in enumerate(lines, 8)],
    "bat": lambda lines: [f"{number:4} │ {line}" for number, line in enumerate(lines, 8)],
    "workflow": before("##[error]"),
    "airflow": before("[2026-11-28, 14:47:07 UTC] {pod_manager.py:123} ERROR - "),
    "log4j": before("2026-11-28 14:47:07,123 [main] ERROR com.example.Foo - "),
    "python": before("ERROR:root:"),
    "stern": before("web-0 main "),
    "indented": before("    "),
    "sql": before("-- "),
    "ini": before("; "),
    "bullet": before("• "),
    "quoted without a space": before(">"),
    "quoted in html": before("&gt; "),
    "added": before("+ "),
    "kernel": lambda lines: [f"[   {number:2}.141592] {line}" for number, line in enumerate(lines, 8)],
    "weekday and year": before("[Sat Nov 28 14:47:07 2026] "),
    "rfc 1123": before("Sat, 28 Nov 2026 14:47:07 GMT "),
    "american": before("11/28/2026 2:47:07 PM "),
    "compact": before("20261128T144707Z "),
    "elapsed": before("+00:01:02.123 "),
    "time and dash": before("14:47:07 - "),
    "gitlab": before("2026-11-28T14:47:07.123456Z 01O "),
    "syslog 5424": before("<34>1 2026-11-28T14:47:07Z host app 12 - - "),
    "key and value": before("level=error "),
    "chat": before("[14:47] <bob> "),
    "block box": box("████", "█", "█"),
    "tight box": lambda lines: [f"│{line}│" for line in [part.ljust(max(map(len, lines))) for part in lines]],
    "equal signs": box("++++", "|", "="),
    "hanging": hanging("", "    "),
    "a column": hanging("  Warning  FailedCreate  2m (x3 over 5m)  job-controller  ", " " * 58),
    "a key": hanging("    message: ", "      "),
    "a column beside a place": hanging("[14:47:07] ERROR    ", " " * 20, "   main.py:12"),
    "below a command": lambda lines: ["$ kubectl create -f f.yaml", *before("> ")(lines)],
}


def broken(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def cut(text: str, width: int) -> list[str]:
    return [text[at : at + width] for at in range(0, len(text), width)]


def stripped(text: str, width: int) -> list[str]:
    return [line.rstrip() for line in cut(text, width)]


def means(found: Rejection) -> tuple[object, ...]:
    return found.lane, found.quota, found.requested, found.used, found.limited, found.unspecified


@pytest.mark.parametrize("wrap", [broken, cut, stripped], ids=["at spaces", "at a width", "and stripped"])
@pytest.mark.parametrize("gutter", GUTTERS)
@pytest.mark.parametrize("text", [FULL, MUST_SPECIFY, RBAC], ids=["quota", "must specify", "rbac"])
def test_a_wrapped_answer_means_the_same(text: str, gutter: str, wrap: Callable[[str, int], list[str]]) -> None:
    """Whichever width it was wrapped at."""
    for width in (40, 50, 60, 77, 80, 100):
        given = "\n".join(GUTTERS[gutter](wrap(text, width)))
        assert means(read_rejection(0, {}, given)) == means(read_rejection(0, {}, text)), given


@pytest.mark.parametrize("wrap", [cut, lambda text, width: [f"{line} " for line in broken(text, width)]])
@pytest.mark.parametrize("text", [FULL, MUST_SPECIFY, RBAC], ids=["quota", "must specify", "rbac"])
def test_a_text_that_a_program_has_written_as_literals_means_the_same(
    text: str, wrap: Callable[[str, int], list[str]]
) -> None:
    """One a line, which a program joins as they are."""
    for width in (40, 60, 77, 100):
        given = "\n".join(literals(wrap(text, width)))
        assert means(read_rejection(0, {}, given)) == means(read_rejection(0, {}, text)), given


PROSE: Final[dict[str, tuple[list[str], str, list[str]]]] = {
    "mail": (
        ["Hello team,", "this is what I see today, with the newest version of it all:", ""],
        "> ",
        ["", "Any idea?"],
    ),
    "log": (["12:00:00 I begin", "12:00:01 I create a pod"], "12:00:02 ", ["12:00:03 I end"]),
    "test": (["def test_it():", ">   create()", ""], "E   ", ["", "test_it.py:3: ApiException"]),
}


@pytest.mark.parametrize("wrap", [cut, stripped], ids=["at a width", "and stripped"])
@pytest.mark.parametrize("around", PROSE)
@pytest.mark.parametrize("text", [FULL, MUST_SPECIFY], ids=["quota", "must specify"])
def test_a_refusal_is_found_between_other_lines(text: str, around: str, wrap: Callable[[str, int], list[str]]) -> None:
    """Which are not wrapped, or have a gutter of their own."""
    above, gutter, below = PROSE[around]
    for width in (50, 60, 77, 80, 100):
        given = "\n".join([*above, *before(gutter)(wrap(text, width)), *below])
        assert means(read_rejection(0, {}, given)) == means(read_rejection(0, {}, text)), given


@pytest.mark.parametrize("gutter", [each for each in GUTTERS if each != "a column beside a place"])
def test_a_status_with_a_gutter_is_read_as_one(gutter: str) -> None:
    """Printed over several lines."""
    status = {"kind": "Status", "apiVersion": "v1", "message": FULL, "code": 403, "details": {"retryAfterSeconds": 3}}
    given = "\n".join(GUTTERS[gutter](json.dumps(status, indent=2).splitlines()))
    found = read_rejection(0, {}, given)
    assert (found.lane, found.quota, found.retry_after) == (Lane.QUOTA, "team", 3.0)


@pytest.mark.parametrize(
    "text",
    [
        FULL,
        f"{FULL}\n{RBAC}",
        "one\ntwo\nthree",
        "- exceeded quota\n- is forbidden",
        "kind: Status\nmessage: |\n  pods is forbidden",
        "| one line alone",
        "| a |\nno bar here\nnor here\nand none here",
        "",
        "\n\n",
    ],
)
def test_what_has_no_gutter_stays_as_it_is(text: str) -> None:
    """A single line, a list, YAML, a bar somewhere."""
    assert unwrapped(text) == text


def test_a_log_with_several_refusals_keeps_its_lines() -> None:
    """They are equally long, but nothing is wrapped."""
    lines = [f'pods "web-{number}" is forbidden: exceeded quota: q, requested: pods=1' for number in range(4)]
    assert unwrapped("\n".join(clocked(lines))).splitlines() == lines


def test_an_answer_of_a_server_is_never_unwrapped() -> None:
    """The gate learns from it: what its message says stands where the server puts it."""
    planted = "| pods is forbidden: exceeded quota: q, requested:\n| pods=1, used: pods=1, limited: pods=1"
    assert read_rejection(403, {}, planted).lane is Lane.OTHER
    assert read_rejection(0, {}, planted).lane is Lane.QUOTA
