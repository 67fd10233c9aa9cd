"""Certificates, made here or given by others: their files, also those that others plant, and how they are renewed."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from backoff_ctrl.k8s.sidecar.authority import LEAF_LIFE, NAMES, Authority, Serving, TlsFiles, new_authority
from backoff_ctrl.k8s.sidecar.certificates import LOOK_EVERY, CertificatesError, GivenCertificate
from tests.proxying.passing.certificates import make_pair


class Enough(Exception):  # noqa: N818
    """The test has seen what it wanted to see."""


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    """Three volumes: the proxy's own, the creator's account directory, and the projected token."""
    volume = tmp_path / "projected"
    volume.mkdir()
    for name, text in (("token", "the-token"), ("namespace", "team-a")):
        (volume / name).write_text(text)
    for name in ("authority", "account"):
        (tmp_path / name).mkdir(0o777)  # as an emptyDir is
        (tmp_path / name).chmod(0o777)
    return TlsFiles(tmp_path / "authority", tmp_path / "account", volume, ("proxy.example", "10.0.0.7"))


def trusting(files: TlsFiles) -> ssl.SSLContext:
    """Return what a creator makes of ``ca.crt``, as strict as a client can be."""
    context = ssl.create_default_context(cafile=files.account / "ca.crt")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


@asynccontextmanager
async def echoing(serving: Serving) -> AsyncIterator[int]:

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connect(port: int, context: ssl.SSLContext, name: str = "kubernetes.default.svc") -> Streams:
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)


async def echoed(streams: Streams) -> bytes:
    streams[1].write(b"hello\n")
    return await streams[0].readline()


def presented(streams: Streams) -> x509.Certificate:
    return x509.load_der_x509_certificate(streams[1].get_extra_info("ssl_object").getpeercert(True))


def trusted(files: TlsFiles) -> x509.Certificate:
    """The authority that creators trust."""
    return x509.load_pem_x509_certificate((files.account / "ca.crt").read_bytes())


def agree(serving: Serving, files: TlsFiles) -> None:
    """The proxy's certificate is signed by the authority that creators trust."""
    x509.load_pem_x509_certificate(serving.leaf.pem).verify_directly_issued_by(trusted(files))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_a_creator_verifies_the_proxy_by_every_name(files: TlsFiles) -> None:
    """By those of the API server in a pod and by those of the options, against ``ca.crt`` alone; not by others."""
    serving = Serving(files)
    assert {"127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default.svc.cluster.local"} <= set(NAMES)
    async with echoing(serving) as port:
        for name in (*NAMES, *files.names):
            streams = await connect(port, trusting(files), name)
            assert await echoed(streams) == b"hello\n"
            assert streams[1].get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
            streams[1].close()
        for name in ("kubernetes.example", "127.0.0.2"):
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(port, trusting(files), name)
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(port, ssl.create_default_context())


def test_the_files_are_there_for_those_who_need_them_alone(files: TlsFiles) -> None:
    """Whatever the umask: the keys for the proxy, the certificate for all; nothing of the account is copied."""
    before = os.umask(0o077)
    try:
        Serving(files)
    finally:
        os.umask(before)
    assert {path.name for path in files.account.iterdir()} == {"ca.crt", "token", "namespace"}
    assert mode(files.account / "ca.crt") == 0o644
    assert b"PRIVATE" not in (files.account / "ca.crt").read_bytes()
    assert {mode(path) for path in files.authority.iterdir()} == {0o600}
    for name in ("token", "namespace"):
        assert (files.account / name).readlink() == files.token_volume / name
    (files.token_volume / "token").write_text("the next token")
    assert (files.account / "token").read_text() == "the next token"


async def test_a_leaf_rotates_while_connections_go_on(files: TlsFiles) -> None:
    """What is open stays open, what is new gets the new leaf, and who read ``ca.crt`` once trusts both."""
    serving = Serving(files, now=datetime.now(UTC) - timedelta(hours=20))
    context = trusting(files)
    async with echoing(serving) as port:
        old = await connect(port, context)
        assert await echoed(old) == b"hello\n"
        known = (files.account / "ca.crt").read_bytes()
        looked = asyncio.Event()

        async def pause(_: float) -> None:
            looked.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(serving.keep_fresh(pause=pause))
        await looked.wait()
        new = await connect(port, context)
        assert await echoed(new) == await echoed(old) == b"hello\n"
        first, second = presented(old), presented(new)
        assert first.serial_number != second.serial_number
        assert second.not_valid_after_utc - first.not_valid_after_utc > timedelta(hours=19)
        assert (files.account / "ca.crt").read_bytes() == known
        task.cancel()
        for streams in (old, new):
            streams[1].close()


async def test_each_leaf_is_replaced_well_before_it_ends(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    """For days on end; a failure is logged and tried again while the leaf still has hours to go."""
    now = datetime.now(UTC)
    serving = Serving(files, now)
    seen: dict[datetime, timedelta] = {}
    broken = files.authority.with_name("broken")

    async def pause(seconds: float) -> None:
        nonlocal now
        assert 0 < seconds <= 600
        now += timedelta(seconds=seconds)
        seen[serving.leaf.ends] = serving.leaf.ends - now
        if len(seen) == 3 and files.authority.exists() and serving.due - now < timedelta(minutes=5):
            files.authority.rename(broken)
        elif not files.authority.exists() and len(caplog.records) == 3:
            broken.rename(files.authority)
        if len(seen) == 6:
            raise Enough

    with caplog.at_level(logging.WARNING), pytest.raises(Enough):
        await serving.keep_fresh(lambda: now, pause)
    assert len(seen) == 6
    assert min(seen.values()) > LEAF_LIFE / 3
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "No such file or directory" in caplog.text


async def test_a_proxy_that_is_started_again_is_still_trusted(files: TlsFiles) -> None:
    """The authority lives as long as the pod: creators read ``ca.crt`` once."""
    first = Serving(files)
    context, place = trusting(files), (files.account / "ca.crt").stat()
    second = Serving(files)
    assert second.leaf.pem != first.leaf.pem
    assert (files.account / "ca.crt").stat() == place  # not even written again
    async with echoing(second) as port:
        streams = await connect(port, context)
        assert await echoed(streams) == b"hello\n"
        streams[1].close()


def test_proxies_that_start_at_once_agree_on_one_authority(files: TlsFiles) -> None:
    """The lock lets one make it; the others read it."""
    made: list[Serving] = []
    threads = [threading.Thread(target=lambda: made.append(Serving(files))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    for serving in made:
        agree(serving, files)


def _cut(files: TlsFiles) -> None:
    path = files.authority / "authority.pem"
    path.write_bytes(path.read_bytes()[:-40])


def _mixed(files: TlsFiles) -> None:
    path = files.authority / "authority.pem"
    path.write_bytes((files.authority / "leaf.pem").read_bytes())


def _swapped(files: TlsFiles) -> None:
    path, now = files.authority / "authority.pem", datetime.now(UTC)
    path.write_bytes(Authority(new_authority(now).key, new_authority(now).certificate).pem)


def _no_authority(files: TlsFiles) -> None:
    key, now = new_authority(datetime.now(UTC)).key, datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "one that signs nobody but itself")])
    own = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=3000))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    (files.authority / "authority.pem").write_bytes(Authority(key, own).pem)


def _linked(files: TlsFiles) -> None:
    path = files.authority / "authority.pem"
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _copied(files: TlsFiles) -> None:
    for name in ("token", "namespace"):
        (files.account / name).unlink()
        (files.account / name).write_text("a copy that goes stale")
    (files.account / "ca.crt").write_text("not a certificate")


def _left(files: TlsFiles) -> None:
    for folder in (files.authority, files.account):
        (folder / ".backoff-ctrl-0123").write_text("half a fi")
    (files.account / "ca.crt").unlink()
    (files.account / "token").unlink()
    (files.account / "token").symlink_to("/nowhere")


def _opened(files: TlsFiles) -> None:
    (files.authority / "authority.pem").chmod(0o666)
    (files.account / "ca.crt").chmod(0o600)


@pytest.mark.parametrize("harm", [_cut, _mixed, _swapped, _no_authority, _linked, _copied, _left, _opened])
async def test_what_was_half_written_is_repaired(files: TlsFiles, harm: Callable[[TlsFiles], None]) -> None:
    """A start puts everything in order, and takes a new authority only where the old one is lost."""
    Serving(files)
    first = trusted(files)
    harm(files)
    serving = Serving(files)
    lost = harm in {_cut, _mixed, _swapped, _no_authority, _linked}
    assert (trusted(files) != first) is lost
    async with echoing(serving) as port:
        streams = await connect(port, trusting(files))
        assert await echoed(streams) == b"hello\n"
        streams[1].close()
    assert {path.name for path in files.account.iterdir()} == {"ca.crt", "token", "namespace"}
    assert not [path for path in files.authority.iterdir() if path.name.startswith(".backoff")]
    assert (files.account / "token").readlink() == files.token_volume / "token"
    assert (mode(files.account / "ca.crt"), mode(files.authority / "authority.pem")) == (0o644, 0o600)


def test_an_authority_that_ends_soon_is_replaced_with_a_word(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    """A leaf never outlives it."""
    now = datetime.now(UTC)
    Serving(files, now - timedelta(days=3400))
    with caplog.at_level(logging.WARNING):
        serving = Serving(files, now)
    assert "creators that have already read ca.crt must be restarted" in caplog.text
    assert trusted(files).not_valid_after_utc > serving.leaf.ends > now
    ends = Serving(files, now, life=timedelta(days=5000)).leaf.ends
    assert ends == trusted(files).not_valid_after_utc


def _file_in_place(files: TlsFiles) -> TlsFiles:
    files.account.rmdir()
    files.account.write_text("")
    return files


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda each: TlsFiles(each.account / "key", each.account, each.token_volume), "only the proxy mounts"),
        (lambda each: TlsFiles(each.account, each.account, each.token_volume), "only the proxy mounts"),
        (
            lambda each: TlsFiles(each.authority, each.account, each.account),
            "mount the projected token at another path",
        ),
        (lambda each: TlsFiles(each.authority, each.account, Path("token")), "must be the whole path"),
        (lambda each: TlsFiles(each.authority, each.account, each.token_volume, ("a b",)), "correct the name"),
        (lambda each: TlsFiles(each.authority, each.account, each.token_volume, ("300.1.1.1",)), "correct the name"),
        (lambda each: TlsFiles(Path("/proc/none"), each.account, each.token_volume), "the proxy may write"),
        (_file_in_place, "the proxy may write"),
    ],
)
def test_what_cannot_work_is_one_sentence(files: TlsFiles, change: Callable[[TlsFiles], TlsFiles], says: str) -> None:
    """With what to do about it."""
    with pytest.raises(CertificatesError) as caught:
        Serving(change(files))
    told = str(caught.value)
    assert says in told
    assert "\n" not in told
    assert len(told) < 250


@pytest.mark.parametrize("made_before", [False, True])
def test_a_directory_that_may_not_be_read_is_one_sentence(files: TlsFiles, made_before: bool) -> None:
    """As when the volume belongs to another user than the one that the proxy runs as."""
    if made_before:
        Serving(files)
    files.authority.chmod(0)
    user = os.geteuid()
    if user == 0:
        files.authority.parent.chmod(0o711)
        os.seteuid(65534)  # to the superuser nothing is unreadable
    try:
        with pytest.raises(CertificatesError, match="authority cannot be used: Permission denied; mount a volume"):
            Serving(files)
    finally:
        os.seteuid(user)
        files.authority.chmod(0o700)


def test_without_the_package_one_sentence_says_what_to_install() -> None:
    """It is needed in TLS mode alone."""
    program = """
import sys
sys.modules["cryptography"] = None
import backoff_ctrl.k8s.sidecar.certificates as files
try:
    import backoff_ctrl.k8s.sidecar.authority
except files.CertificatesError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "TLS mode needs the package cryptography: install backoff-ctrl[proxy], or serve plain HTTP\n"
    )


async def served_to_callers(given: GivenCertificate, folder: Path) -> int:
    """Return the serial number of the certificate that a new connection gets."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    trust = ssl.create_default_context(cafile=folder / "tls.crt")
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=given.context) as server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return x509.load_der_x509_certificate(found).serial_number


def serial(path: Path) -> int:
    """Return the serial number of a certificate in a file."""
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


async def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    """One that can't be used yet, since its key is still the old one, changes nothing, and is said once."""
    pair = make_pair(tmp_path)
    given = GivenCertificate(pair.certificate, pair.key)
    first = serial(pair.certificate)
    assert await served_to_callers(given, tmp_path) == first
    other = make_pair(tmp_path / "other")
    pair.certificate.write_bytes(other.certificate.read_bytes())
    with pytest.raises(CertificatesError, match="can't be used as certificate and key"):
        given.renew()
    assert await served_to_callers(given, tmp_path) == first
    pair.key.write_bytes(other.key.read_bytes())
    given.renew()
    assert await served_to_callers(given, tmp_path) == serial(other.certificate) != first


async def test_it_looks_again_and_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every ten seconds, by a clock that the test gives; a fault is one line until it is over."""
    pair = make_pair(tmp_path)
    given = GivenCertificate(pair.certificate, pair.key)
    good, pauses = pair.key.read_bytes(), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            pair.key.write_text("broken")
        if len(pauses) == 4:
            pair.key.write_bytes(good)
        if len(pauses) == 6:
            pair.key.unlink()
        if len(pauses) == 8:
            raise asyncio.CancelledError

    with caplog.at_level(logging.WARNING, "backoff_ctrl"), pytest.raises(asyncio.CancelledError):
        await given.keep_fresh(pause)
    assert pauses == [LOOK_EVERY] * 8
    assert ["the previous certificate stays in use" in record.getMessage() for record in caplog.records] == [True, True]


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    """It names the files."""
    with pytest.raises(CertificatesError, match=r"tls.crt and .*tls.key can't be used .* No such file"):
        GivenCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")


ANOTHER: Final = 65_534
SECRET: Final = "somebody's private key"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
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
    agree(serving, files)
    assert not (files.account / "ca.crt").is_symlink()
    for name in ("token", "namespace"):
        assert (files.account / name).readlink() == files.token_volume / name


@pytest.mark.parametrize("name", ["ca.crt", "token"])
def test_a_pipe_or_a_file_in_the_way_is_replaced(files: TlsFiles, name: str) -> None:
    """Nobody waits for somebody to write into a pipe."""
    os.mkfifo(files.account / name)
    (files.account / "namespace").write_text("another-team")
    agree(Serving(files), files)
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
    planted = new_authority(datetime.now(UTC))
    path = files.authority / "authority.pem"
    path.write_bytes(planted.pem)
    path.chmod(0o600)
    if os.geteuid() == 0:
        of_another(path)
        Serving(files)
        assert trusted(files) != planted.certificate
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
