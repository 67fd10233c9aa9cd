"""A user of the node's cluster, who types commands and looks at objects."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.kit.patience import PATIENCE

T = TypeVar("T")
JSON = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
_POLL: Final = 0.2


class CommandError(AssertionError):
    """A command failed; the text is what it said."""


class User:
    """Types commands in the project's folder, with kubectl and helm (of a major version) at hand."""

    def __init__(self, folder: Path, helm: int = 4) -> None:
        self._folder = folder
        self.major = helm
        programs = folder / f"programs-{helm}"
        homes = {name: str(programs / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
        self.variables = {
            "PATH": f"{programs}:{ROOT / '.venv/bin'}:/usr/bin:/bin",
            "HOME": str(programs),
            "KUBECONFIG": str(folder / "admin.kubeconfig"),
            **homes,
        }

    def with_helm(self, major: int) -> User:
        return User(self._folder, major)

    @property
    def folder(self) -> Path:
        return self._folder

    def types(self, command: str | list[str], *, given: str | None = None, patience: float = PATIENCE) -> str:
        """Return what a command says. Raises ``CommandError`` where it fails."""
        done = subprocess.run(
            command,
            shell=isinstance(command, str),
            cwd=ROOT,
            env=self.variables,
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience,
            check=False,
        )
        if done.returncode:
            raise CommandError(f"{command}: code {done.returncode}: {done.stdout}")
        return done.stdout

    def kubectl(self, *words: str, given: str | None = None) -> str:
        return self.types(["kubectl", *words], given=given)

    def helm(self, *words: str) -> str:
        return self.types(["helm", *words])

    def gate(self, *words: str) -> str:
        """Return what ``backoff-ctrl`` says on the user's own machine."""
        return self.types(["backoff-ctrl", *words])

    def apply(self, *objects: JSON) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("create", "-f", "-", given=json.dumps(listed))

    def find(self, kind: str, name: str, namespace: str = "default") -> JSON | None:
        """Return an object, or nothing where it does not exist."""
        said = self.kubectl("get", kind, name, f"--namespace={namespace}", "--ignore-not-found", "--output=json")
        found: JSON | None = json.loads(said) if said.strip() else None
        return found

    def all(self, kind: str, namespace: str, *words: str) -> list[JSON]:
        said = self.kubectl("get", kind, f"--namespace={namespace}", "--output=json", *words)
        found: list[JSON] = json.loads(said)["items"]
        return found

    def until(self, what: str, asked: Callable[[], T | None], patience: float = PATIENCE) -> T:
        """Ask until the answer is not empty, and return it."""
        deadline = time.monotonic() + patience
        while not (found := asked()):
            assert time.monotonic() < deadline, f"waited {patience:.0f} s in vain for {what}"
            time.sleep(_POLL)
        return found

    def phase(self, pod: str, namespace: str = "default") -> str:
        found = self.find("pod", pod, namespace)
        return str(found["status"].get("phase", "")) if found else ""

    def until_phase(self, phase: str, pod: str, namespace: str = "default") -> None:
        """Wait for a pod's phase; a pod that ends otherwise fails at once, with its logs."""

        def asked() -> bool:
            found = self.phase(pod, namespace)
            if found in {"Succeeded", "Failed"} and found != phase:
                logs = self.kubectl("logs", pod, f"--namespace={namespace}", "--all-containers", "--prefix")
                raise AssertionError(f"pod {pod} is {found}, not {phase}:\n{logs}")
            return found == phase

        self.until(f"pod {pod} to be {phase}", asked)
