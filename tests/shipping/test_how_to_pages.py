"""The pages for creators: their configuration can be read, and names what there is."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from backoff_ctrl.api.webhooks.counting import LABEL
from backoff_ctrl.api.webhooks.mutation import OPTIONS, inject, with_account
from backoff_ctrl.api.webhooks.sidecar import NAME, PORT, SidecarSettings
from tests.kit.pages import ROOT, blocks, spans

PAGES = ROOT / "docs" / "how-to"
CREATORS = ("airflow", "spark", "dask", "jupyterhub", "jenkins", "go-operator", "gitlab-runner")
OURS = re.compile(r"backoff-ctrl\.dev/[a-z-]+")


def texts(page: str, kind: str) -> list[str]:
    """Return the blocks of a kind on a page for creators."""
    return [block.text for block in blocks(f"docs/how-to/{page}.md", kind)]


def test_the_first_page_leads_to_each_creator() -> None:
    """And each creator leads back."""
    first = (PAGES / "inject-the-sidecar.md").read_text()
    for page in CREATORS:
        assert f"({page}.md)" in first


@pytest.mark.parametrize("page", [*CREATORS, "inject-the-sidecar"])
def test_labels_and_annotations_are_those_that_the_webhook_knows(page: str) -> None:
    """A page that says another one would be of no use."""
    text = (PAGES / f"{page}.md").read_text()
    assert LABEL in text
    assert set(OURS.findall(text)) <= {LABEL, *OPTIONS}
    assert set(re.findall(r"https://127\.0\.0\.1:(\d+)", text)) <= {str(PORT)}


@pytest.mark.parametrize("page", [*CREATORS, "inject-the-sidecar"])
def test_each_block_can_be_read_and_its_annotations_are_texts(page: str) -> None:
    """Kubernetes takes no numbers there, and a sidecar warns of what says nothing."""
    for text in texts(page, "yaml"):
        for names, value in leaves(yaml.safe_load(text)):
            if names[-1].startswith("backoff-ctrl.dev/"):
                assert isinstance(value, str), names
                assert inject(labelled(names[-1], value), SidecarSettings()).warnings == ()
            if names[-1] == "config" and isinstance(value, str):
                assert tomllib.loads(value)["runners"][0]["executor"] == "kubernetes"
    for text in texts(page, "properties"):
        parser = configparser.ConfigParser(delimiters=("=",))
        parser.read_string(f"[spark]\n{text}")
        assert parser["spark"]["spark.kubernetes.driver.master"].endswith(f":{PORT}")


def test_the_operator_of_its_page_gets_the_sidecar() -> None:
    """Its pod template, as its Deployment makes pods of it."""
    (deployment,) = map(yaml.safe_load, texts("go-operator", "yaml"))
    what = inject(with_account(deployment["spec"]["template"]), SidecarSettings())
    assert what.pod is not None
    assert what.pod["spec"]["initContainers"][0]["name"] == NAME
    assert "--hold-total=10" in what.pod["spec"]["initContainers"][0]["args"]


def test_the_label_of_dask_s_operator_is_patched_as_its_chart_can_not_set_it() -> None:
    """The patch can be read, and leads to the label."""
    (console,) = texts("dask", "console")
    (patch,) = re.findall(r"-p '(.+)'", console)
    assert json.loads(patch) == {"spec": {"template": {"metadata": {"labels": {LABEL: "true"}}}}}
    assert "podLabels" not in (PAGES / "dask.md").read_text()


def test_what_a_sidecar_costs_is_shown_as_the_page_says(tmp_path: Path) -> None:
    """The two commands of inject-the-sidecar.md, one behind the other; 20m cpu and 96Mi beside the pod's own."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {LABEL: "true"}}}
    (tmp_path / "pod.yaml").write_text(json.dumps({**pod, "spec": {"containers": [container]}}), encoding="utf-8")
    (line,) = (each for each in spans("docs/how-to/inject-the-sidecar.md") if " | backoff-ctrl footprint" in each)
    shown = ""
    for part in line.split(" | "):
        command = [sys.executable, "-m", "backoff_ctrl", *part.split()[1:]]
        done = subprocess.run(command, cwd=tmp_path, input=shown, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        shown = done.stdout
    assert "1020m" in shown
    assert "1120Mi" in shown


def labelled(annotation: str, value: str) -> dict[str, Any]:
    """Return a pod with one annotation."""
    spec = {"containers": [{"name": "main", "image": "i"}]}
    return with_account({"metadata": {"annotations": {annotation: value}}, "spec": spec})


def leaves(found: Any, names: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Return all plain values of a document, each with the names that lead to it."""
    if isinstance(found, dict):
        return [leaf for name, value in found.items() for leaf in leaves(value, (*names, str(name)))]
    if isinstance(found, list):
        return [leaf for value in found for leaf in leaves(value, names)]
    return [(names, found)]
