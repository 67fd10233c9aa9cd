"""docs/sandbox.md, from the conformance suite in tests/cluster.

A case that runs on the sandbox and on a real Kubernetes is a promise, stated by its name and its docstring. A case
marked ``only_kubernetes`` is not; its marker says why. The sources are parsed, not imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUITE: Final = Path(__file__).parents[2] / "tests" / "cluster"
PAGE: Final = "docs/sandbox.md"
MARKER: Final = "only_kubernetes"
ACRONYMS: Final = re.compile(r"\b(api|json|yaml)\b")

HEAD: Final = """\
<!-- Written by `make pages` from the tests in tests/cluster: change those, then run it again. -->
# The sandbox

`backoff-ctrl sandbox` is an API server for trying out and testing clients that wait for quota. It speaks the Kubernetes
API over real HTTP, with ResourceQuota and LimitRange admission, and needs only Python. This page lists test
cases, not plans. Each case runs unchanged against the sandbox *and* against a real kube-apiserver 1.36 with etcd and
kube-controller-manager. For kubectl and for client-go informers the same commands run on both, and the output must be
the same. `make test` runs all of it, `make test-quick` the part that needs no Go.

## What it promises

{promises} promises in {themes} themes. Many cases are tried with several values.
"""

NOT_PROMISED: Final = """\
- **Scheduling.** There are no nodes and no scheduler: pods stay Pending until a client sets them to Running.
  `backoff-ctrl sandbox` starts a fake kubelet that does. `kubectl logs` says that there is no log; `exec`, `attach`
  and `port-forward` do not exist, nor do evictions and bindings.
- **Controllers**, except for quota, garbage collection, namespaces and what every namespace contains: the service
  account `default` and the ConfigMap `kube-root-ca.crt`, which has no certificate in it. Jobs, Deployments and others
  are stored, counted by `count/...` quotas and scaled, but no controller creates their pods. `backoff-ctrl
  sandbox --run-jobs` has a simulated one for Jobs. A real
  kube-controller-manager may do that: it works beside the sandbox (`--kubeconfig`, `--controllers=job-controller,...`).
- **Authentication and authorization.** Every client may do everything; tokens are not checked, and `kubectl auth can-i`
  says yes. The sandbox listens on 127.0.0.1 by default: leave it there.
- **Every kind.** `kubectl api-resources` lists those that are served: the kinds that quota counts, and those that users
  create beside them. Other API groups answer 404.
- **Networks and storage.** The address of a Service leads nowhere; a claim is never bound.
- **Webhooks, priority and fairness, audit.** They are missing. Overload, conflicts, lost answers and late events can be
  injected as faults: `/sandbox/faults`.
- **Durability.** All data is in memory, and lost when the sandbox stops.
- **Protobuf answers.** Protobuf is accepted in requests; answers are JSON, which every client accepts.
- **Every rule of every kind.** Bodies are validated against their schema. For pods, services, claims and quotas, the
  fields that charges depend on are validated, and what the cases above name; the rest of Kubernetes' validation is
  missing. A real server refuses a pod with invalid volumes, probes, tolerations or affinity with 422; the sandbox
  accepts it. It also accepts any schedule of a CronJob, any value of a PriorityClass, a LimitRange that contradicts
  itself, and options of a list that do not go together. Malformed bodies are refused with the same status code, but in
  words of the sandbox. `kubectl create token` is refused.
- **Every column.** Pods, quotas, events, Services, claims, Jobs, Deployments and what is created beside them have
  the columns of `kubectl get`. Other kinds show their name and when they were created, custom ones their name and age.
- **Owners of every field.** `managedFields` exist for objects that were applied by the server, and for no others: the
  first such apply meets what was there before as `before-first-apply`.
- **Deletes step by step.** What is to be deleted in the foreground is deleted in the background; a definition and its
  objects are gone at once; no finalizer protects a claim that a pod uses.
- **Warnings.** Answers have no `Warning` headers, which kubectl would print.
- **Extreme amounts.** A quantity of a thousand digits is capped at 10^60, where the real server computes with it.
"""


@dataclass(frozen=True)
class Case:
    """A test case: its name, what it claims and, where the sandbox does not promise it, why."""

    name: str
    claim: str
    reason: str = ""

    def line(self) -> str:
        """The line of the page for this case."""
        words = ACRONYMS.sub(lambda found: found[0].upper(), self.name.removeprefix("test_").replace("_", " "))
        return f"- {words[0].upper()}{words[1:]}." + (f" *{self.claim}*" if self.claim else "")


def page(present: str = "") -> str:
    """Return the text of the page."""
    del present
    found = themes()
    promised = {title: [case for case in cases if not case.reason] for title, cases in found.items()}
    promised = {title: cases for title, cases in promised.items() if cases}
    parts = [HEAD.format(promises=sum(map(len, promised.values())), themes=len(promised))]
    for title, cases in sorted(promised.items()):
        lines = "\n".join(case.line() for case in cases)
        parts.append(f"### {title}\n\n{lines}\n")
    parts.append(f"## What it does not promise\n\n{NOT_PROMISED}")
    excepted = [case for cases in found.values() for case in cases if case.reason]
    if excepted:
        excluded = [f"{case.line()} {case.reason}" for case in excepted]
        intro = "These cases run only on the real server:"
        parts.append("\n".join(["### On Kubernetes, but not in the sandbox", "", intro, "", *excluded, ""]))
    return "\n".join(parts)


def themes() -> dict[str, list[Case]]:
    """All cases that concern the sandbox, by the first line of the docstring of their module."""
    shared = _fixtures(_parsed(SUITE / "conftest.py"))
    found = {}
    for path in sorted(SUITE.rglob("test_*.py")):
        module = _parsed(path)
        cases = list(_cases(module, {**shared, **_fixtures(module)}))
        if cases:
            title = _line(ast.get_docstring(module) or path.stem).rstrip(".")
            found[title] = cases
    return found


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {each.arg for each in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]}


def _fixtures(module: ast.Module) -> dict[str, set[str]]:
    """The arguments of each fixture in a module."""
    return {
        each.name: _arguments(each)
        for each in _functions(module)
        if any("pytest.fixture" in ast.unparse(decorator) for decorator in each.decorator_list)
    }


def _cases(module: ast.Module, fixtures: Mapping[str, set[str]]) -> Iterator[Case]:
    """The tests of a module that run on the sandbox and on Kubernetes, or would without their marker."""
    above = next(filter(None, (_reason(marks) for marks in _marks(module))), "")
    for function in _functions(module):
        if function.name.startswith("test_") and _compares(_arguments(function), fixtures):
            reasons = [_reason(decorator) for decorator in function.decorator_list]
            claim = _line(ast.get_docstring(function) or "")
            yield Case(function.name, claim, next(filter(None, reasons), above))


def _compares(wanted: set[str], fixtures: Mapping[str, set[str]]) -> bool:
    """Whether a test runs on each of the servers, on both at once, or on the sandbox and its own Kubernetes."""
    seen: set[str] = set()
    waiting = set(wanted)
    while waiting:
        name = waiting.pop()
        seen.add(name)
        waiting |= fixtures.get(name, set()) - seen
    return "server" in seen or ("sandbox" in seen and bool(seen & {"kubernetes", "binaries"}))


def _marks(module: ast.Module) -> Iterator[ast.expr]:
    """The marks that a module sets on all its tests."""
    for node in module.body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "pytestmark" for target in node.targets):
            yield node.value


def _reason(marks: ast.expr) -> str:
    """The reason in ``pytest.mark.only_kubernetes("...")``, wherever it is in an expression."""
    for node in ast.walk(marks):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(f".{MARKER}"):
            return _line(str(ast.literal_eval(node.args[0])))
    return ""


def _line(text: str) -> str:
    """The first paragraph as one line, with code marked up as in Markdown."""
    return " ".join(text.partition("\n\n")[0].split()).replace("``", "`")
