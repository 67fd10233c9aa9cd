"""Kinds that wait because a file describes their operator: what is read from it, and what is wrong with one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.api.webhooks.suspending import answer_about_job
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.operators.descriptions import DescriptionError
from backoff_ctrl.k8s.workloads.admitting.asking import counts_of, pods_made
from backoff_ctrl.k8s.workloads.admitting.described import described_kinds
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, KINDS, Left, left_alone, subject_of, suspension
from backoff_ctrl.k8s.workloads.admitting.life import Seen, seen_of
from tests.admitting.objects import merged
from tests.admitting.trains import DESCRIPTION, train, written


def test_a_description_says_what_waits_what_it_makes_and_when_it_ends(tmp_path: Path) -> None:
    *built_in, kind = described_kinds([written(tmp_path)])
    assert (tuple(built_in), kind.resource, kind.path) == (KINDS, "trains.example.com", "/apis/example.com/v1")
    body = train("t", 2, 0, 3)
    made = pods_made(kind, body)
    assert counts_of(kind, body, made) == (2, 3)
    assert [part.template for part in made] == ["spec.wagons[0].template", "spec.wagons[2].template"]
    assert suspension(kind)["spec"] == {"halted": True}
    assert [seen_of(subject_of(kind, merged(body, each)), None) for each in ({}, {"spec": {"halted": False}})] == [
        Seen.SUSPENDED,
        Seen.RUNS,
    ]
    assert seen_of(subject_of(kind, merged(body, {"status": {"phase": "Arrived"}})), None) is Seen.ENDED
    assert seen_of(subject_of(kind, merged(body, {"status": {"phase": "Rolls"}})), None) is Seen.SUSPENDED


def test_what_another_controller_is_in_charge_of_and_what_such_an_object_makes_is_left_alone(tmp_path: Path) -> None:
    kinds = described_kinds([written(tmp_path)])
    elsewhere = train("t", 1, managedBy="example.com/other")
    assert left_alone(subject_of(kinds[-1], elsewhere), asked=True, kinds=kinds) is Left.ELSEWHERE
    ours = train("t", 1, managedBy="example.com/train-operator")
    assert left_alone(subject_of(kinds[-1], ours), asked=True, kinds=kinds) is None
    above = [Owner("example.com/v2", "Train", "t", "u")]
    assert left_alone(subject_of(JOB, {}), asked=True, kinds=kinds, above=above) is Left.PART


def test_the_webhook_suspends_it_where_its_field_is(tmp_path: Path) -> None:
    kinds = described_kinds([written(tmp_path)])
    resource = {"group": "example.com", "version": "v1", "resource": "trains"}
    request = {"uid": "u", "operation": "CREATE", "resource": resource, "object": train("t", 1, halted=False)}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    outcomes = [
        answer_about_job(json.dumps(review).encode(), whole_namespace=False, kinds=some)[2] for some in (kinds, KINDS)
    ]
    assert outcomes == ["suspended", "unreadable"]


def test_an_object_that_lacks_what_the_description_names_is_an_error_with_its_path(tmp_path: Path) -> None:
    kind = described_kinds([written(tmp_path)])[-1]
    body = train("t", 1)
    body["spec"]["wagons"][0] = {"count": -1, "template": {"spec": {"containers": []}}}
    with pytest.raises(FieldError, match=re.escape("spec.wagons[0].template: its number of replicas, -1, is not")):
        pods_made(kind, body)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("suspended: $.spec.halted\n", "", "suspended: this key is missing, and needed"),
        (
            "suspended: $.spec.halted",
            "suspended: $.spec.wagons[0].halted",
            "suspended: '$.spec.wagons[0].halted' is not the path of one field: write names alone,",
        ),
        ("suspended: $.spec.halted", "suspended: spec.halted", "suspended: 'spec.halted' is not a JSONPath: it begins"),
        ("controller: example.com/train-operator", "other: x", "managed-by.controller: this key is missing"),
        (re.compile("pods-made:.*", re.DOTALL), "", "pods-made: this key is missing, and needed"),
        (
            "replicas: $.count",
            "fields: {image: container.image}",
            "pods-made: none of them is a pod template, so nobody knows what room it needs: name one without fields",
        ),
        ("Arrived: {phase: Success}", "Arrived: {phase: Done}", "states.Arrived.phase: 'Done' is not a phase"),
        ("halted\n", "halted\nsleeps: true\n", "sleeps: unknown key: choose from id, task-types, "),
        (
            "{api-version: example.com/v1, kind: Train, plural: trains}",
            "{api-version: batch/v1, kind: Job, plural: jobs}",
            "resource: jobs.batch waits without being described: leave it out",
        ),
    ],
)
def test_a_wrong_file_is_an_error_with_the_path_of_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str | re.Pattern[str], new: str, said: str
) -> None:
    changed = DESCRIPTION.replace(old, new) if isinstance(old, str) else old.sub(new, DESCRIPTION)
    assert changed != DESCRIPTION
    path = written(tmp_path, changed)
    with pytest.raises(DescriptionError, match=f"^{re.escape(f'{path}: {said}')}"):
        described_kinds([path])
    assert run(["jobs", "list", "--kinds", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_several_kinds_are_documents_of_one_file_and_none_is_there_twice(tmp_path: Path) -> None:
    two = f"{DESCRIPTION}---\n{DESCRIPTION.replace('plural: trains', 'plural: planes').replace('Train,', 'Plane,')}"
    assert [each.kind for each in described_kinds([written(tmp_path, two)])[-2:]] == ["Train", "Plane"]
    path = written(tmp_path, f"{two}---\n{DESCRIPTION}")
    with pytest.raises(
        DescriptionError, match=f"^{re.escape(str(path))}, document 3: resource: trains.example.com waits as"
    ):
        described_kinds([path])


def test_kinds_are_for_what_suspends_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inject", "--namespace=n", "--kinds", str(written(tmp_path))]) == 2
    assert "--kinds is for --for jobs" in capsys.readouterr().err
