"""Ask a public database, osv.dev, for known vulnerabilities of what is shipped; a vulnerability fails.

``python -m tools.audit PINS`` fails as well where it can't ask. With ``--if-reachable``, as ``make check`` runs it, a
line says then that nothing was audited; and what was found clean is not asked again for a day, until the pins change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

URL: Final = "https://api.osv.dev/v1/query"
CLEAN: Final = Path("build") / "audit"
"""A file for each set of pins that was found clean; its date says when."""
DAY: Final = 86_400.0
PATIENCE: Final = 1.5
"""Seconds for the database to show that it is there: `make check` is run often, also where there is no network."""
AUDIT_MAX: Final = 120.0
"""Seconds for the whole audit."""


class UnauditedError(Exception):
    """The database could not be asked. The message says why."""


def unreachable(url: str, patience: float = PATIENCE) -> str:
    """Return why nobody answers at a URL, whatever the answer; empty if somebody does."""
    why = [f"no answer within {patience:g} s"]

    def ask() -> None:
        try:
            asked = urllib.request.Request(url, method="HEAD")  # noqa: S310 - our own URL
            urllib.request.urlopen(asked, timeout=patience).close()  # noqa: S310
        except urllib.error.HTTPError as answer:
            answer.close()  # it speaks HTTP: that is enough
        except (OSError, ValueError) as error:
            why[0] = str(getattr(error, "reason", error)) or type(error).__name__
            return
        why[0] = ""

    asking = threading.Thread(target=ask, daemon=True)  # looking a name up knows no limit of time
    asking.start()
    asking.join(patience)
    return why[0]


def audited(pins: Path, url: str) -> dict[str, list[str]]:
    """Return the known vulnerabilities by distribution, of those that have any. Raises ``UnauditedError``."""
    if why := unreachable(url):
        raise UnauditedError(why)
    command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner=off"]
    command += [
        "--vulnerability-service=osv",
        f"--osv-url={url}",
        "--format=json",
        "--desc=off",
        f"--requirement={pins}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=AUDIT_MAX)  # noqa: S603 - ours
    except subprocess.TimeoutExpired:
        raise UnauditedError(f"it took more than {AUDIT_MAX:.0f} s") from None
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):  # pip-audit writes no report when a question was not answered
        raise UnauditedError((done.stderr.strip().splitlines() or ["no report"])[-1]) from None
    skipped = [f"{each['name']}: {each['skip_reason']}" for each in found if "skip_reason" in each]
    if skipped or len(found) != len(pins.read_text(encoding="utf-8").split()):
        raise UnauditedError(f"not all distributions were looked up: {'; '.join(skipped) or len(found)}")
    return {f"{each['name']} {each['version']}": _told(each["vulns"]) for each in found if each["vulns"]}


def _told(vulnerabilities: list[dict[str, Any]]) -> list[str]:
    fixed = [(each["id"], ", ".join(each["fix_versions"]) or "no version yet") for each in vulnerabilities]
    return [f"{name} (fixed in {versions})" for name, versions in fixed]


def main() -> int:
    """Do as the command line says. Returns the exit code."""
    reader = argparse.ArgumentParser(prog="python -m tools.audit", description=__doc__)
    reader.add_argument("pins", type=Path, help="name==version, a line each: python -m tools.shipped --pins FILE")
    reader.add_argument(
        "--if-reachable", action="store_true", help="where the database can't be asked, say so and end with 0"
    )
    reader.add_argument("--url", default=URL, help="the database; default: %(default)s")
    reader.add_argument("--clean", type=Path, default=CLEAN, metavar="FOLDER", help="default: %(default)s")
    asked = reader.parse_args()
    pins = asked.pins.read_bytes()
    clean = asked.clean / hashlib.sha256(pins + asked.url.encode()).hexdigest()
    count = f"the {len(pins.split())} distributions that are shipped"
    age = time.time() - clean.stat().st_mtime if clean.is_file() else DAY
    if asked.if_reachable and 0 <= age < DAY:
        _say(f"audit: no known vulnerability in {count} (asked {age / 3600:.0f} h ago)")
        return 0
    try:
        found = audited(asked.pins, asked.url)
    except UnauditedError as error:
        why = f"{asked.url} could not be asked ({_short(error)})"
        _say(f"audit: NOTHING WAS AUDITED: {why}; run make audit where it can be")
        return 0 if asked.if_reachable else 1
    for name, told in found.items():
        _say(f"audit: {name}: {'; '.join(told)}")
    if found:
        _say("audit: take a version without these in constraints.txt, or do without")
        return 1
    clean.parent.mkdir(parents=True, exist_ok=True)
    clean.touch()
    _say(f"audit: no known vulnerability in {count}")
    return 0


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 160 else f"...{text[-157:]}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
