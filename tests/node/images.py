"""The images that a node runs, made without a registry, each once per content: in ``~/.cache/backoff-ctrl/node-...``.

The project's own is what its Dockerfile makes. Where the registry of its base can't be reached, the base is a Debian
with a Python of the same minor version of this machine, under the same name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.cluster.control_plane import binaries
from tests.cluster.control_plane.compiling import one_at_a_time
from tests.node.oci import write_image

Say = Callable[[str], None]

ROOT: Final = Path(__file__).parents[2]
REPOSITORY: Final = "registry.example/team/backoff-ctrl"
"""What a user pushes the project's image to."""
_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
_LIBRARIES: Final = (
    "ca-certificates netbase tzdata libssl3 libsqlite3-0 libffi8 libbz2-1.0 liblzma5 libreadline8 libuuid1 libexpat1"
    " libncursesw6"
)
_OCI: Final = Path(__file__).with_name("oci.py")
_KEPT: Final = 3
"""Images of the project: as many checkouts may use this machine at once."""
_REACHED: Final = 60.0
"""Seconds for a registry to hand out the base."""


class ImageError(RuntimeError):
    """An image can't be made; the text says why."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backoff-ctrl"


def images(say: Say) -> dict[str, Path]:
    """Return the folders of all images by repository and tag; make those that are missing. Raises ``ImageError``."""
    bed = binaries.wanted()
    small = {
        "pause": (Path("/bin/busybox"), "pause:3.10", ("/bin/busybox", "sleep", "2147483647")),
        "busybox": (Path("/bin/busybox"), "library/busybox:latest", ()),
        "kubectl": (bed.kubectl, f"kubectl:v{bed.recipe.version}", ("/bin/kubectl",)),
    }
    found = {tag: _small(name, program, command, say) for name, (program, tag, command) in small.items()}
    version = re.search(r"^ARG VERSION=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert version
    found[f"{REPOSITORY.partition('/')[2]}:{version[1]}"] = _project(say)
    return found


def _small(name: str, program: Path, command: tuple[str, ...], say: Say) -> Path:
    """Make an image of one static program; busybox has its links."""
    key = _key(program, _OCI)
    with _made(f"node-{name}-{key}", say) as (target, missing):
        if missing:
            root = target.parent / "root"
            for folder in ("bin", "etc", "tmp"):
                (root / folder).mkdir(parents=True)
            (root / "tmp").chmod(0o1777)
            (root / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
            shutil.copy(program, root / "bin" / program.name)
            if program.name == "busybox":
                for applet in _said([str(program), "--list"]).split():
                    if applet != "busybox":
                        (root / "bin" / applet).symlink_to("busybox")
            write_image(
                target, root, environment={"PATH": "/bin"}, program=command, arguments=() if command else ["sh"]
            )
    return _place(f"node-{name}-{key}")


def _project(say: Say) -> Path:
    """Make the project's image by its Dockerfile."""
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    base = _base(say)
    sources = [ROOT / each for line in copied for each in line.split()]
    name = f"node-image-{_key(ROOT / 'Dockerfile', *sources, more=base.name)}"
    with _made(name, say) as (target, missing):
        if missing:
            say("building the project's image, once per content: it takes 1 to 3 minutes ...")
            _build(target, base, say)
    place = _place(name)
    os.utime(place)
    others = sorted(cache().glob("node-image-*"), key=lambda each: each.stat().st_mtime)
    for old in others[:-_KEPT]:
        shutil.rmtree(old)
    return place


def _build(target: Path, base: Path, say: Say) -> None:
    store = _Store(target.parent / "store")
    pulled = store.run("pull", "-q", f"oci:{base.name}:latest").strip()  # buildah makes the path a name: a short one
    store.run("tag", pulled, "localhost/base:latest")
    (target.parent / "pip.conf").write_text(f"[global]\ncert = {_CERTIFICATES}\n")
    volumes = [
        f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro",  # this machine may reach the index by a proxy of its own
        "--volume=/etc/resolv.conf:/etc/resolv.conf:ro",
        f"--volume={target.parent / 'pip.conf'}:/etc/pip.conf:ro",
    ]
    store.run("bud", "-q", "--isolation=chroot", "--build-arg=BASE=localhost/base:latest", "-t", "made", *volumes,
              str(ROOT))  # fmt: skip
    store.run("push", "-q", "made", f"oci:{target}:latest")
    store.remove()
    say("built the project's image")


def _base(say: Say) -> Path:
    """Return the base that the Dockerfile names, or what stands for it where its registry can't be reached."""
    named = re.search(r"^ARG BASE=((\S+?):(\d+\.\d+)\S*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert named, "the Dockerfile has no line ARG BASE=NAME:TAG@DIGEST"
    name = f"node-base-{_key(_OCI, more=named[1] + _LIBRARIES)}"
    with _made(name, say) as (target, missing):
        if missing:
            store = _Store(target.parent / "store")
            say(f"asking for {named[1]} ...")
            try:
                pulled = store.run("pull", "-q", re.sub(":[^:@]+@", "@", named[1]), patience=_REACHED).strip()
                store.run("push", "-q", pulled, f"oci:{target}:latest")
            except ImageError as error:
                say(f"no registry gives it ({error}): it is made of a Debian and a Python {named[3]} of this machine")
                _make_base(target, _python(named[3]))
            store.remove()
    return _place(name)


def _make_base(target: Path, python: Path) -> None:
    """Make what python:3.x-slim is: a small Debian, and a Python in /usr/local."""
    root = target.parent / "root"
    packages = ",".join(_LIBRARIES.split())
    _said(["mmdebstrap", "-q", "--variant=minbase", f"--include={packages}", "bookworm", str(root)])
    for part in ("bin", "lib", "include"):
        shutil.copytree(python / part, root / "usr/local" / part, symlinks=True, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("test", "idlelib", "__pycache__", "site-packages"))  # fmt: skip
    for script in (root / "usr/local/bin").iterdir():  # those of pip name the interpreter where it was
        if not script.is_symlink() and script.read_bytes().startswith(b"#!"):
            script.unlink()
    (root / "usr/local/bin/python3").unlink(missing_ok=True)
    (root / "usr/local/bin/python3").symlink_to(next((root / "usr/local/bin").glob("python3.1?")).name)
    _said(["chroot", str(root), "ldconfig"])
    _said(["chroot", str(root), "/usr/local/bin/python3", "-c", "import ssl, sqlite3, ctypes, bz2, lzma, ensurepip"])
    for folder in ("var/lib/apt/lists", "var/cache/apt"):
        shutil.rmtree(root / folder)
    path = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    write_image(target, root, environment=path)


def _python(minor: str) -> Path:
    """Return the prefix of a Python that lies in a folder of its own."""
    candidates = [Path(sys.base_prefix), *sorted(Path.home().glob(f".pyenv/versions/{minor}.*"))]
    if on_path := shutil.which(f"python{minor}"):
        candidates.append(Path(on_path).resolve().parents[1])
    for each in candidates:
        if each != Path("/usr") and (each / "bin" / f"python{minor}").exists():
            return each
    raise ImageError(f"no Python {minor} with a prefix of its own is there, such as one of pyenv: install one")


class _Store:
    """Where buildah keeps images while one is built."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, *words: str, patience: float | None = None) -> str:
        places = [f"--root={self._folder / 'images'}", f"--runroot={self._folder / 'run'}"]
        return _said(["buildah", *places, "--storage-driver=overlay", *words], patience)

    def remove(self) -> None:
        self.run("rmi", "--all", "--force")
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def _made(name: str, say: Say) -> Iterator[tuple[Path, bool]]:
    """Let a folder of the cache be made if it is missing: whole, or not at all."""
    cache().mkdir(parents=True, exist_ok=True)
    place = _place(name)
    with ExitStack() as held:
        if not place.is_dir():
            held.enter_context(one_at_a_time(cache(), say))
        if place.is_dir():  # another run may have made it meanwhile
            yield place, False
            return
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix=".node-", dir=cache()))
        target = Path(folder) / "image"
        yield target, True
        target.rename(place)


def _place(name: str) -> Path:
    return cache() / name


def _key(*paths: Path, more: str = "") -> str:
    """Hash files, and folders with all that is in them but bytecode."""
    found = sha256(more.encode())
    for path in paths:
        files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
        for each in files:
            if "__pycache__" not in each.parts:
                found.update(f"{each.relative_to(path.parent)}\0".encode())
                found.update(sha256(each.read_bytes()).digest())
    return found.hexdigest()[:12]


def _said(command: list[str], patience: float | None = None) -> str:
    """Return what a program says. Raises ``ImageError`` with its last words."""
    try:
        done = subprocess.run(command, cwd=cache(), capture_output=True, text=True, timeout=patience, check=False)
    except FileNotFoundError:
        raise ImageError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise ImageError(f"{command[0]} took longer than {patience:.0f} s") from None
    if done.returncode:
        words = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-12:])
        raise ImageError(f"{' '.join(command)[:200]}: {words}")
    return done.stdout
