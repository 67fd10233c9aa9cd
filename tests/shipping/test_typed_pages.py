"""What the pages tell one to type is right: no block and no command is there that nothing checks.

What can run here is run by the tests that `RUN` names. Everything, also what needs a registry or somebody's cluster, is
read as its program reads it: command lines by our own parser, manifests, tasks and settings by their readers.
"""

from __future__ import annotations

import ast
import configparser
import itertools
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from backoff_ctrl.api.commands.doctor import command as doctor
from backoff_ctrl.api.main import COMMANDS, cli
from backoff_ctrl.k8s.gate.events.webhooks import read_receivers
from backoff_ctrl.k8s.kube.operators.operator_config import OPERATORS, OperatorConfig
from backoff_ctrl.k8s.status.catalogue import METRICS
from backoff_ctrl.k8s.status.endpoints import URLS
from backoff_ctrl.k8s.tasks.model import Task
from backoff_ctrl.k8s.tasks.plugins.config_file import settings_from, without_effect
from backoff_ctrl.k8s.workloads.admitting.described import WAITING_KINDS
from tests.kit.pages import KUBERNETES, PAGES, ROOT, TRACKED, Block, Typed, blocks, spans, text_of, typed_in
from tools.pages import tables

RUN: Final = {
    "ARCHITECTURE.md": {"python": (1, "tests/shipping/test_examples_of_pages.py")},
    "README.md": {"python": (1, "tests/shipping/test_examples_of_pages.py")},
    "docs/clients.md": {"python": (3, "tests/programs/examples.py")},
    "docs/gangs.md": {"python": (3, "tests/shipping/test_examples_of_pages.py")},
    "docs/how-to/describe-an-operator.md": {"": (2, "tests/tasks/test_operator_page.py")},
    "docs/how-to/describe-a-service.md": {"": (3, "tests/tasks/test_service_page.py")},
    "docs/how-to/embed-the-manager.md": {"python": (1, "tests/tasks/managing/test_embedding_page.py")},
    "docs/how-to/jobs-that-wait.md": {"prints": (4, "tests/cluster/kubectl/test_pages_typed.py")},
    "docs/how-to/run-a-task.md": {"prints": (3, "tests/tasks/commanding/test_how_to_page.py")},
    "docs/how-to/tasks-with-kubectl.md": {"prints": (5, "tests/cluster/tasks/custom_resources/test_page.py")},
    "docs/how-to/write-a-plugin.md": {"python": (4, "tests/shipping/test_wheel.py")},
    "docs/how-to/write-a-web-plugin.md": {"python": (1, "tests/tasks/webapi/test_secrets.py")},
    "docs/metrics.md": {"python": (1, "tests/shipping/test_examples_of_pages.py")},
    "docs/quick-start.md": {"prints": (5, "tests/cluster/kubectl/test_pages_typed.py")},
    "docs/sidecar.md": {"prints": (1, "tests/cluster/kubectl/test_pages_typed.py")},
    "docs/status-api.md": {
        "python": (1, "tests/status/test_page_of_the_status.py"),
        "prints": (5, "tests/status/test_page_of_the_status.py"),
    },
}
"""What is run, and what is printed: how many programs, commands that print and texts without a kind a page has, and
what follows them. One more of them is a failure here, until something follows that as well."""
DRAWN: Final = ("README.md", "ARCHITECTURE.md")
"""Pages with one picture made of letters."""
CREATORS: Final = tuple(
    f"docs/how-to/{name}.md"
    for name in ("airflow", "dask", "gitlab-runner", "inject-the-sidecar", "jenkins", "jupyterhub", "spark")
)
"""Values of other programs' charts, and objects of their operators: test_how_to_pages.py reads what is ours in them."""
THEIRS: Final = frozenset({"my_platform.py"})
"""Files that stand for what readers have themselves."""
OTHERS: Final = frozenset({"--auth-token-audiences", "--controllers", "--force-conflicts", "--recursive", "--token"})
"""Options of kubectl, kube-rbac-proxy and kube-controller-manager that pages name without their program."""
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS: Final = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's folder, with the files that commands name."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_no_block_is_there_that_nothing_checks(page: str) -> None:
    """Each is of a kind that is known, can be read, and is run where it is a program or shows what is printed."""
    found = blocks(page)
    assert len(re.findall(r"^ *(```|~~~)", text_of(page), re.MULTILINE)) == 2 * len(found), "a fence is not closed"
    for block in found:
        assert block.kind in CHECKS, f"{block}: nothing knows how to check a block of {block.kind!r}"
        CHECKS[block.kind](block)
    prints = sum(bool(each.printed) for block in found if block.kind == "console" for each in typed_in(block))
    counts = {"python": len(blocks(page, "python")), "": len(blocks(page, "")) - (page in DRAWN), "prints": prints}
    followed = {kind: number for kind, (number, _) in RUN.get(page, {}).items()}
    assert {kind: number for kind, number in counts.items() if number} == followed, (
        f"{page}: have a test follow it (RUN)"
    )


@pytest.mark.parametrize("page", RUN)
def test_what_follows_a_page_names_it(page: str) -> None:
    """So that it is found from there."""
    for _, test in RUN[page].values():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8"), test


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_are_as_they_are_typed(page: str) -> None:
    """Options exist, and so do variables and metrics. What is left out there, and FILE or NAME, need not be."""
    for said in spans(page):
        if re.match(r"(BACKOFF_CTRL_\S+ )*(backoff-ctrl|kubectl backoff|make|pip|python|helm|docker|curl) [^ ]", said):
            assert_command(Typed(page, re.sub(r" \.\.\.", "", said)), whole=False)
    for name in re.findall(r"\bBACKOFF_CTRL_[A-Z_]+\b(?!\*)", text_of(page)):
        assert "__" in name or name in variables(), f"{page}: nothing reads {name}"
    options = {said.split()[0].partition("=")[0] for said in spans(page) if re.match("--[a-z]", said)}
    old = OLD_OPTIONS if page == GONE else set()
    assert options - OTHERS - old <= {"--help", *options_of(cli)}, page
    if page != GONE:
        metrics = set(re.findall(r"\bbackoff_ctrl_(?!rollout\b|dbt\b)[a-z_]+(?!\*|\.\.\.|[a-z_])", text_of(page)))
        assert metrics <= {metric.name for metric in METRICS}, page


GONE: Final = "CHANGELOG.md"
"""It tells of names that are gone."""
OLD_OPTIONS: Final = {"--server", "--upstream"}


@pytest.mark.parametrize("page", [page for page in PAGES if page != GONE])
def test_what_the_text_names_is_there(page: str) -> None:
    """Commands without the program's name before them; labels and annotations; values of the chart; files."""
    for said in spans(page):
        words = shlex.split(said) if said.count('"') % 2 == 0 and said.count("'") % 2 == 0 else []
        if len(words) > 1 and words[0] in COMMANDS and "..." not in words:
            assert_command(Typed(page, f"backoff-ctrl {said}"), whole=False)
        if re.fullmatch(r"[a-zA-Z]+(\.[a-zA-Z]+)+", said) and said.partition(".")[0] in chart_values():
            assert said in chart_values(), f"{page}: the chart has no value {said}"
        if re.fullmatch(r"(?!/|build/)[\w-]+(/[\w.-]+)+\.(py|md|yaml|toml|json|txt)", said):
            places = [ROOT, ROOT / "k8s", (ROOT / page).parent]
            assert any((place / said).is_file() for place in places), f"{page}: there is no file {said}"
    for name in re.findall(r"\bbackoff-ctrl\.dev/[a-z-]+(?![a-z0-9-])", text_of(page)):
        assert name in sources() or name.endswith("/train"), f"{page}: nothing reads {name}"


def test_permissions_name_each_mode_that_doctor_checks() -> None:
    """docs/operations.md, beside the account of a creator, which is the default."""
    (modes,) = (
        each.type.choices for each in doctor.params if each.name == "mode" and isinstance(each.type, click.Choice)
    )
    section = text_of("docs/operations.md").partition("## Permissions")[2].partition("\n## ")[0]
    assert {"creator", *re.findall(r"`(?:--for )?([a-z]+)`", section)} >= set(modes)


@cache
def chart_values() -> set[str]:
    """All values of the chart by their paths, those on the way included."""
    known = {name for name, _, _ in tables.described(tables.VALUES.read_text(encoding="utf-8"))}
    return {".".join(parts[:end]) for parts in (name.split(".") for name in known) for end in range(1, len(parts) + 1)}


@cache
def sources() -> str:
    """All that the product reads and writes."""
    kinds = (".py", ".yaml", ".tpl", ".html", ".js")
    return "\n".join(
        text_of(path) for path in TRACKED if path.startswith(("k8s/", "api/", "helm/")) and path.endswith(kinds)
    )


@cache
def variables() -> set[str]:
    """All variables that the code names."""
    found = [path for path in TRACKED if path.endswith((".py", "Makefile")) and not Path(__file__).match(path)]
    return {name for path in found for name in re.findall(r"BACKOFF_CTRL_[A-Z_]+", text_of(path))}


def options_of(command: click.Command) -> Iterator[str]:
    """All options of a command and of those below it."""
    for each in command.params:
        yield from [*each.opts, *each.secondary_opts]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options_of(below)


# -- commands --------------------------------------------------------------------------------------------------------


def assert_command(typed: Typed, *, whole: bool = True) -> None:
    """Fail unless each program of a line takes its words. In running text a command need not be whole."""
    words = [word.split("|") if re.fullmatch(r"\w+(\|\w+)+", word) else [word] for word in shlex.split(typed.command)]
    for line in itertools.product(*words):
        for is_pipe, group in itertools.groupby(line, "|".__eq__):
            if not is_pipe:
                assert_program(typed, list(group), whole=whole)


def assert_program(typed: Typed, line: list[str], *, whole: bool) -> None:
    """Fail unless a program takes its words."""
    while re.match(r"[A-Z_]+=", line[0]):
        assert line[0].partition("=")[0] in variables(), typed
        line = line[1:]
    for number, word in enumerate(line):
        if word in {"<", ">"}:
            line = line[:number]
            break
    name, *words = line
    assert name in PROGRAMS, f"{typed}: nothing checks what {name} is told"
    PROGRAMS[name](typed, words, whole)


def ours(typed: Typed, words: list[str], whole: bool) -> None:
    """Parse the words with the parser of the command line itself."""
    for word in words:
        if re.fullmatch(r"[\w-]+\.(yaml|db)|FILE", word):
            Path(word).touch()
    context: click.Context | None = None
    command: click.Command = cli
    name = "backoff-ctrl"
    try:
        while isinstance(command, click.Group):
            if not whole and (not words or words[0].isupper()):
                return
            context = click.Context(command, parent=context, info_name=name)
            found, resolved, words = command.resolve_command(context, words)
            assert resolved is not None, typed
            command, name = resolved, str(found)
        command.make_context(name, words if whole else ["--help", *words], parent=context)
    except click.exceptions.Exit:
        pass  # its help was printed: all that was typed is known
    except click.ClickException as error:
        if whole or not isinstance(error, click.BadOptionUsage):
            pytest.fail(f"{typed}: {error.format_message()}")


def kubectl(typed: Typed, words: list[str], whole: bool) -> None:
    """The plugin is ours; all else is read by kubectl itself, in tests/cluster/kubectl/test_pages_typed.py."""
    if words[0] == "backoff" and words[1:]:
        ours(typed, words[1:], whole)


def make(typed: Typed, words: list[str], _whole: bool) -> None:
    """Targets exist."""
    assert {word for word in words if "=" not in word} <= TARGETS, typed


def pip(typed: Typed, words: list[str], _whole: bool) -> None:
    """Extras exist, and so do folders."""
    action, place = words[0], words[-1]
    assert action in {"install", "wheel"}, typed
    found = re.fullmatch(r"(\.|backoff-ctrl)(?:\[(.*)\])?", place)
    if found:
        assert set(filter(None, (found[2] or "").split(","))) <= set(PROJECT["optional-dependencies"]), typed
    else:
        assert place.startswith("dist/") or (ROOT / place / "pyproject.toml").is_file(), typed


def python(typed: Typed, words: list[str], _whole: bool) -> None:
    """Its program exists."""
    if words[0] == "-m":
        module = ROOT / words[1].replace(".", "/")
        assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file(), typed
    else:
        assert words[0] in THEIRS or (ROOT / words[0]).is_file(), typed


def helm(typed: Typed, words: list[str], _whole: bool) -> None:
    """The chart exists and has the values: helm reads the rest in tests/cluster/shipping/test_chart_rendered.py."""
    known = {name for name, _, _ in tables.described(tables.VALUES.read_text(encoding="utf-8"))}
    for before, word in itertools.pairwise(words):
        if before == "--set":
            assert word.partition("=")[0] in known, typed
        if word.startswith("./"):
            assert (ROOT / word / "Chart.yaml").is_file(), typed


def docker(typed: Typed, words: list[str], _whole: bool) -> None:
    """Arguments of the build exist."""
    known = re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    for before, word in itertools.pairwise(words):
        assert before != "--build-arg" or word.partition("=")[0] in known, typed


def curl(typed: Typed, words: list[str], _whole: bool) -> None:
    """The path is one of the status API."""
    (path,) = (found[1] for word in words if (found := re.fullmatch(r"(?:https?://)?[\w.:]+(/[^?]*)(\?.*)?", word)))
    assert path in {*URLS, "/metrics"}, typed


def source(typed: Typed, words: list[str], _whole: bool) -> None:
    """What `make install` has made."""
    assert words == [".venv/bin/activate"], typed


def export(typed: Typed, words: list[str], _whole: bool) -> None:
    """A variable that is read."""
    assert words[0].partition("=")[0] in {"KUBECONFIG", *variables()}, typed


def cat(typed: Typed, _words: list[str], _whole: bool) -> None:
    """A file that the reader writes: what is shown is what is in it."""
    yaml_block(Block(typed.where, 0, "yaml", typed.printed))


def jq(_typed: Typed, _words: list[str], _whole: bool) -> None:
    """Of other people: it reads the JSON before it."""


PROGRAMS: Final[dict[str, Callable[[Typed, list[str], bool], None]]] = {
    "backoff-ctrl": ours,
    "cat": cat,
    "curl": curl,
    "docker": docker,
    "export": export,
    "helm": helm,
    "jq": jq,
    "kubectl": kubectl,
    "make": make,
    "pip": pip,
    "python": python,
    "source": source,
}


def commands(block: Block) -> None:
    """Check each line."""
    for each in typed_in(block):
        assert_command(each)


# -- files -----------------------------------------------------------------------------------------------------------


def yaml_block(block: Block) -> None:
    """Have each document read by whoever reads it in the end."""
    for document in yaml.safe_load_all(block.text):
        assert isinstance(document, dict), block
        for reader in readers(block.page, document):
            reader()


def readers(page: str, found: dict[str, Any]) -> Iterator[Callable[[], object]]:
    """Give what reads a document. Raises ``AssertionError`` for one that nothing here knows."""
    text = yaml.safe_dump(found)
    keys = set(found)
    if found.get("apiVersion") == "backoff-ctrl.dev/v1alpha1":
        yield lambda: Task.model_validate(found)
    elif KUBERNETES.fullmatch(found.get("apiVersion", "")):
        pass  # a server reads it, in tests/cluster/kubectl/test_yaml_of_the_docs.py
    elif "apiVersion" in found and "status" in found:
        assert page == "docs/how-to/describe-an-operator.md"  # its own test follows it
    elif keys == {"receivers"}:
        yield lambda: accepted_receivers(text)
    elif keys <= {"plugins", "tasks"}:
        yield lambda: accepted_settings(text)
    elif page == "docs/how-to/describe-an-operator.md":
        yield lambda: accepted_description(found)
    elif page == "docs/how-to/jobs-that-wait.md":
        yield lambda: WAITING_KINDS.read(found, page)
    elif page == "docs/how-to/describe-a-service.md":
        pass  # its own test reads it
    elif keys == {"spec"}:
        pass  # of a pod: as a manifest
    elif keys <= {"scrape_configs", "rule_files"}:
        pass  # promtool reads it, in tests/monitoring/test_alerts.py
    else:
        assert page in CREATORS, f"{page}: nothing checks {text}"


def accepted_receivers(text: str) -> None:
    """The file of a gate's notifications, with secrets where it looks for them."""
    Path("receivers.yaml").write_text(text, encoding="utf-8")
    secrets = dict.fromkeys(re.findall(r"secret-env: (\w+)", text), "a secret of enough characters")
    assert read_receivers(Path("receivers.yaml"), secrets)


def accepted_settings(text: str) -> None:
    """The platform's settings: each key is known, and has an effect."""
    settings_from(text, "settings.yaml", ())
    assert without_effect(text, "settings.yaml", ()) == []


def accepted_description(found: dict[str, Any]) -> None:
    """The description of an operator, or the part of one that is put into the page's own."""
    whole = next(
        each
        for block in blocks("docs/how-to/describe-an-operator.md", "yaml")
        if "task-types" in (each := yaml.safe_load(block.text))
    )
    known = {str(field.alias) for field in OperatorConfig.model_fields.values()}
    if not set(found) <= known:
        found = {"states": {**whole["states"], **found}}
    OPERATORS.read({**whole, **found}, "page")


def python_block(block: Block) -> None:
    """It parses, and what it imports of us is there."""
    tree = compile(block.text, str(block), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("backoff_ctrl"):
            module = import_module(str(node.module))
            assert [each.name for each in node.names if not hasattr(module, each.name)] == [], block


def properties(block: Block) -> None:
    """Keys and values."""
    configparser.ConfigParser(delimiters=("=",)).read_string(f"[all]\n{block.text}")


def toml(block: Block) -> None:
    """It parses."""
    tomllib.loads(block.text)


def anything(_block: Block) -> None:
    """What is drawn or printed: it is counted."""


CHECKS: Final[dict[str, Callable[[Block], None]]] = {
    "": anything,
    "bash": commands,
    "console": commands,
    "mermaid": anything,
    "properties": properties,
    "python": python_block,
    "toml": toml,
    "yaml": yaml_block,
}


# -- that the checks themselves notice ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "backoff-ctrl proxy --listen 127.0.0.1:8001 --hold-al 3",
        "backoff-ctrl proxy --hold soon",
        "backoff-ctrl tasks run",
        "backoff-ctrl task runs -f tasks.yaml",
        "backoff-ctrl waiting all of them",
        "BACKOFF_CTRL_STATE=1 python my_platform.py",
        "make everything",
        "pip install '.[proxies]'",
        "helm install backoff-ctrl ./helm/backoff-ctrl --set image.repo=R",
        "helm install backoff-ctrl ./helm/backoff",
        "curl -s localhost:9095/v1/waiters",
        "python my_program.py",
        "terraform apply",
    ],
)
def test_a_wrong_command_is_noticed(command: str) -> None:
    """Each has a mistake that a reader would meet."""
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        assert_command(Typed("a page", command))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "yaml",
            "apiVersion: backoff-ctrl.dev/v1alpha1\nkind: Task\nmetadata: {name: a}\nspec: {type: pod, retry: 1}\n",
        ),
        ("yaml", "plugins: {k8s: {default-cpu: 1}}\n"),
        ("yaml", "receivers: [{name: a, url: 'https://a.example', secret: b}]\n"),
        ("yaml", "somebody: else's\n"),
        ("yaml", "a: [\n"),
        ("python", "from backoff_ctrl import GatedClient\n"),
        ("python", "with gate\n"),
        ("toml", "a = \n"),
        ("console", "a line that nobody typed\n"),
    ],
)
def test_a_wrong_block_is_noticed(kind: str, text: str) -> None:
    """On whatever page it stands."""
    with pytest.raises(Exception, match=r"."):
        CHECKS[kind](Block("a page", 1, kind, text))
