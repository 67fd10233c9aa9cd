"""The memory file: what a gate has learned survives a restart, and a damaged file does no harm."""

from __future__ import annotations

import json
import logging
import os
import resource
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backoff_ctrl.engine.look.memory import Memory, RememberedCeiling, RememberedQuota
from backoff_ctrl.k8s.gate.sharing import memory as memory_file
from backoff_ctrl.k8s.gate.sharing.memory import MemoryFile

if TYPE_CHECKING:
    from pathlib import Path

SERVER = "https://10.0.0.1:6443"
AMOUNTS = st.integers(-(10**30), 10**30)
NAMES = st.text(max_size=12)
CEILINGS = st.builds(RememberedCeiling, AMOUNTS, AMOUNTS, st.floats(0, 1e6).map(lambda age: round(age, 3)))
QUOTAS = st.builds(
    RememberedQuota,
    st.dictionaries(NAMES, CEILINGS, min_size=1, max_size=3),
    st.dictionaries(st.frozensets(NAMES, max_size=2), st.booleans(), max_size=2),
)
MEMORIES = st.builds(
    Memory, st.dictionaries(NAMES, st.dictionaries(NAMES, QUOTAS, min_size=1, max_size=3), max_size=3), st.floats(0, 1)
)


def memory(*, used: int = 3, age: float = 0.0) -> Memory:
    ceiling = RememberedCeiling(4 * 10**9, used * 10**9, age)
    quota = RememberedQuota({"requests.cpu": ceiling}, {frozenset({"Terminating"}): False})
    return Memory({"team": {"compute": quota}}, 0.004)


def saved(path: Path, what: Memory | None = None, *, at: float = 1000.0) -> Path:
    assert MemoryFile(path, SERVER, clock=lambda: at).save(what or memory())
    return path


def loaded(path: Path, *, at: float = 1000.0, server: str = SERVER) -> Memory | None:
    return MemoryFile(path, server, clock=lambda: at).load()


@pytest.mark.long
@settings(max_examples=40)
@given(what=MEMORIES)
def test_a_saved_memory_is_loaded_unchanged(tmp_path_factory: pytest.TempPathFactory, what: Memory) -> None:
    """Every name, amount, age and scope class is restored, to the last nano-unit."""
    assert loaded(saved(tmp_path_factory.mktemp("memory") / "gate.json", what)) == what


def test_facts_age_while_the_process_is_gone(tmp_path: Path) -> None:
    """A minute between the processes adds a minute of age; a clock that was set back adds nothing."""
    path = saved(tmp_path / "gate.json", memory(age=5.0), at=1000.0)
    ages = []
    for at in (1060.0, 400.0):
        found = loaded(path, at=at)
        assert found is not None
        ages.append(found.quotas["team"]["compute"].ceilings["requests.cpu"].age)
    assert ages == [65.0, 5.0]


def test_the_first_start_has_no_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A missing file is normal, and not logged."""
    assert loaded(tmp_path / "gate.json") is None
    assert not caplog.records


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '{"version":1}',
        '{"version":1,"server":"https://10.0.0.1:6443","saved_at":"x","settle_time":0,"namespaces":{}}',
        '{"version":1,"server":"https://10.0.0.1:6443","saved_at":0,"settle_time":0,"namespaces":{"a":{"q":7}}}',
        '{"version":1,"server":"https://10.0.0.1:6443","saved_at":1' + "0" * 400 + ',"settle_time":0,"namespaces":{}}',
        "[" * 100_000,
        "\x00\xff",
    ],
)
def test_a_damaged_file_is_renamed(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """The gate logs one sentence, keeps the file for inspection, and learns from refusals."""
    path = tmp_path / "gate.json"
    path.write_text(text, encoding="latin-1")
    assert loaded(path) is None
    assert not path.exists()
    assert (tmp_path / "gate.json.damaged").read_text(encoding="latin-1") == text
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "renamed to" in caplog.text


@settings(max_examples=25)
@given(what=MEMORIES, cut=st.floats(0, 1))
def test_a_truncated_file_is_not_used(tmp_path_factory: pytest.TempPathFactory, what: Memory, cut: float) -> None:
    """After a full disk or an interrupted copy, no part of the file is used."""
    path = saved(tmp_path_factory.mktemp("memory") / "gate.json", what)
    text = path.read_bytes()
    path.write_bytes(text[: int(len(text) * cut * 0.999)])
    assert loaded(path) is None


def test_a_pipe_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing writes into it: the gate does not wait for it."""
    os.mkfifo(tmp_path / "gate.json")
    assert loaded(tmp_path / "gate.json") is None
    assert "not a regular file" in caplog.text


def test_a_save_overwrites_no_other_file(tmp_path: Path) -> None:
    """Neither the file of another process with the same id, nor the target of a link."""
    victim = tmp_path / "victim"
    victim.write_text("whole")
    (tmp_path / f"gate.json.{os.getpid()}.new").symlink_to(victim)
    path = saved(tmp_path / "gate.json", Memory({}, 0.01))
    assert victim.read_text() == "whole"
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o077 == 0
    assert len(list(tmp_path.iterdir())) == 3


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate's memory is small, so that it starts quickly."""
    path = saved(tmp_path / "gate.json")
    monkeypatch.setattr(memory_file, "LARGEST", 100)
    assert loaded(path) is None


def test_a_memory_that_is_too_large_is_shortened_until_it_can_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it has too many bytes, the older half is left out."""
    ceilings = {f"{age}-{'x' * 100}": RememberedCeiling(1, 1, float(age)) for age in range(9)}
    many = Memory({"team": {name: RememberedQuota({"pods": ceiling}, {}) for name, ceiling in ceilings.items()}}, 0.0)
    monkeypatch.setattr(memory_file, "MOST_QUOTAS", 8)
    monkeypatch.setattr(memory_file, "LARGEST", 1000)
    found = loaded(saved(tmp_path / "gate.json", many))
    assert found is not None
    assert [name[0] for name in found.quotas["team"]] == ["0", "1", "2", "3"]
    monkeypatch.setattr(memory_file, "LARGEST", 1)
    assert loaded(saved(tmp_path / "gate.json", many)) is None


@pytest.mark.parametrize("change", [{"version": 2}, {"server": "https://elsewhere"}])
def test_a_file_of_another_version_or_server_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    """After a downgrade, or with a wrong path, the file is not damaged and is left alone."""
    path = saved(tmp_path / "gate.json")
    text = json.dumps(json.loads(path.read_text()) | change)
    path.write_text(text)
    assert loaded(path) is None
    assert path.read_text() == text
    assert "learns from refusals" in caplog.text


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A full or read-only disk is logged, and costs nothing but the memory."""
    path = saved(tmp_path / "gate.json", memory(used=1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))  # like a full disk: ten bytes are left
    try:
        assert not MemoryFile(path, SERVER).save(memory(used=2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [each.name for each in tmp_path.iterdir()] == ["gate.json"]
    assert "cannot write" in caplog.text
    found = loaded(path)
    assert found is not None
    assert found.quotas["team"]["compute"].ceilings["requests.cpu"].used == 10**9


def test_a_disk_that_stays_full_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Twice a minute would flood the log; after a successful save the next failure is logged again."""
    file = MemoryFile(tmp_path / "to" / "gate.json", SERVER)
    (tmp_path / "to").touch()
    assert [file.save(memory()) for _ in range(3)] == [False] * 3
    assert len(caplog.records) == 1
    (tmp_path / "to").unlink()
    assert file.save(memory())
    (tmp_path / "to").rename(tmp_path / "away")
    (tmp_path / "to").touch()
    assert not file.save(memory())
    assert len(caplog.records) == 2


def test_temporary_files_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    """They are deleted after an hour: younger ones may belong to a process that shares the directory."""
    old, young, others = (tmp_path / name for name in ("gate.json.a1b2.new", "gate.json.c3d4.new", "else.json.e5.new"))
    for path in (old, young, others):
        path.write_text("half")
    (tmp_path / "gate.json.0.new").mkdir()
    for path in tmp_path.iterdir():
        if path != young:
            os.utime(path, (0, 0))
    assert loaded(tmp_path / "gate.json") is None
    assert {path.name for path in tmp_path.iterdir()} == {"gate.json.0.new", young.name, others.name}


def test_a_file_with_more_quotas_than_are_saved_counts_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each quota costs time at the start; empty namespaces are skipped."""
    path = saved(tmp_path / "gate.json")
    found = json.loads(path.read_text())
    found["namespaces"] |= {f"empty-{number}": {} for number in range(9)}
    path.write_text(json.dumps(found))
    memory = loaded(path)
    assert memory is not None
    assert set(memory.quotas) == {"team"}
    monkeypatch.setattr(memory_file, "MOST_QUOTAS", 0)
    assert loaded(path) is None
    assert (tmp_path / "gate.json.damaged").exists()


def test_only_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is limited: of too many quotas the most recent are saved."""
    monkeypatch.setattr(memory_file, "MOST_QUOTAS", 2)
    ceilings = {name: RememberedCeiling(1, 1, age) for name, age in (("old", 9.0), ("new", 1.0), ("mid", 5.0))}
    many = Memory({"team": {name: RememberedQuota({"pods": ceiling}, {}) for name, ceiling in ceilings.items()}}, 0.0)
    found = loaded(saved(tmp_path / "gate.json", many))
    assert found is not None
    assert set(found.quotas["team"]) == {"new", "mid"}
