"""The wheel, built here and installed outside the checkout: it works there, and it guards its import names."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from backoff_ctrl.__main__ import intrusions, main

ROOT = Path(__file__).parents[2]
ROOMS = ("backoff_ctrl", "k8s", "api")
ANSWER = b'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout, without a network."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder of its own, as pip does."""
    target = tmp_path_factory.mktemp("installed") / "site"
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(wheel)], check=True)
    return target


@pytest.fixture
def site(installed: Path, tmp_path: Path) -> Path:
    """Return a copy of the installation that a test may spoil."""
    return Path(shutil.copytree(installed, tmp_path / "site"))


def call(site: Path, *arguments: str, stdin: bytes = b"", ahead: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run the console script of an installed wheel, outside the checkout."""
    path = os.pathsep.join(filter(None, [ahead, str(site)]))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": path}
    command = [sys.executable, str(site / "bin" / "backoff-ctrl"), *arguments]
    return subprocess.run(command, input=stdin, env=environment, cwd=site.parent, capture_output=True, check=False)


def test_the_installed_wheel_classifies_outside_the_checkout(site: Path) -> None:
    """The console script, the lazy commands and the three rooms are all in it."""
    done = call(site, "classify", "--json", stdin=ANSWER)
    assert (done.stderr, done.returncode) == (b"", 0)
    assert json.loads(done.stdout)["lane"] == "quota"
    assert call(site, "--version").stdout.startswith(b"backoff-ctrl 0.")


def test_the_wheel_holds_the_rooms_and_nothing_else(wheel: Path) -> None:
    """Every module of the rooms, their type markers, the licence; no tests, no benchmarks."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(ROOMS)
    modules = {path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert modules == {name for name in names if name.endswith(".py")}
    assert {f"{room}/py.typed" for room in ROOMS} <= set(names)
    assert any(name.endswith("LICENSE") for name in names)


def test_a_stranger_that_overlays_a_module_is_refused_with_its_name(site: Path) -> None:
    """pip lays k8s over ours in silence: the command says who did, what to do, and ends with 2."""
    (site / "k8s" / "__init__.py").write_text("raise SystemExit('a stranger ran')\n")
    install(site, "stranger", "k8s/__init__.py", "k8s/client.py")
    done = call(site, "classify", stdin=ANSWER)
    assert (done.stdout, done.returncode) == (b"", 2)
    assert done.stderr.decode() == (
        "backoff-ctrl: k8s/__init__.py is not as backoff-ctrl installed it (installed by stranger too): "
        "install backoff-ctrl into a virtual environment of its own\n"
    )


@pytest.mark.parametrize(
    ("change", "odd"),
    [
        (lambda room: (room / "client.py").write_text("x = 1\n"), "api/client.py"),
        (lambda room: (room / "main.py").write_text("x = 1\n"), "api/main.py"),
        (lambda room: (room / "exits.py").unlink(), "api/exits.py"),
    ],
    ids=["added", "changed", "missing"],
)
def test_any_difference_from_what_was_installed_is_noticed(
    site: Path, change: object, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module more, a module less, a module that is another."""
    assert callable(change)
    foreign(monkeypatch, site)
    assert intrusions(site) == []
    change(site / "api")
    assert [sentence.partition(" ")[0] for sentence in intrusions(site)] == [odd]


def test_a_stranger_ahead_on_the_path_is_refused_with_its_place(site: Path, tmp_path: Path) -> None:
    """The import name leads elsewhere: the command says where to, and that it ends here."""
    other = tmp_path / "other"
    (other / "k8s").mkdir(parents=True)
    (other / "k8s" / "__init__.py").write_text("")
    done = call(site, "classify", stdin=ANSWER, ahead=str(other))
    assert done.returncode == 2
    assert f"the import name k8s leads to {other.resolve()}, not to ours" in done.stderr.decode()


def test_a_checkout_is_taken_as_it_is() -> None:
    """Editable or not installed at all: the rooms are siblings, and there is nothing to compare them with."""
    assert intrusions() == []
    assert intrusions(ROOT, "no-such-distribution-anywhere") == []
    assert intrusions(ROOT, "pytest") == []  # installed, but somewhere else


def test_a_room_that_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare folder of that name does not count."""
    (tmp_path / "api").mkdir()
    foreign(monkeypatch, tmp_path, only=True)
    assert [sentence.partition(":")[0] for sentence in intrusions(tmp_path)] == [
        "the package k8s is missing",
        "the package api is missing",
    ]


def test_the_guard_ends_with_a_sentence_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two names lead elsewhere: two sentences, code 2."""
    for room in ("k8s", "api"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("raise AssertionError('loaded')\n")
    foreign(monkeypatch, tmp_path)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert [line.split(" leads to ")[0] for line in capsys.readouterr().err.splitlines()] == [
        "backoff-ctrl: the import name k8s",
        "backoff-ctrl: the import name api",
    ]


def test_ctrl_c_while_the_command_line_loads_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes a tenth of a second, and people are quick: no traceback."""

    class Impatient:
        def find_spec(self, name: str, *rest: object) -> None:
            if name == "api.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "api.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Impatient(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", "backoff-ctrl: stopped\n")


def test_the_module_runs_as_a_script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """python -m backoff_ctrl is the console script."""
    monkeypatch.setattr(sys, "argv", ["backoff-ctrl", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "backoff_ctrl" / "__main__.py"), run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("Usage: backoff-ctrl")


def test_no_other_distribution_here_claims_our_import_names() -> None:
    """What is developed and tested here is ours alone."""
    claims = packages_distributions()
    for room in ROOMS:
        assert set(claims.get(room, [])) <= {"backoff-ctrl"}


def install(site: Path, name: str, *files: str) -> None:
    """Leave what pip leaves of another distribution: its metadata and its RECORD."""
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{folder.name}/METADATA")))


def foreign(monkeypatch: pytest.MonkeyPatch, folder: Path, *, only: bool = False) -> None:
    """Let the import names of the rooms be found in a folder, as in a process that has loaded none of them."""
    for room in ROOMS[1:]:
        monkeypatch.delitem(sys.modules, room, raising=False)
    if only:
        monkeypatch.setattr(sys, "path", [str(folder)])
    else:
        monkeypatch.syspath_prepend(str(folder))
