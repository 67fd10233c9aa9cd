"""A Task that can't be judged is refused: nobody gets the operator's rights because something is broken."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from backoff_ctrl.api.webhooks.task_review import REMEDY, TaskReviews
from backoff_ctrl.k8s.kube.cluster.asking import Reach
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.subjects import Subjects
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.executing import check
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.registry import Entry
from backoff_ctrl.k8s.tasks.store import Wish
from tests.kit.scripted_server import Seen, scripted_server

JSON = dict[str, Any]
ENTRIES = registry()
ALLOWED: tuple[int, Any] = (201, {"status": {"allowed": True}})
DENIED: tuple[int, Any] = (201, {"status": {"allowed": False}})


def tasks_alone(seen: Seen) -> tuple[int, Any]:
    """Allow all about Tasks, and nothing else."""
    return ALLOWED if seen.body["spec"]["resourceAttributes"]["resource"] == "tasks" else DENIED


TASKS_ALONE: Any = tasks_alone
USER = {"username": "ann", "uid": "7", "groups": ["team"], "extra": {"scopes": ["a", "b"]}}
SPEC: JSON = {"type": "container", "container": {"image": "busybox"}}


def review(spec: JSON, old: JSON | None = None, marks: JSON | None = None, **more: Any) -> bytes:
    """A review; ``marks``: new labels and the like."""

    def task(of: JSON, **metadata: Any) -> JSON:
        named = {"name": "t", "namespace": "team", **metadata}
        return {"apiVersion": "backoff-ctrl.dev/v1alpha1", "kind": "Task", "metadata": named, "spec": of}

    request = {
        "uid": "u", "namespace": "team", "operation": "CREATE" if old is None else "UPDATE", "userInfo": USER,
        "resource": {"group": "backoff-ctrl.dev", "version": "v1alpha1", "resource": "tasks"},
        "object": task(spec, **(marks or {})), "oldObject": None if old is None else task(old), **more,
    }  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def broken(wish: Wish) -> Entry:
    raise ZeroDivisionError(wish.name)


@contextmanager
def judging(answer: Any, *, bug: bool = False) -> Iterator[tuple[TaskReviews, list[Seen]]]:
    """Yield reviews that ask a server which answers so, and the bodies of its questions."""
    with scripted_server(answer if callable(answer) else lambda _: answer) as script:
        reach = Reach(find_place(script.url, None, None, None))
        config = K8sPluginConfig()
        judge = broken if bug else (lambda wish: check(wish, ENTRIES, config))
        yield TaskReviews(judge, ENTRIES.resolve, Subjects(reach, REMEDY)), script.seen
        reach.close()


@pytest.mark.parametrize(
    ("answer", "bug", "outcome", "code", "told"),
    [
        (ALLOWED, False, "allowed", 0, ""),
        (DENIED, False, "forbidden", 403, "ann may not create tasks.backoff-ctrl.dev in namespace team"),
        (TASKS_ALONE, False, "forbidden", 403, "ann may not create pods in namespace team"),
        ((403, {"kind": "Status"}), False, "unanswered", 503, "system:auth-delegator"),
        ((201, {"status": None}), False, "unanswered", 503, "the API server does not say who may do this"),
        (ALLOWED, True, "failed", 500, "the log of its webhooks says why"),
    ],
)
def test_only_a_clear_yes_lets_a_task_pass(
    answer: tuple[int, Any], bug: bool, outcome: str, code: int, told: str
) -> None:
    """Whatever the API server says instead, and whatever fails in our own code."""
    with judging(answer, bug=bug) as (reviews, _):
        document, namespace, found = reviews.answer(review(SPEC))
    response = document["response"]
    assert (namespace, found, response["allowed"]) == ("team", outcome, not code)
    assert (response.get("status", {}).get("code", 0), told in json.dumps(response)) == (code, True)


def test_answers_about_large_accounts_take_little_memory() -> None:
    """Strangers may name any account: 4,096 answers about accounts of 8 MB were cached, each with its account."""
    groups = [f"group-{number}" for number in range(20_000)]
    with judging(ALLOWED) as (reviews, seen):
        tracemalloc.start()
        try:
            for number in range(5):
                body = review(SPEC, userInfo={**USER, "uid": str(number), "groups": groups})
                for _ in range(2):
                    assert reviews.answer(body)[2] == "allowed"
            seen_so_far = len(seen)
            seen.clear()
            body = b""
            left, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert seen_so_far == 10, "each was asked about once a question: may it write Tasks there, and pods"
    assert left < 1 << 20


def said(document: JSON) -> str:
    return str(document["response"]["status"]["message"])


@pytest.mark.parametrize(
    ("needs", "told"),
    [
        (["a", {"task": "b", "ended": "Maybe"}], 'spec.needs[1].ended: "Maybe" can\'t be used'),
        (["a", {"task": "b", "end": "Any"}], "spec.needs[1].end: unknown; did you mean ended?"),
        ([{"ended": "Any"}, "a"], "spec.needs[0].task: it is required"),
        (["a", 7], "spec.needs[1]: "),
        (["a", "B C"], "spec.needs[1].task: "),
        (["t"], "spec.needs: t would wait for itself"),
        (["a", {"task": "a", "ended": "Any"}], "spec.needs: a is named twice"),
    ],
)
def test_a_mistake_in_needs_is_refused_with_its_path(needs: list[Any], told: str) -> None:
    """The definition of Tasks can't: an item is a name or an object."""
    with judging(ALLOWED) as (reviews, _):
        document, _, outcome = reviews.answer(review({**SPEC, "needs": needs}))
    assert (outcome, said(document)[: len(told)]) == ("invalid", told)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"container": {"image": "x", "comand": ["a"]}}, "spec.container.comand: unknown; did you mean command?"),
        ({"resources": {"request": {"memory": "8Gi"}}}, "spec.resources.request: unknown; did you mean requests?"),
        ({"env": [{"nmae": "A"}]}, "spec.env[0].nmae: unknown; did you mean name?"),
    ],
)
def test_a_misspelt_field_is_refused_with_its_path(spec: JSON, told: str) -> None:
    """In the definition of Tasks these parts are any object."""
    with judging(ALLOWED) as (reviews, _):
        document, _, outcome = reviews.answer(review({**SPEC, **spec}))
    assert (outcome, said(document)) == ("invalid", told)


@pytest.mark.parametrize("marks", [{"labels": {"app": "web"}}, {"annotations": {"sidecar.example.com/inject": "no"}}])
def test_what_its_objects_inherit_needs_the_right_to_create_them(marks: JSON) -> None:
    """Who may only change Tasks would write it on others' pods; what tools note of the Task itself stays there."""
    with judging(TASKS_ALONE) as (reviews, _):
        document, _, outcome = reviews.answer(review(SPEC, SPEC, marks))
        noted = {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}
        assert reviews.answer(review(SPEC, SPEC, noted))[2] == "allowed"
    assert (outcome, "ann may not create pods in namespace team" in said(document)) == ("forbidden", True)


@pytest.mark.parametrize(
    ("type_", "before", "signal", "told"),
    [
        ("signal", None, {"by": "ada"}, ""),
        ("signal", "go", "stop", "has had its signal"),
        ("signal", "go", None, "has had its signal"),
        ("signal", None, "x" * 20_000, "bytes as JSON, more than"),
        ("sleep", None, True, "only tasks of the type signal take signals"),
    ],
)
def test_a_signal_is_given_once_and_to_what_takes_one(type_: str, before: Any, signal: Any, told: str) -> None:
    """As over HTTP and by the command: with another value the task would have had two."""
    old: JSON = {"type": type_, **({} if before is None else {"signal": before})}
    with judging(ALLOWED) as (reviews, _):
        document, _, outcome = reviews.answer(review({"type": type_, "signal": signal}, old))
    assert (outcome, told in json.dumps(document)) == ("invalid" if told else "allowed", True)
    assert not told or said(document).startswith("spec.signal: ")


@pytest.mark.parametrize(("asked", "note"), [("signal", "signalled"), ("abort", "aborted")])
def test_who_asked_is_written_with_what_they_asked_and_not_changed_later(asked: str, note: str) -> None:
    """Else the word of whoever may change a task later would stand for that of who signalled or aborted it."""
    old: JSON = {"type": "signal", asked: True, note: {"by": "ada"}}
    with judging(ALLOWED) as (reviews, _):
        document, _, outcome = reviews.answer(review({**old, note: {"by": "bob"}}, old))
        both = reviews.answer(review(old, {"type": "signal"}))
    assert (outcome, f"spec.{note} can't be changed" in said(document)) == ("changed", True)
    assert both[2] == "allowed"


@pytest.mark.parametrize(
    ("by", "outcome"), [("ann", "allowed"), ("", "allowed"), ("ada", "forbidden"), ("the program x", "forbidden")]
)
def test_a_signal_is_given_in_ones_own_name(by: str, outcome: str) -> None:
    """When the task is created, too. A server signals for its callers: it may write the status of tasks."""

    def of_a_person(seen: Seen) -> tuple[int, Any]:
        asked = seen.body["spec"]["resourceAttributes"]
        return DENIED if asked.get("subresource") == "status" else ALLOWED

    signalled: JSON = {"type": "signal", "signal": True, "signalled": {"by": by, "at": "2026-11-28T10:00:00Z"}}
    for old in (None, {"type": "signal"}):
        with judging(of_a_person) as (reviews, _):
            document, _, found = reviews.answer(review(signalled, old))
        assert (found, "leave spec.signalled out" in json.dumps(document)) == (outcome, outcome != "allowed")
        with judging(ALLOWED) as (reviews, _):
            assert reviews.answer(review(signalled, old))[2] == "allowed"


def test_a_change_of_what_is_no_wish_asks_nobody() -> None:
    """Finalizers and the status change while the API server's answers are not needed."""
    with judging((500, {})) as (reviews, questions):
        for body in (
            review(SPEC, SPEC, {"finalizers": ["example.com/held"]}),
            review({"type": "of-nobody"}, {"type": "of-nobody"}),
            review(SPEC, subResource="status"),
            review(SPEC, resource={"group": "", "resource": "pods"}),
            review(SPEC, SPEC, operation="DELETE"),
        ):
            assert reviews.answer(body)[2] == "allowed"
        assert not questions
        assert reviews.answer(review({**SPEC, "env": []}, SPEC))[2] == "changed"
    with judging(ALLOWED) as (reviews, _):
        document, _, outcome = reviews.answer(review({"type": "of-nobody", "abort": True}, {"type": "of-nobody"}))
    assert (outcome, "can only be deleted" in document["response"]["status"]["message"]) == ("invalid", True)


def test_who_creates_many_tasks_is_asked_about_once() -> None:
    """The whole account is named in the question, with what its authenticator says of it."""
    with judging(ALLOWED) as (reviews, questions):
        for _ in range(20):
            assert reviews.answer(review(SPEC))[2] == "allowed"
    specs = [each.body["spec"] for each in questions]
    assert [each.pop("resourceAttributes")["resource"] for each in specs] == ["tasks", "pods"]
    assert specs == [{"user": "ann", "uid": "7", "groups": ["team"], "extra": {"scopes": ["a", "b"]}}] * 2


@pytest.mark.parametrize("old", [None, {**SPEC, "abort": False}])
def test_nothing_is_said_of_an_account_that_may_not_write_tasks(old: JSON | None) -> None:
    """No API server asks about one: another client that reaches the port would learn what the account may do."""
    about: list[str] = []

    def nothing_of_tasks(seen: Seen) -> tuple[int, Any]:
        about.append(seen.body["spec"]["resourceAttributes"]["resource"])
        return DENIED if about[-1] == "tasks" else ALLOWED

    with judging(nothing_of_tasks) as (reviews, _):
        secret = {"type": "sleep", "custom": {"seconds": 1}, "secrets": {"T": {"secret": "token", "key": "t"}}}
        specs = [{**SPEC, "abort": True}] if old else [SPEC, secret, {"type": "of-nobody"}, {"type": 7}]
        found = {(reviews.answer(review(each, old))[2], said(reviews.answer(review(each, old))[0])) for each in specs}
    verb = "update" if old else "create"
    assert found == {("forbidden", f"ann may not {verb} tasks.backoff-ctrl.dev in namespace team")}
    assert {*about} == {"tasks"}
