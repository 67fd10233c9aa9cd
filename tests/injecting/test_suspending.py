"""Which new objects are suspended, and how: every kind of the table, and whatever else the API server may send."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.api.webhooks.review import ReviewError
from backoff_ctrl.api.webhooks.suspending import answer_about_job, operations, runs_ungated
from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID, GANG_LABEL
from backoff_ctrl.k8s.workloads.admitting.kinds import (
    ADMITTED,
    JOB,
    KINDS,
    RELEASED_BY,
    SUSPENDED_BY,
    WAIT,
    WAITS_FOR,
    AdmissibleKind,
)

JSON = dict[str, Any]
ADMITTED_SO: dict[str, Any] = {"uid": "u", "annotations": {ADMITTED: json.dumps({"uid": "u"})}}
LABELLED: JSON = {"metadata": {"name": "j", "labels": {WAIT: "true"}}, "spec": {"shutdownAfterJobFinishes": True}}


def review(kind: AdmissibleKind, body: object, operation: str = "CREATE") -> bytes:
    resource = {"group": kind.group, "version": kind.api_version.rpartition("/")[2], "resource": kind.plural}
    request = {"uid": "u", "namespace": "team", "operation": operation, "resource": resource, "object": body}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def asked(kind: AdmissibleKind, body: object, *, whole: bool = False, operation: str = "CREATE") -> tuple[JSON, str]:
    """Return the response and the outcome."""
    document, namespace, outcome = answer_about_job(review(kind, body, operation), whole_namespace=whole)
    assert (namespace, document["response"]["uid"], document["response"]["allowed"]) == ("team", "u", True)
    return document["response"], outcome


def patched(body: JSON, response: JSON) -> JSON:
    """Apply a patch as RFC 6902 says: the object that a field is added to, or taken from, has to be there."""
    changed = copy.deepcopy(body)
    for each in json.loads(base64.b64decode(response["patch"])):
        *path, last = [step.replace("~1", "/").replace("~0", "~") for step in each["path"].split("/")[1:]]
        place = changed
        for step in path:
            place = place[step]
        if each["op"] == "remove":
            del place[last]
        else:
            assert each["op"] == "add"
            place[last] = each["value"]
    return changed


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}.{kind.api_version}")
@pytest.mark.parametrize("whole", [True, False])
def test_each_kind_is_suspended_where_its_field_is(kind: AdmissibleKind, whole: bool) -> None:
    """By its own label, or its namespace's, which the path says; the rest of it stays."""
    body: JSON = copy.deepcopy(LABELLED)
    if whole:
        del body["metadata"]["labels"]
    response, outcome = asked(kind, body, whole=whole)
    changed = patched(body, response)
    assert (outcome, kind.is_suspended(changed)) == ("suspended", True)
    assert changed["metadata"]["annotations"] == {SUSPENDED_BY: "webhook"}
    assert asked(kind, changed, whole=whole)[1] == "held"  # what is suspended already stays as it is


@pytest.mark.parametrize("suspend", [True, False])
def test_what_was_written_on_another_object_is_taken_off_its_copy(suspend: bool) -> None:
    """As exported from a living one, or restored from a backup: nothing else of it is taken off."""
    kept = {CREATE_ID: "mine", "backoff-ctrl.dev/stay-suspended": "true", "example.com/a": "b"}
    copied = dict.fromkeys((ADMITTED, SUSPENDED_BY, RELEASED_BY, WAITS_FOR), "of another")
    body = {"metadata": {"labels": {WAIT: "true"}, "annotations": {**kept, **copied}}, "spec": {"suspend": suspend}}
    response, outcome = asked(JOB, body)
    assert outcome == ("held" if suspend else "suspended")
    by_us = {} if suspend else {SUSPENDED_BY: "webhook"}
    assert patched(body, response)["metadata"]["annotations"] == {**kept, **by_us}


@pytest.mark.parametrize(
    ("user", "accounts", "outcome"),
    [
        ("operator", ["operator"], "reserved"),
        ("tenant", ["operator"], "suspended"),
        ("tenant", [], "suspended"),
    ],
)
@pytest.mark.parametrize("mark", [{"annotations": {CREATE_ID: "x"}}, {"labels": {WAIT: "true", GANG_LABEL: "x"}}])
def test_the_marks_of_a_gate_count_only_where_our_own_account_writes_them(
    mark: JSON, user: str, accounts: list[str], outcome: str
) -> None:
    """Its user may write them as well, and would go before all who wait."""
    document = json.loads(review(JOB, {"metadata": {"labels": {WAIT: "true"}, **mark}, "spec": {}}))
    document["request"]["userInfo"] = {"username": user}
    found = answer_about_job(json.dumps(document).encode(), whole_namespace=False, accounts=accounts)
    assert found[2] == outcome


def test_what_may_not_be_suspended_is_created_with_a_warning() -> None:
    """Its author learns at once why it does not wait."""
    (ray,) = (each for each in KINDS if each.kind == "RayJob")
    response, outcome = asked(ray, {**LABELLED, "spec": {"shutdownAfterJobFinishes": False}})
    assert (outcome, "patch" in response) == ("unfit", False)
    assert "set spec.shutdownAfterJobFinishes" in response["warnings"][0]


@pytest.mark.parametrize(
    ("body", "operation", "outcome"),
    [
        ({**LABELLED, "metadata": {}}, "CREATE", "unasked"),
        (LABELLED, "UPDATE", "unreadable"),
        ("text", "CREATE", "unreadable"),
        (None, "CREATE", "unreadable"),
    ],
)
def test_what_it_is_not_asked_for_stays_as_it_is(body: object, operation: str, outcome: str) -> None:
    """Nobody else is kept from creating anything."""
    response, said = asked(JOB, body, operation=operation)
    assert (said, "patch" in response) == (outcome, False)


def test_what_is_no_review_is_an_error() -> None:
    """The API server then does as the failure policy says."""
    with pytest.raises(ReviewError, match="not JSON"):
        answer_about_job(b"{", whole_namespace=True)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["metadata", "labels", "spec", "suspend", "annotations", "name"]), inner)
    ),
    max_leaves=8,
)


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), values), st.booleans())
def test_no_object_is_refused_whatever_it_is(kind: AdmissibleKind, body: JSON, whole: bool) -> None:
    """Nobody has validated it yet; a patch can be applied, and suspends it."""
    response, outcome = asked(kind, body, whole=whole)
    assert outcome != "failed"
    if "patch" in response:
        assert kind.is_suspended(patched(body, response))


@given(values, values)
def test_operations_do_what_the_merge_patch_does(body: object, merge: object) -> None:
    """Against a naive twin, for objects without null, which a merge patch takes for deletion."""
    if not isinstance(body, dict) or not isinstance(merge, dict) or "null" in json.dumps(merge):
        return
    done = [*operations(body, merge)]
    response = {"patch": base64.b64encode(json.dumps(done).encode())}
    assert patched(body, response) == merged(body, merge)


def merged(body: JSON, merge: JSON) -> JSON:
    found = dict(body)
    for name, value in merge.items():
        there = found.get(name)
        found[name] = merged(there, value) if isinstance(value, dict) and isinstance(there, dict) else value
    return found


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        ({}, True),
        ({"spec": {"suspend": True}}, False),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, False),
        *(({"metadata": {"annotations": {name: "x"}}}, False) for name in (RELEASED_BY, SUSPENDED_BY)),
        ({"metadata": {**ADMITTED_SO, "generation": 2}}, False),
        ({"metadata": {**ADMITTED_SO, "generation": 1}}, True),  # noted while it ran
        ({"metadata": {**ADMITTED_SO, "uid": "of a copy", "generation": 2}}, True),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, False),
    ],
)
def test_what_runs_although_nobody_let_it_in_is_counted(change: JSON, counted: bool) -> None:
    """Not what waits, was let in, has ended, or is not ours."""
    assert runs_ungated(JOB, merged(LABELLED, change), asked=True) is counted
    assert not runs_ungated(JOB, merged(LABELLED, change), asked=False)
