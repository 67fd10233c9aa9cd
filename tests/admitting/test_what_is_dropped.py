"""Which namespaces and kinds an operator no longer covers, by what its Deployment says and what is kept."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.api.operator.narrowing import NAME_LABEL, Covered, Dropped, dropped
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, AdmissibleKind

TRAIN = AdmissibleKind("ml.example/v1", "Train", "trains")
RULE = {"apiGroups": ["batch"], "resources": ["jobs"]}
TRAINS = {"apiGroups": ["ml.example"], "resources": ["trains"]}


def covered(*namespaces: str, kinds: tuple[str, ...] = ()) -> Covered:
    return Covered(frozenset(namespaces), frozenset(kinds))


def of_all(*namespaces: str) -> dict[str, Any]:
    """A Deployment whose operator works for these namespaces; beside it a container of others."""
    unknown = ["--of-another-version", "x", "--and-another=y"]
    args = ["operator", "--lease=x", *unknown, *(f"--namespace={each}" for each in namespaces), "--no-tasks"]
    containers = [{"args": ["serve", "--namespace=other"]}, {"name": "none"}, {"args": args}]
    return {"spec": {"template": {"spec": {"containers": containers}}}}


@pytest.mark.parametrize(
    ("before", "after", "said", "goes", "stays"),
    [
        (covered(), covered(), "nothing", "", "ab"),
        (covered("a"), covered("a"), "nothing", "", "ab"),
        (covered("a"), covered("a", "b"), "nothing", "", "ab"),
        (covered("a"), covered(), "nothing", "", "ab"),
        (covered("a", "b"), covered("b"), "namespaces a", "a", "bc"),
        (covered("a", "b", "c"), covered("c"), "namespaces a, b", "ab", "cd"),
        (covered("a"), covered("b"), "namespaces a", "a", "bc"),
        (covered(), covered("b"), "all other namespaces", "ac", "b"),
    ],
)
def test_the_namespaces_that_are_let_go(before: Covered, after: Covered, said: str, goes: str, stays: str) -> None:
    """Of those that it covers; what others wait for elsewhere is theirs."""
    lost = Dropped(before, after)
    assert (str(lost), bool(lost)) == (said, said != "nothing")
    assert [each for each in goes + stays if lost.namespace(each)] == [*goes]
    assert [each for each in goes + stays if lost.job(JOB.resource, each)] == [*goes]


def test_the_kinds_that_are_let_go() -> None:
    """In the namespaces that it covers."""
    lost = Dropped(covered("a", kinds=("trains.ml.example", "boats.ml.example")), covered(kinds=("boats.ml.example",)))
    assert (str(lost), bool(lost)) == ("kinds trains.ml.example", True)
    assert lost.job("trains.ml.example", "a")
    for resource, namespace in (("trains.ml.example", "b"), ("boats.ml.example", "a"), (JOB.resource, "a")):
        assert not lost.job(resource, namespace)
    both = Dropped(covered("a", "b", kinds=("trains.ml.example",)), covered("b"))
    assert str(both) == "namespaces a and kinds trains.ml.example"


def test_webhooks_are_not_called_for_kinds_that_are_let_go() -> None:
    hook = {"name": "x", "rules": [RULE, TRAINS, {**TRAINS, "resources": ["trains", "boats"]}, {}]}
    (made,) = Dropped(covered(kinds=("trains.ml.example",)), covered()).narrowed([hook])
    assert made == {"name": "x", "rules": [RULE, {**TRAINS, "resources": ["trains", "boats"]}, {}]}
    assert hook["rules"] != made["rules"]  # what was there is to be put back


def test_webhooks_are_not_called_in_namespaces_that_are_let_go() -> None:
    """Nor twice less by a second run."""
    labelled = {"key": "team", "operator": "Exists"}
    hook = {"name": "x", "rules": [RULE], "namespaceSelector": {"matchLabels": {}, "matchExpressions": [labelled]}}
    lost = Dropped(covered(), covered("b", "a"))
    (made,) = lost.narrowed([hook])
    kept = {"key": NAME_LABEL, "operator": "In", "values": ["a", "b"]}
    assert made["namespaceSelector"] == {"matchLabels": {}, "matchExpressions": [labelled, kept]}
    assert lost.narrowed([made]) == [made]
    assert Dropped(covered("a"), covered("a", "b")).narrowed([hook]) == [hook]


def test_what_an_operator_covers_is_read_of_its_deployment() -> None:
    """Also if another version of the chart has written it: one that seemed to work for all had others' Jobs let go."""
    lost = dropped(of_all("a", "b"), [JOB, TRAIN], ["b"], [])
    assert lost.before == covered("a", "b", kinds=(TRAIN.resource,))
    assert lost.after == covered("b")
    assert dropped(of_all(), [JOB], [], []).before == covered()
    assert dropped({}, [], [], ["x"]).after == covered(kinds=("x",))
