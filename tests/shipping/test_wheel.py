"""The wheel, built and installed outside the checkout, works next to packages with the names of our rooms."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from backoff_ctrl.__main__ import main
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError
from backoff_ctrl.k8s.tasks.plugins.registry import installed_entries
from tests.kit.pages import blocks, text_of, typed
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.go

ROOT = Path(__file__).parents[2]
ANSWER = b'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist of this checkout and the wheel from the sdist, without network access."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """Return the path of the wheel."""
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a new folder, with pip."""
    target = tmp_path_factory.mktemp("installed") / "site"
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(wheel)], check=True)
    return target


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project with its own folders k8s and api, as many projects have."""
    for name in ("k8s", "api"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWNER = 'the user\\'s {name}'\n")
    return tmp_path


def run(site: Path, command: list[str], cwd: Path, *more: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python outside the checkout, with the packages in ``site`` and the other folders."""
    path = os.pathsep.join(str(folder) for folder in (site, *more))
    environment = {**os.environ, **variables, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.long
def test_the_installed_wheel_classifies_outside_the_checkout(site: Path, tmp_path: Path) -> None:
    """The wheel contains the console script and its lazily imported commands."""
    script = str(site / "bin" / "backoff-ctrl")
    command = [sys.executable, script, "classify", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, input=ANSWER, env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert (done.stderr, done.returncode) == (b"", 0)
    assert json.loads(done.stdout)["lane"] == "quota"
    assert run(site, [script, "--version"], tmp_path).stdout.startswith("backoff-ctrl 0.")


@pytest.mark.long
def test_the_installed_wheel_knows_the_operators_that_ship(site: Path, tmp_path: Path) -> None:
    """Their descriptions are data of the package."""
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "status": {"jobDeploymentStatus": "Suspended"}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = run(site, [str(site / "bin" / "backoff-ctrl"), "phase", "-f", "job.json", "--json"], tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    told = json.loads(done.stdout)
    assert (told["plugin"], told["phase"]) == ("ray", "Queued")


@pytest.mark.long
def test_the_wheel_holds_one_package_and_nothing_else(wheel: Path) -> None:
    """It has every module of the rooms, the type marker and the licence; no tests, benchmarks or generators."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"backoff_ctrl"}
    found = [path for path in (ROOT / "backoff_ctrl").rglob("*.py") if path.is_relative_to(ROOT)]
    modules = {path.relative_to(ROOT).as_posix() for path in found}
    for room in ("k8s", "api"):
        modules |= {f"backoff_ctrl/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / room).rglob("*.py")}
    assert modules == {name for name in names if name.endswith(".py")}
    assert "backoff_ctrl/py.typed" in names
    assert any(name.endswith("LICENSE") for name in names)


@pytest.mark.long
def test_the_sdist_holds_no_links(built: Path) -> None:
    """The rooms are plain folders, as in the checkout; the wheel above was built from it."""
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if not member.isfile()] == []
    assert {"k8s", "api", "backoff_ctrl"} <= {member.name.split("/")[1] for member in members}


@pytest.mark.long
def test_the_readmes_example_runs_beside_folders_and_packages_of_our_rooms_names(
    site: Path, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The project has its own k8s and api, and so has another distribution: every import finds the right package."""
    other = tmp_path_factory.mktemp("other")
    for name in ("k8s", "api"):  # as distributions of these names on the public index do
        (other / name).mkdir()
        (other / name / "__init__.py").write_text("OWNER = 'another distribution'\n")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example = next(code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "GatedApiClient" in code)
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    }
    program = textwrap.dedent("""\
        import api, k8s
        pod = {pod}
        {example}
        print(k8s.OWNER, "|", api.OWNER, "|", len(core.list_namespaced_pod("team-a").items))
        import sys
        print("kubernetes.aio" in sys.modules)
        """).format(pod=pod, example=example)
    (project / "program.py").write_text(program)
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team-a")
        sandbox.create_quota("team-a", "pods", {"requests.cpu": "2"})
        config = project / "kubeconfig"
        config.write_text(
            yaml.safe_dump(
                {
                    "current-context": "here",
                    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
                    "clusters": [{"name": "here", "cluster": {"server": sandbox.url}}],
                    "users": [{"name": "me", "user": {"token": "t"}}],
                }
            )
        )
        done = run(site, ["program.py"], project, other, KUBECONFIG=str(config))
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["the user's k8s | the user's api | 1", "False"]


@pytest.mark.long
def test_the_public_names_are_loaded_when_they_are_used(site: Path, project: Path) -> None:
    """The package alone imports no client, the threaded gate no asyncio client; unknown names are AttributeErrors."""
    program = textwrap.dedent("""\
        import sys
        import backoff_ctrl
        assert set(backoff_ctrl.__all__) <= set(dir(backoff_ctrl))
        print(any(name.startswith("backoff_ctrl.") for name in sys.modules))
        from backoff_ctrl import Controller, Gate
        print("kubernetes" in sys.modules, "aiohttp" in sys.modules)
        from backoff_ctrl import GatedApiClient, waiting
        print("kubernetes" in sys.modules, "aiohttp" in sys.modules)
        from backoff_ctrl import AsyncGate, AsyncGatedApiClient
        print("aiohttp" in sys.modules)
        try:
            backoff_ctrl.unknown
        except AttributeError as error:
            print(error)
        """)
    done = run(site, ["-c", program], project)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "False",
        "False False",
        "True False",
        "False",
        "module 'backoff_ctrl' has no attribute 'unknown'",
    ]


def test_ctrl_c_while_the_command_line_loads_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The import takes a tenth of a second; Ctrl-C during it causes no traceback."""

    class Interrupting:
        def find_spec(self, name: str, *rest: object) -> None:
            if name == "backoff_ctrl.api.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "backoff_ctrl.api.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
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


@pytest.mark.long
def test_a_plugin_of_another_package_is_found_in_a_fresh_environment_and_runs_a_task(
    wheel: Path, tmp_path: Path
) -> None:
    """As docs/how-to/write-a-plugin.md says, word for word: built, installed beside the wheel, asked, run."""
    page = "docs/how-to/write-a-plugin.md"
    files = re.findall(r"as `(\w+\.yaml)`:\n\n```yaml\n(.*?)```", text_of(page), re.DOTALL)
    assert [name for name, _ in files] == ["web.yaml", "task.yaml"]
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    build, install, phase, run_task = (each.command.split() for each in typed(page))
    code = (ROOT / build[-1] / "backoff_ctrl_rollout" / "__init__.py").read_text(encoding="utf-8")
    for block in blocks(page, "python"):
        assert block.text in code or textwrap.indent(block.text, "    ") in code
    offline = ["--no-index", "--no-deps", "--quiet", "--disable-pip-version-check"]
    isolated = {"PIP_NO_BUILD_ISOLATION": "0"}  # means no isolation: the build needs no network, its backend is here
    libraries = {**os.environ, **isolated, "PYTHONPATH": sysconfig.get_path("purelib"), "XDG_STATE_HOME": str(tmp_path)}

    def do(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=libraries, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = do(sys.executable, "-m", *build[:-1], "--quiet", "--disable-pip-version-check", str(ROOT / build[-1]))
    assert done.returncode == 0, done.stderr
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "venv"], cwd=tmp_path, check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    for package in (str(wheel), install[-1]):
        done = do(sys.executable, "-m", "pip", "--python", python, "install", *offline, package)
        assert done.returncode == 0, done.stderr
    program = str(tmp_path / "venv" / "bin" / phase[0])

    done = do(program, *phase[1:], "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["plugin"], said["phase"], said["reason"]) == ("rollout", "Running", "1 of 3 replicas serve")

    with running_sandbox() as sandbox:
        sandbox.create_namespace("team-a")
        sandbox.create_quota("team-a", "compute", {"requests.cpu": "4", "requests.memory": "8Gi"})
        running = subprocess.Popen(
            [program, *run_task[1:], "--apiserver", sandbox.url, "--json"],
            env=libraries, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        api = client.AppsV1Api(client.ApiClient(client.Configuration(host=sandbox.url)))
        found: list[Any] = []
        while not found and running.poll() is None:
            found = api.list_namespaced_deployment("team-a").items
        for deployment in found:
            (container,) = deployment.spec.template.spec.containers
            assert container.resources.requests == {"cpu": "1", "memory": "1Gi"}
            status = {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}
            api.patch_namespaced_deployment_status(deployment.metadata.name, "team-a", {"status": status})
        out, err = running.communicate(timeout=PATIENCE)
        assert running.returncode == 0, out + err
        assert '"Success' in out or '"Succeeded' in out, out


def test_a_plugin_that_can_not_be_loaded_is_a_sentence_that_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a traceback: whoever runs the program can't mend the plugin, but can uninstall it."""
    about = tmp_path / "broken_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (tmp_path / "gives_a_text.py").write_text("def entries():\n    return ['pod']\n")
    monkeypatch.syspath_prepend(tmp_path)
    for value, said in (
        ("no_such_module:entry", r"of package broken-plugin \(no_such_module:entry\) can't be loaded: ModuleNotFound"),
        ("gives_a_text:entries", "gives str instead of a PluginEntry"),
    ):
        (about / "entry_points.txt").write_text(f"[backoff_ctrl.plugins]\nbroken = {value}\n")
        with pytest.raises(PluginError, match=said):
            installed_entries()
