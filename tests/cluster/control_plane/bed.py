"""Bed: a real etcd, kube-apiserver and kube-controller-manager on free ports of this machine, and their users.

There are no nodes: pods stay Pending until somebody writes their status or deletes them.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.guardian import Guardian
from tests.cluster.control_plane.roles import BINDINGS, ROLES
from tests.cluster.control_plane.servers import USERS, Server

ETCD: Final = "etcd"
API: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
COMPONENTS: Final = (ETCD, API, CONTROLLERS)
"""In the order of their start."""

_CONTROLLERS: Final = (  # not the one that collects pods: it would take away what tests put on nodes that are none
    "resourcequota-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "job-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",  # with the other, what every new namespace of a cluster contains
    "clusterrole-aggregation-controller",  # without it the role `view` is empty
    "persistentvolumeclaim-protection-controller",  # without it no claim ever goes: admission gives each a finalizer
)
_PATIENCE: Final = 150.0
"""Seconds until a component that is not ready is given up; 2 to 4 is what it takes."""
_POLL: Final = 0.05
_TAIL: Final = 12
"""Lines of each log that an error shows."""


class BedError(RuntimeError):
    """The bed can't be started; the text ends with what its components said last."""


class PortTakenError(BedError):
    """Somebody else was faster in taking a port that was free."""


class Bed:
    """A control plane of its own: use it as a context manager.

    ``kcm_qps``: calls per second that the controller manager allows itself (20 by default, which lets it write
    20 released quotas per second for the whole cluster). ``api_flags``: more flags of kube-apiserver.
    ``controllers``: more controllers than those that every test needs. ``accounts``: pods get the token of their
    service account, as in any cluster; else that is left out, since a pod would have to wait for it.
    ``logs``: where they are kept when it can't start. ``say`` is told what is waited for.
    """

    def __init__(
        self,
        binaries: Binaries,
        *,
        kcm_qps: float | None = None,
        api_flags: Iterable[str] = (),
        controllers: Iterable[str] = (),
        accounts: bool = False,
        logs: Path | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.binaries = binaries
        self._kcm_qps = kcm_qps
        self._api_flags = (*api_flags, *(() if accounts else ("--disable-admission-plugins=ServiceAccount",)))
        self._controllers = (*_CONTROLLERS, *controllers)
        self._kept_logs = logs
        self._say = say
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._cleanup = ExitStack()
        self._ports: dict[str, int] = {}
        self._folder = Path()
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        assert self._server is not None, "the bed is not started: use `with Bed(...) as bed`"
        return self._server

    def pid(self, component: str) -> int:
        """Return the process of a component that runs. Raises ``KeyError`` for one that does not."""
        return self._running[component].pid

    def compact(self) -> None:
        """Let etcd forget all versions but the newest."""
        revision = self._ask_etcd("kv/range", {"key": "AA=="})["header"]["revision"]
        self._ask_etcd("kv/compaction", {"revision": revision})

    def _ask_etcd(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._ports[ETCD]}/v3/{what}"
        with urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def __enter__(self) -> Self:
        """Start everything and wait until a quota is enforced. Raises ``BedError`` with the ends of the logs."""
        for tries_left in (2, 1, 0):
            try:
                self._bring_up()
            except PortTakenError:
                self._cleanup.close()
                if not tries_left:
                    raise
            except BaseException:
                self._cleanup.close()
                raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def start(self, component: str) -> None:
        """Start one of ``COMPONENTS``, again with the same data, and wait until it is ready. Raises ``BedError``."""
        assert component not in self._running, f"{component} runs already"
        with (self._folder / "logs" / f"{component}.log").open("ab") as log:
            process = subprocess.Popen(
                [self.binaries.path(component), *self.flags(component)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**os.environ, "GOGC": "400"},  # a sixth less of the CPU, for 100 MiB more of memory
                start_new_session=True,  # Ctrl-C is for the tests: they end what they have started
            )
        self._guardian.watch(process.pid)
        self._running[component] = process
        self._wait(f"{component} to be ready", component, lambda: self._is_ready(component))

    def stop(self, component: str, *, grace: float = 10.0) -> None:
        """End a component: politely, and after ``grace`` seconds for sure; 0 is a crash."""
        process = self._running.pop(component)
        process.send_signal(signal.SIGTERM if grace else signal.SIGKILL)
        try:
            process.wait(timeout=grace or None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._guardian.forget(process.pid)

    def renew_controllers(self) -> None:
        """Start the controllers anew after the API server was lost.

        What they make of that is not ours to test: now and then the quota controller counts nothing for minutes,
        perhaps since it learns the kinds anew (see ``patience.PATIENCE``).
        """
        self.stop(CONTROLLERS, grace=0)
        self.start(CONTROLLERS)

    def keep_logs(self) -> Path:
        """Copy the logs to where they outlive the bed, in place of what was there, and return that folder."""
        assert self._kept_logs is not None, "Bed(..., logs=FOLDER) says where"
        shutil.rmtree(self._kept_logs, ignore_errors=True)
        shutil.copytree(self._folder / "logs", self._kept_logs)
        return self._kept_logs

    def _bring_up(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="backoff-ctrl-bed-"))
        self._cleanup.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._guardian = self._cleanup.enter_context(Guardian(self._folder))
        self._cleanup.callback(self._stop_all)
        self._prepare()
        for component in COMPONENTS:
            self.start(component)
        version = self._ask("GET", "/version")
        self._server = replace(self.server, minor=int(version["minor"].rstrip("+")))
        self._let_users_in()
        self._wait("the first quota to be enforced", CONTROLLERS, self._first_quota)

    def _stop_all(self) -> None:
        for component in reversed([*self._running]):
            self.stop(component, grace=0)  # nobody needs the data: nothing is lost by the quick way

    def _prepare(self) -> None:
        (self._folder / "logs").mkdir()
        self._ports = _free_ports(("etcd", "peers", API, CONTROLLERS))
        tokens = {user: f"{user}-{secrets.token_hex(8)}" for user in USERS}
        groups = {"admin": "system:masters"}
        lines = [f'{token},{user},{user},"{groups.get(user, "")}"' for user, token in tokens.items()]
        (self._folder / "tokens.csv").write_text("\n".join(lines) + "\n")
        self._server = Server(
            kind="kubernetes",
            minor=0,  # it will tell
            url=f"https://127.0.0.1:{self._ports[API]}",
            certificate=self._folder / "certs" / "apiserver.crt",
            folder=self._folder,
            tokens=tokens,
            compact=self.compact,
        )

    def flags(self, component: str) -> list[str]:
        etcd = f"http://127.0.0.1:{self._ports[ETCD]}"
        peers = f"http://127.0.0.1:{self._ports['peers']}"
        certs = self._folder / "certs"
        if component == ETCD:
            return [
                f"--data-dir={self._folder / 'data'}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=default={peers}",
                "--unsafe-no-fsync",  # the data need not outlive the machine
                "--log-level=warn",
            ]
        if component == API:
            # It makes its certificate at its first start; that key signs the tokens of service accounts as well.
            return [
                f"--etcd-servers={etcd}",
                f"--secure-port={self._ports[API]}",
                "--bind-address=127.0.0.1",
                "--advertise-address=192.0.2.1",  # nobody's address: else one of a network is looked for
                "--endpoint-reconciler-type=none",
                f"--cert-dir={certs}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={certs / 'apiserver.key'}",
                f"--service-account-signing-key-file={certs / 'apiserver.key'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                f"--token-auth-file={self._folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                *self._api_flags,
            ]
        qps = [f"--kube-api-qps={self._kcm_qps}", f"--kube-api-burst={2 * self._kcm_qps:.0f}"] if self._kcm_qps else []
        return [
            f"--kubeconfig={self.server.kubeconfig('admin')}",
            f"--controllers={','.join(self._controllers)}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[CONTROLLERS]}",
            f"--cert-dir={self._folder / 'certs-of-controllers'}",
            f"--root-ca-file={self.server.certificate}",
            *qps,
        ]

    def _is_ready(self, component: str) -> bool:
        if component == ETCD:
            return _answers(f"http://127.0.0.1:{self._ports[ETCD]}/health", None)
        if component == API:
            return self._certificate_is_there() and _answers(f"{self.server.url}/readyz", self.server.ssl())
        certificate = self._folder / "certs-of-controllers" / "kube-controller-manager.crt"
        try:
            trust = ssl.create_default_context(cafile=certificate)
        except OSError:  # it is not there, or not whole yet; ssl.SSLError is one
            return False
        return _answers(f"https://127.0.0.1:{self._ports[CONTROLLERS]}/healthz", trust)

    def _certificate_is_there(self) -> bool:
        key = self._folder / "certs" / "apiserver.key"  # written after the certificate
        return key.exists() and key.stat().st_size > 0

    def _let_users_in(self) -> None:
        roles = "/apis/rbac.authorization.k8s.io/v1"
        for role in ROLES:
            self._ask("POST", f"{roles}/clusterroles", role)
        for binding in BINDINGS:
            self._ask("POST", f"{roles}/clusterrolebindings", binding)
        view = f"{roles}/clusterroles/view"
        self._wait("the role `view` to be filled", CONTROLLERS, lambda: self._ask("GET", view)["rules"])
        self._ask("POST", "/api/v1/namespaces", {"metadata": {"name": "bed-is-ready"}})
        quota = {"metadata": {"name": "first"}, "spec": {"hard": {"pods": "1"}}}
        self._ask("POST", "/api/v1/namespaces/bed-is-ready/resourcequotas", quota)

    def _first_quota(self) -> bool:
        quota = self._ask("GET", "/api/v1/namespaces/bed-is-ready/resourcequotas/first")
        if not quota.get("status", {}).get("hard"):
            return False
        self._ask("DELETE", "/api/v1/namespaces/bed-is-ready")
        return True

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the API server as admin. Raises ``BedError`` with its refusal."""
        headers = {"Authorization": f"Bearer {self.server.token('admin')}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self.server.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.server.ssl()) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise BedError(f"{method} {path}: {error.code} {error.read().decode()}") from None
        return found

    def _wait(self, what: str, component: str, holds: Callable[[], object]) -> None:
        """Wait until it holds, as long as the component lives. Raises ``BedError``."""
        started = time.monotonic()
        told = started
        while not holds():
            code = self._running[component].poll()
            if code is not None:
                said = self._last_words()
                failure = PortTakenError if "address already in use" in said else BedError
                raise failure(f"{component} ended with code {code} while the bed waited for {what}\n{said}")
            now = time.monotonic()
            if now - started > _PATIENCE:
                raise BedError(f"the bed waited {_PATIENCE:.0f} s for {what}, in vain\n{self._last_words()}")
            if now - told > 5:
                told = now
                self._say(f"still waiting for {what} ({now - started:.0f} s)")
            time.sleep(_POLL)

    def _last_words(self) -> str:
        """Return the last lines of each log, and keep the whole ones where that was asked for."""
        said = []
        for log in sorted((self._folder / "logs").glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-_TAIL:]
            said += [f"--- the last lines of {log.name}:", *(line[:400] for line in lines)]
        if self._kept_logs is not None:
            said.append(f"--- the whole logs are in {self.keep_logs()}")
        return "\n".join(said)


def _free_ports(names: Iterable[str]) -> dict[str, int]:
    """Return a port for each name that nobody listens on: all are held until the last one is found."""
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.create_server(("127.0.0.1", 0))) for name in names}
        return {name: each.getsockname()[1] for name, each in sockets.items()}


def _answers(url: str, trust: ssl.SSLContext | None) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5, context=trust) as answer:
            return bool(answer.status == 200)
    except OSError:  # not yet: HTTPError and URLError are OSErrors as well
        return False
