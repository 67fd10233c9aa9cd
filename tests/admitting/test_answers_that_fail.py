"""An API server that is away for a moment decides about no object: what it did not say is asked again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.creates.creation import Owner, owner_named
from backoff_ctrl.k8s.kube.answers.answer import SERVER_LIMIT
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.objects import Objects
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.workloads.admitting import surroundings as asked_by
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, KINDS, PRIORITY, Subject, subject_of
from backoff_ctrl.k8s.workloads.admitting.priorities import MAX_PRIORITY
from backoff_ctrl.k8s.workloads.admitting.surroundings import Surroundings
from tests.cluster.admitting.jobs_at_work import job
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Seen, scripted_server

OWNER = {"apiVersion": "batch/v1", "kind": "Flow", "name": "f", "uid": "u1", "controller": True}
JOB_SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u2", "controller": True}


@asynccontextmanager
async def surroundings(answer: Callable[[], tuple[int, Any]]) -> AsyncIterator[Surroundings]:
    with scripted_server(lambda _: answer()) as script:
        async with ClusterSession(find_place(script.url, None, None, None).configuration) as session:
            yield Surroundings(Objects(session), ClusterSource(session), KINDS)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_who_stands_above_is_asked_until_it_is_said(status: int) -> None:
    """Else a JobSet's Job would wait by itself, beside its JobSet."""
    there = {"apiVersion": "v1", "kind": "Flow", "metadata": {"name": "f", "uid": "u1", "ownerReferences": [JOB_SET]}}
    answers: list[tuple[int, Any]] = [(status, {}), (status, {}), (200, there)]
    async with surroundings(lambda: answers.pop(0)) as around:
        chain = await around.above(*owned())
    assert [owner.kind for owner in chain] == ["Flow", "JobSet"]
    assert not answers


@pytest.mark.parametrize("status", [403, 404])
async def test_what_may_not_be_read_ends_the_chain_and_is_remembered(status: int) -> None:
    answers: list[tuple[int, Any]] = [(status, {})]
    async with surroundings(lambda: answers.pop(0)) as around:
        for _ in range(2):
            chain = await around.above(*owned())
            assert [owner.kind for owner in chain] == ["Flow"]


async def test_an_owner_of_the_same_name_but_another_uid_proves_nothing() -> None:
    """Who stands above that one, which may be another's, does not stand above what names it."""
    there = {"metadata": {"name": "f", "uid": "another", "ownerReferences": [JOB_SET]}}
    async with surroundings(lambda: (200, there)) as around:
        chain = await around.above(*owned())
    assert [owner.kind for owner in chain] == ["Flow"]


TOO_HIGH = (
    f"{PRIORITY} is 9 but counts as 7: more has to be allowed by the annotation {MAX_PRIORITY} of a ResourceQuota of "
    "its namespace"
)


async def test_whether_a_priority_is_allowed_is_asked_until_it_is_said() -> None:
    """Else a Job would be let in ungated, or lose its place, because a read failed."""
    quotas = {"items": [{"metadata": {"annotations": {MAX_PRIORITY: "7"}}}, {"metadata": {}}]}
    answers: list[tuple[int, Any]] = [(503, {}), (500, {}), (200, quotas)]
    async with surroundings(lambda: answers.pop(0)) as around:
        assert await around.priority(asked_for(), ()) == (7, TOO_HIGH)
    assert not answers


def asked_for() -> Subject:
    found = job("first", annotations={PRIORITY: "9"})
    return subject_of(JOB, {**found, "metadata": {**found["metadata"], "namespace": "team"}})


def owned(namespace: str = "team", **owner: Any) -> tuple[str, Owner | None]:
    return namespace, owner_named({**OWNER, **owner})


@pytest.mark.parametrize("wrong", [{"name": "../../../../healthz"}, {"name": ".."}, {"kind": "A/B"}, {"name": "a%2fb"}])
async def test_an_owner_that_no_object_can_be_is_not_asked_for(wrong: dict[str, str]) -> None:
    """Who may create a Job writes anything there; a path out of it would be asked for again and again."""
    async with surroundings(lambda: (200, b"ok")) as around, asyncio.timeout(PATIENCE):
        assert len(await around.above(*owned(**wrong))) == 1


async def test_questions_end_and_leave_places_for_those_about_other_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is never answered counts as unknown, and is not remembered."""
    monkeypatch.setattr(asked_by, "LONGEST_PAUSE", 0.01)
    answering = threading.Event()

    def answer(asked: Seen) -> tuple[int, Any]:
        if "/hangs/" in asked.path and not answering.wait(PATIENCE):
            return 500, {}
        return (404, {}) if "/calm/" in asked.path or answering.is_set() else (500, {})

    with scripted_server(answer) as script:
        async with ClusterSession(find_place(script.url, None, None, None).configuration) as session:
            around = Surroundings(Objects(session), ClusterSource(session), KINDS)
            hung = [asyncio.create_task(around.above(*owned("hangs", name=f"f{each}"))) for each in range(20)]
            async with asyncio.timeout(PATIENCE):
                assert len(await around.above(*owned("calm"))) == 1
                assert around.known_above(*owned("calm")) is not None
                assert len(await around.above(*owned("never"))) == 1
                assert around.known_above(*owned("never")) is None
                assert await around.priority(asked_for(), ()) == (0, TOO_HIGH.replace("7", "0"))
                assert not any(task.done() for task in hung)
                answering.set()
                await asyncio.gather(*hung)


async def test_a_question_that_is_not_answered_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its limit, which is shorter than that of a request, and not by an answer: none comes before the end."""
    monkeypatch.setattr(asked_by, "ANSWER_WITHIN", 0.05)
    monkeypatch.setattr(asked_by, "LONGEST_PAUSE", 0.01)
    over = threading.Event()
    held: list[bool] = []

    def answer(_: Seen) -> tuple[int, Any]:
        held.append(over.wait(SERVER_LIMIT / 2))
        return 404, {}

    with scripted_server(answer) as script:
        async with ClusterSession(find_place(script.url, None, None, None).configuration) as session:
            around = Surroundings(Objects(session), ClusterSource(session), KINDS)
            assert len(await around.above(*owned("hangs"))) == 1
            assert (around.known_above(*owned("hangs")), held) == (None, [])
            over.set()


async def test_what_one_names_wrongly_is_no_answer_for_others() -> None:
    """A reference to another object under the uid of an owner, or more references than are remembered."""
    there = {"apiVersion": "v1", "kind": "Flow", "metadata": {"name": "f", "uid": "u1", "ownerReferences": [JOB_SET]}}

    def answer(asked: Seen) -> tuple[int, Any]:
        return (200, there) if asked.path.endswith("/f") else (404, {})

    with scripted_server(answer) as script:
        async with ClusterSession(find_place(script.url, None, None, None).configuration) as session:
            around = Surroundings(Objects(session), ClusterSource(session), KINDS)
            await around.above(*owned(name="other"))
            assert [owner.kind for owner in await around.above(*owned())] == ["Flow", "JobSet"]
