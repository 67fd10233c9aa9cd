"""docs/reliability.md, from the records of the fault tests.

``make faults`` runs these tests on a real Kubernetes; each writes its figures to build/reliability. Without a run the
page is compared with the tests: there must be a row for each test, with the words of its name and docstring, and no
row may show a create that was made twice or left waiting.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
SUITE: Final = ROOT / "tests" / "cluster"
RECORDS: Final = ROOT / "build" / "reliability"
PAGE: Final = "docs/reliability.md"

HEAD: Final = """\
<!-- Written by `make faults` from the records of its tests: run it again, do not edit. -->
# What happens when something breaks

A storm of 300 creates is sent through the gated client with its default wiring, into a namespace of a real Kubernetes
(etcd, kube-apiserver, kube-controller-manager). Its quota allows only some of them at a time; a fake kubelet finishes
the pods. In the middle of it one thing breaks. At the end the API server is asked which pods exist: each create must
exist exactly once, and no request may be left waiting. Each row is a test in `tests/cluster/faults/`.

*Recovered*: from the end of the fault to the next successful create. *All created after*: from the start of the storm.
*Refused by quota*: creates that a quota refused and that were sent again; where two storms share a process, those of
both. The machine, which had other load as well: {machines}. Run on {dates}.

| fault | exactly once | twice | lost | left waiting | recovered | all created after | refused by quota | notes |
|---|---|---|---|---|---|---|---|---|
"""
FOOT: Final = """
The tests of clock jumps use a gate with a clock of their own; that gate only learns from refusals.

Without an idempotency key a killed process loses the creates that were waiting in line: they are *lost* to it, but the
platform that requested them knows which they are. None is created twice: each create that the dead process had sent
either exists or does not, and is not sent again. With a key ({key}) the platform simply requests all of them again.

## What each row promises

{promises}
"""
KEY: Final = "`with waiting(key=...)`"


def records() -> dict[str, dict[str, Any]]:
    """Return what the tests wrote, by fault. Ends the program where one was not run."""
    missing = [name for name in faults() if not (RECORDS / f"{name}.json").exists()]
    if missing:
        raise SystemExit(f"no record of {', '.join(missing)}: run `make faults` first")
    return {name: json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8")) for name in faults()}


def faults() -> dict[str, str]:
    """All faults with the docstrings of their tests: a test with parameters is one fault for each of its ids."""
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
    """Return the name of a test as a sentence."""
    said = name.removeprefix("test_").replace("_", " ").replace(" api ", " API ")
    return said[0].upper() + said[1:]


def page(records: dict[str, dict[str, Any]]) -> str:
    """Return the text of the page."""
    claims = faults()
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


def wrong(page: str) -> list[str]:
    """Return what is wrong with a page, a line each; its figures are not checked."""
    claims = faults()
    problems = []
    rows = {cells[0]: cells for line in page.splitlines() if (cells := line.strip("| ").split(" | "))[1:]}
    for name, claim in claims.items():
        cells = rows.get(words(name), [])
        if len(cells) != 9:
            problems.append(f"no row for {words(name)!r}: run `make faults`")
            continue
        if f"- **{words(name)}.** {claim}" not in page:
            problems.append(f"the promise of {words(name)!r} is outdated: run `make faults`")
        if cells[2] != "0" or cells[4] != "0":
            problems.append(f"{words(name)!r}: {cells[2]} twice, {cells[4]} left waiting")
    known = {words(name) for name in claims} | {"fault"}
    problems += [f"a row for {row!r}, for which there is no test" for row in rows if row not in known]
    return problems
