"""Writes docs/reliability.md from what the tests of faults recorded: ``python docs/reliability_page.py [--check]``.

``make faults`` runs them, on a real Kubernetes, and each leaves its figures in build/reliability. With ``--check`` the
page is held against the tests only: that it has a row for each of them, under its words, and that no row says that a
create was doubled or forgotten.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
SUITE: Final = ROOT / "tests" / "cluster"
RECORDS: Final = ROOT / "build" / "reliability"
PAGE: Final = ROOT / "docs" / "reliability.md"

HEAD: Final = """\
<!-- Written by docs/reliability_page.py from the records of `make faults`: run both again, do not edit. -->
# What happens when something breaks

A storm of 300 creates goes through the gated client as it is wired by default, into a namespace of a real Kubernetes
(etcd, kube-apiserver, kube-controller-manager) whose quota lets a part of them in at a time; a fake kubelet finishes
the pods. In the middle of it one thing breaks. In the end the API server is asked what there is: each create has to
exist exactly once, and nobody may be left waiting. Each row is a test in `tests/cluster/faults/`.

*Recovered*: from the end of the fault to the next create that was in. *Refused*: creates that a quota refused and that
were sent again; where two storms meet in one process, of both. The machine, which had other work to do as well:
{machines}. Run on {dates}.

| fault | exactly once | twice | lost | left waiting | recovered | all in after | refused by quota | seen |
|---|---|---|---|---|---|---|---|---|
"""
FOOT: Final = """
For the jumps of its clock the gate is one of the test's own, whose clock is given; it learns from refusals alone.

Without an idempotency key a process that is killed forgets what it had in line: those creates are *lost* to it, and the
platform that knows what it asked for can name them. None is made twice: what the dead process had sent either exists or
does not, and nobody sends it again. With a key ({key}) the platform simply asks for all of it again.

## What each row promises

{promises}
"""
KEY: Final = "`with waiting(key=...)`"


def main() -> int:
    """Write the page, or check it. Returns the exit code."""
    claims = faults()
    if "--check" in sys.argv[1:]:
        problems = wrong(claims, PAGE.read_text(encoding="utf-8") if PAGE.exists() else "")
        for problem in problems:
            sys.stderr.write(f"docs/reliability.md: {problem}\n")
        return bool(problems)
    missing = [name for name in claims if not (RECORDS / f"{name}.json").exists()]
    if missing:
        sys.stderr.write(f"no record of {', '.join(missing)}: run `make faults` first\n")
        return 1
    records = {name: json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8")) for name in claims}
    PAGE.write_text(written(claims, records), encoding="utf-8")
    return 0


def faults() -> dict[str, str]:
    """All faults, and what their tests claim: a test with parameters is one fault for each of its ids."""
    found = {}
    for path in sorted(SUITE.rglob("test_faults_of_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body:
            if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
                claim = " ".join((ast.get_docstring(node) or "").split()).replace("``", "`")
                for each in _ids(node) or [""]:
                    found[f"{node.name}_{each}".rstrip("_")] = claim
    return found


def _ids(test: ast.AsyncFunctionDef) -> list[str]:
    """The ids of ``pytest.mark.parametrize(..., ids=[...])``."""
    for decorator in test.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "ids":
                return [str(each) for each in ast.literal_eval(keyword.value)]
    return []


def words(name: str) -> str:
    """Return the name of a test as words."""
    said = name.removeprefix("test_").replace("_", " ").replace(" api ", " API ")
    return said[0].upper() + said[1:]


def written(claims: dict[str, str], records: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    machines = ", ".join(sorted({str(each["machine"]) for each in records.values()}))
    dates = sorted({str(each["date"]) for each in records.values()})
    rows = "\n".join(_row(name, records[name]) for name in claims)
    promises = "\n".join(f"- **{words(name)}.** {claim}" for name, claim in claims.items())
    head = HEAD.format(machines=machines, dates=" and ".join(dict.fromkeys((dates[0], dates[-1]))))
    return head + rows + "\n" + FOOT.format(key=KEY, promises=promises)


def _row(name: str, record: dict[str, Any]) -> str:
    refused = str(record["refused"].get("quota", 0)) if record["sent"] else "-"
    recovery = "-" if record["recovery"] is None else f"{record['recovery']:.2f} s"
    cells = [
        words(name),
        f"{record['once']} of {record['creates']}",
        str(record["twice"]),
        str(record["lost"]),
        str(record["forgotten"]),
        recovery,
        f"{record['seconds']:.1f} s",
        refused,
        record["noted"] or "-",
    ]
    return f"| {' | '.join(cells)} |"


def wrong(claims: dict[str, str], page: str) -> list[str]:
    """Say what is wrong with a page; figures may be any."""
    problems = []
    rows = {cells[0]: cells for line in page.splitlines() if (cells := line.strip("| ").split(" | "))[1:]}
    for name, claim in claims.items():
        cells = rows.get(words(name))
        if cells is None or len(cells) != 9:
            problems.append(f"no row for {words(name)!r}: run `make faults`, then python docs/reliability_page.py")
            continue
        if f"- **{words(name)}.** {claim}" not in page:
            problems.append(f"{words(name)!r} claims something else by now: run python docs/reliability_page.py")
        if cells[2] != "0" or cells[4] != "0":
            problems.append(f"{words(name)!r}: {cells[2]} twice, {cells[4]} left waiting")
    known = {words(name) for name in claims} | {"fault"}
    problems += [f"a row for {row!r}, which no test is of" for row in rows if row not in known]
    return problems


if __name__ == "__main__":
    sys.exit(main())
