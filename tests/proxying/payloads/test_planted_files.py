"""TLS mode's directories where somebody else writes, too: nothing of the proxy's is read, changed or given away."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from backoff_ctrl.k8s.proxy.authority import Serving, TlsFiles, _clock, new_authority
from backoff_ctrl.k8s.proxy.certificates import CertificatesError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ANOTHER: Final = 65_534
SECRET: Final = "somebody's private key"


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    """The directories exist, and anybody may write there."""
    for name in ("authority", "account", "projected"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    return TlsFiles(tmp_path / "authority", tmp_path / "account", tmp_path / "projected")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A private file of the proxy's user."""
    made = tmp_path / "victim"
    made.write_text(SECRET)
    made.chmod(0o600)
    return made


@pytest.fixture
def of_another(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a file another user's: by giving it away, or where only the superuser may, by being another user."""

    def giving(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, ANOTHER, ANOTHER, follow_symlinks=False)
        else:
            own = os.geteuid()
            monkeypatch.setattr(os, "geteuid", lambda: own + 1)

    return giving


def intact(victim: Path) -> None:
    """The private file is as it was."""
    assert victim.read_text() == SECRET
    assert victim.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("folder", ["account", "authority"])
@pytest.mark.parametrize("plant", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_links_that_were_planted_are_replaced(
    files: TlsFiles, victim: Path, folder: str, plant: Callable[[Path, Path], None]
) -> None:
    """What they name keeps its content and its mode."""
    names = {"account": ("ca.crt", "token", "namespace"), "authority": ("authority.pem", "leaf.pem")}[folder]
    place = getattr(files, folder)
    for name in names:
        plant(victim, place / name)
    serving = Serving(files)
    intact(victim)
    assert victim.stat().st_nlink == 1, "no second name is left"
    assert (files.account / "ca.crt").read_bytes() == serving._authority.trusted
    assert not (files.account / "ca.crt").is_symlink()
    for name in ("token", "namespace"):
        assert (files.account / name).readlink() == files.token_volume / name


@pytest.mark.parametrize("name", ["ca.crt", "token"])
def test_a_pipe_or_a_file_in_the_way_is_replaced(files: TlsFiles, name: str) -> None:
    """Nobody waits for somebody to write into a pipe."""
    os.mkfifo(files.account / name)
    (files.account / "namespace").write_text("another-team")
    serving = Serving(files)
    assert (files.account / "ca.crt").read_bytes() == serving._authority.trusted
    for link in ("token", "namespace"):
        assert (files.account / link).readlink() == files.token_volume / link


@pytest.mark.parametrize("name", ["account/ca.crt", "account/token", "authority/leaf.pem"])
def test_a_directory_in_the_way_is_one_sentence(files: TlsFiles, name: str) -> None:
    """It is not removed: it may be somebody's."""
    folder = files.account.parent / name
    folder.mkdir()
    with pytest.raises(CertificatesError, match="cannot be"):
        Serving(files)
    assert folder.is_dir()


def test_a_link_in_place_of_the_lock_is_not_followed(files: TlsFiles, victim: Path) -> None:
    """Nor is a file made where it leads."""
    (files.authority / ".lock").symlink_to(victim.with_name("made"))
    with pytest.raises(CertificatesError, match="cannot be locked"):
        Serving(files)
    assert not victim.with_name("made").exists()


def test_an_authority_of_another_user_is_not_taken(files: TlsFiles, of_another: Callable[[Path], None]) -> None:
    """Who wrote it has its key, and could speak for the proxy."""
    planted = new_authority(_clock())
    path = files.authority / "authority.pem"
    path.write_bytes(planted.pem)
    path.chmod(0o600)
    if os.geteuid() == 0:
        of_another(path)
        assert Serving(files)._authority.trusted != planted.trusted
    else:
        of_another(path)
        with pytest.raises(CertificatesError, match="belongs to another user"):  # as all of it does
            Serving(files)


def test_a_directory_of_another_user_keeps_no_key(files: TlsFiles, of_another: Callable[[Path], None]) -> None:
    """Its owner could replace what is in it at any time."""
    of_another(files.authority)
    with pytest.raises(CertificatesError, match=r"belongs to another user, who could replace the key: name one of"):
        Serving(files)
    assert list(files.authority.iterdir()) == []


@pytest.mark.parametrize("name", ["authority", "account"])
def test_a_directory_that_another_user_links_elsewhere_is_not_used(
    files: TlsFiles, tmp_path: Path, name: str, of_another: Callable[[Path], None]
) -> None:
    """Else he would say where the proxy writes."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place: Path = getattr(files, name)
    place.rmdir()
    place.symlink_to(elsewhere)
    Serving(files)  # a link of one's own is one's own affair
    before = {path.name for path in elsewhere.iterdir()}
    for path in elsewhere.iterdir():
        path.unlink()
    assert before
    of_another(place)
    with pytest.raises(CertificatesError, match="symbolic link of another user's: name the directory itself"):
        Serving(files)
    assert list(elsewhere.iterdir()) == []
