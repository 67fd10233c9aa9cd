"""A Kubernetes node of its own on this machine: real kubelet, containers, pod network, Services and names of Services.

It lives in network, mount and process namespaces of its own and ends with their first process, so that nothing has to
be hunted for. What it leaves outside them (cgroups, sysctls, its folder) ``traces`` takes away.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from tests.cluster.control_plane import binaries
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.kit.patience import PATIENCE
from tests.node.traces import HIDDEN

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
ADDRESS: Final = "10.99.0.1"
NAME: Final = "node1"
URL: Final = f"https://{ADDRESS}:6443"
_REGISTRY: Final = 5000
_PODS, _SERVICES = "10.98.0.0/24", "10.96.0.0/24"
_ETCD, _PEERS = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
_POLL: Final = 0.1
_TAIL: Final = 12
USERS: Final = {
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", "system:masters"),
    "scheduler": ("system:kube-scheduler", "system:masters"),
    "proxy": ("system:kube-proxy", "system:masters"),
    "kubelet": (f"system:node:{NAME}", "system:nodes"),
}


class NodeError(RuntimeError):
    """The node can't be started; the text ends with what its components said last."""


class Node:
    """A node with a control plane: use it as a context manager.

    ``images``: the folder of each image by repository and tag, which the node's registry serves.
    """

    def __init__(self, programs: GoPrograms, images: Mapping[str, Path], say: Callable[[str], None]) -> None:
        self._programs = programs
        self._images = images
        self._say = say
        self._control_plane = binaries.wanted()
        self._cleanup = ExitStack()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._first = 0

    def __enter__(self) -> Self:
        """Start everything and wait until a pod may be created. Raises ``NodeError``."""
        try:
            self._bring_up()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def kubeconfig(self) -> Path:
        return self._folder / "admin.kubeconfig"

    def entered(self, *command: str) -> list[str]:
        """Return a command that runs in the node's network, and on this machine otherwise."""
        return ["nsenter", f"--target={self._first}", "--net", "--", *command]

    def offer(self, helm: int, program: Path) -> None:
        """Put kubectl and helm of a major version where the user of the tests finds both."""
        folder = self._folder / f"programs-{helm}"
        folder.mkdir()
        (folder / "helm").symlink_to(program)
        (folder / "kubectl").symlink_to(self._control_plane.kubectl)

    def keep_logs(self) -> Path:
        """Copy the logs to where they outlive the node, and return that folder."""
        kept = ROOT / "build" / "node-logs"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self._folder / "logs", kept)
        return kept

    def _bring_up(self) -> None:
        name = f"backoff-ctrl-node-{secrets.token_hex(3)}"
        self._folder = Path(tempfile.gettempdir()) / name
        self._folder.mkdir(mode=0o700)
        for each in ("logs", "etcd", "network", "certs.d/_default"):
            (self._folder / each).mkdir(parents=True)
        traces = _started([sys.executable, str(HERE / "traces.py"), str(self._folder), name])
        self._cleanup.callback(_closed, traces)
        _expect_ready(traces)
        self._cleanup.callback(self._wait_all)
        kinds = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--propagation=private")
        holder = _started(["unshare", *kinds, sys.executable, str(HERE / "first.py"), ADDRESS, *HIDDEN])
        self._cleanup.callback(_closed, holder)
        _expect_ready(holder)
        self._first = int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text())
        assert traces.stdin is not None
        traces.stdin.write(f"{self._first}\n".encode())
        traces.stdin.flush()
        self._configure(name)
        self._start_all(name)

    def _wait_all(self) -> None:
        """Wait for the components, which the kernel has killed: the first process of their namespace has ended."""
        for each in self._running.values():
            each.wait()

    def _start(self, name: str, *command: str | Path, ready: Callable[[], object] = lambda: True) -> None:
        inside = ["nsenter", f"--target={self._first}", "--net", "--mount", "--pid", f"--wd={ROOT}", "--"]
        began = time.monotonic()
        with (self._folder / "logs" / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*inside, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self._folder)},
                start_new_session=True,
            )
        while not ready():
            if self._running[name].poll() is not None or time.monotonic() - began > PATIENCE:
                raise NodeError(f"{name} is not ready after {time.monotonic() - began:.0f} s\n{self.last_words()}")
            time.sleep(_POLL)

    def last_words(self) -> str:
        said = []
        for log in sorted((self._folder / "logs").glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-_TAIL:]
            said += [f"--- the last lines of {log.name}:", *(line[:400] for line in lines)]
        return "\n".join(said)

    def _configure(self, name: str) -> None:
        tokens = {each: secrets.token_hex(12) for each in USERS}
        lines = [f'{tokens[each]},{user},{each},"{group}"' for each, (user, group) in USERS.items()]
        (self._folder / "tokens.csv").write_text("\n".join(lines) + "\n")
        for each, token in tokens.items():
            cluster = {"server": URL, "certificate-authority": str(self._folder / "certs/apiserver.crt")}
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "node", "cluster": cluster}],
                "users": [{"name": each, "user": {"token": token}}],
                "contexts": [{"name": "node", "context": {"cluster": "node", "user": each}}],
                "current-context": "node",
            }
            (self._folder / f"{each}.kubeconfig").write_text(json.dumps(config))
        ranges = {"type": "host-local", "dataDir": f"{self._folder}/leases", "ranges": [[{"subnet": _PODS}]]}
        plugin = {"type": "ptp", "ipMasq": False, "ipam": {**ranges, "routes": [{"dst": "0.0.0.0/0"}]}}
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}
        (self._folder / "network/pods.conflist").write_text(json.dumps(network))
        (self._folder / "certs.d/_default/hosts.toml").write_text(
            f'server = "http://{ADDRESS}:{_REGISTRY}"\n'
            f'[host."http://{ADDRESS}:{_REGISTRY}"]\n  capabilities = ["pull", "resolve"]\n'
        )
        (self._folder / "containerd.toml").write_text(_CONTAINERD.format(folder=self._folder))
        (self._folder / "resolv.conf").write_text("")
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{name}",
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self._folder}/containerd.sock",
            "podLogsDir": f"{self._folder}/pod-logs",
            "volumePluginDir": f"{self._folder}/volume-plugins",
            "resolvConf": f"{self._folder}/resolv.conf",
            "clusterDomain": "cluster.local",
            "clusterDNS": [ADDRESS],
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "evictionHard": {
                "memory.available": "100Mi",
                **dict.fromkeys(
                    ("nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"), "0%"
                ),
            },
            "imageGCHighThresholdPercent": 100,
            "serializeImagePulls": False,
        }
        (self._folder / "kubelet.yaml").write_text(json.dumps(kubelet))
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "hostnameOverride": NAME,
            "bindAddress": ADDRESS,
            "clusterCIDR": _PODS,
            "clientConnection": {"kubeconfig": f"{self._folder}/proxy.kubeconfig"},
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
        (self._folder / "proxy.yaml").write_text(json.dumps(proxy))

    def _start_all(self, name: str) -> None:
        folder, certs = self._folder, self._folder / "certs"
        began = time.monotonic()
        named = [f"{tag}={place}" for tag, place in self._images.items()]
        self._start("registry", sys.executable, "-m", "tests.node.registry", ADDRESS, str(_REGISTRY), *named)
        self._start(
            "containerd",
            "containerd",
            f"--config={folder}/containerd.toml",
            ready=(folder / "containerd.sock").exists,
        )
        self._start(
            "etcd",
            self._control_plane.path("etcd"),
            f"--data-dir={folder}/etcd/data",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_PEERS}",
            f"--initial-advertise-peer-urls={_PEERS}",
            f"--initial-cluster=default={_PEERS}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._start(
            "kube-apiserver",
            self._control_plane.path("kube-apiserver"),
            f"--etcd-servers={_ETCD}",
            "--secure-port=6443",
            f"--bind-address={ADDRESS}",
            f"--advertise-address={ADDRESS}",
            f"--cert-dir={certs}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={certs}/apiserver.key",
            f"--service-account-signing-key-file={certs}/apiserver.key",
            f"--service-cluster-ip-range={_SERVICES}",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged",
            "--kubelet-preferred-address-types=InternalIP",
            ready=lambda: self._kubectl("get", "--raw=/readyz"),
        )
        self._start(
            "kube-controller-manager",
            self._control_plane.path("kube-controller-manager"),
            f"--kubeconfig={folder}/controllers.kubeconfig",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder}/certs-of-controllers",
            f"--service-account-private-key-file={certs}/apiserver.key",
            f"--root-ca-file={certs}/apiserver.crt",
            "--use-service-account-credentials",
        )
        self._start(
            "kube-scheduler",
            self._programs.path("kube-scheduler"),
            f"--kubeconfig={folder}/scheduler.kubeconfig",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder}/certs-of-scheduler",
        )
        self._start("dns", sys.executable, "-m", "tests.node.dns", ADDRESS, folder / "admin.kubeconfig")
        self._start("kube-proxy", self._programs.path("kube-proxy"), f"--config={folder}/proxy.yaml")
        self._start(
            "kubelet",
            self._programs.path("kubelet"),
            f"--config={folder}/kubelet.yaml",
            f"--kubeconfig={folder}/kubelet.kubeconfig",
            f"--root-dir={folder}/kubelet",
            f"--cert-dir={folder}/kubelet-certs",
            f"--hostname-override={NAME}",
            f"--node-ip={ADDRESS}",
            ready=self._is_ready,
        )
        self._say(f"a node of Kubernetes v{self._control_plane.recipe.version} is up after "
                  f"{time.monotonic() - began:.0f} s")  # fmt: skip

    def _is_ready(self) -> bool:
        ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return self._kubectl("get", "node", NAME, f"--output={ready}") == "True" and bool(
            self._kubectl("get", "serviceaccount", "default", "--namespace=default", "--output=name")
        )

    def _kubectl(self, *words: str) -> str:
        """Return what kubectl says; nothing where it fails."""
        command = self.entered(str(self._control_plane.kubectl), f"--kubeconfig={self.kubeconfig}", *words)
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd="/")


def _expect_ready(process: subprocess.Popen[bytes]) -> None:
    said: IO[bytes] | None = process.stdout
    assert said is not None
    if said.readline() != b"ready\n":
        raise NodeError(f"{process.args!r} ended with code {process.wait()}")


def _closed(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe and wait until the process has done what it does then."""
    process.communicate()


_CONTAINERD: Final = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{folder}/certs.d"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/network"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
"""
