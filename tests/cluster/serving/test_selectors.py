"""Selectors: by label, by field, and which fields can select."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.objects import SUBDOMAIN_TEXT, made, names, of_core, pod, refusal, secret
from tests.cluster.of_version import in_words_of
from tests.cluster.talking import MERGE

if TYPE_CHECKING:
    from tests.cluster.talking import Api

LABELS = {"a": {"app": "x", "n": "1"}, "b": {"app": "y", "n": "5"}, "c": {}}
QUALIFIED_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.fixture
async def maps(api: Api, namespace: str) -> str:
    """Create three Secrets with ``LABELS``; returns the path of the collection."""
    path = of_core(namespace, "secrets")
    for name, labels in LABELS.items():
        made(await api.post(path, secret(name, labels=labels)))
    return path


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", "abc"), ("app=x", "a"), ("app==x", "a"), ("app!=x", "bc"), ("app", "ab"), ("!app", "c"), ("! app", "c"),
        ("app in (x,y)", "ab"), ("app in (x)", "a"), ("app notin (x)", "bc"), ("app notin(x)", "bc"), ("app in ()", ""),
        ("app in ( x , y )", "ab"), ("app in (x,y),n=1", "a"), ("app in (x,y),!n", ""), (" app = x , n = 1 ", "a"),
        ("app=x,app=y", ""), ("app=", ""), ("n>2", "b"), ("n<2", "a"), ("n>1,n<9", "b"), ("in", ""), ("App", ""),
        ("none!=d", "abc"), ("example.com/app!=d", "abc"), ("app in (x,)", "a"),
    ],
)  # fmt: skip
async def test_labels_select(api: Api, maps: str, selector: str, found: str) -> None:
    """Equality, sets, presence and comparison. All terms must hold; `!=` and `notin` also match absent labels."""
    assert names((await api.get(maps, params={"labelSelector": selector})).json) == list(found)


@pytest.mark.parametrize(
    ("selector", "told"),
    [
        ("a==b==c", "found '==', expected: ',' or 'end of string'"),
        ("app=a b", "found 'b', expected: ',' or 'end of string'"),
        ("!app=x", "found '=', expected: ',' or 'end of string'"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        (",app", "found ',', expected: !, identifier, or 'end of string'"),
        ("(", "found '(', expected: !, identifier, or 'end of string'"),
        ("app,,n", "found ',', expected: identifier after ','"),
        ("x=y,", "found '', expected: identifier after ','"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("app in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("app in x", "unable to parse requirement: found 'x' expected: '('"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("n>x", ("unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value "
                "must be an integer")),
        ("-x", f'unable to parse requirement: <nil>: Invalid value: "-x": name part {QUALIFIED_TEXT}'),
        ("a/b/c=x", (f'unable to parse requirement: <nil>: Invalid value: "a/b/c": a valid label key {QUALIFIED_TEXT} '
                    "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")),
        ("A_b/c", f'unable to parse requirement: <nil>: Invalid value: "A_b/c": prefix part {SUBDOMAIN_TEXT}'),
        ("a" * 64, (f'unable to parse requirement: <nil>: Invalid value: "{"a" * 64}": name part must be no more than '
                   "63 bytes")),
        ("app=-x", f'unable to parse requirement: values[0][app]: Invalid value: "-x": {VALUE_TEXT}'),
        ("app in (x,-y)", f'unable to parse requirement: values[0][app]: Invalid value: "-y": {VALUE_TEXT}'),
    ],
)  # fmt: skip
async def test_a_malformed_label_selector_is_refused(api: Api, maps: str, selector: str, told: str) -> None:
    """400 for lists, watches and deletes."""
    params = {"labelSelector": selector}
    expected = (400, "BadRequest", in_words_of(api.server, told))

    assert refusal(await api.get(maps, params=params)) == expected
    assert refusal(await api.get(maps, params={**params, "watch": "1", "timeoutSeconds": "1"})) == expected
    assert refusal(await api.delete(maps, params=params)) == expected


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("metadata.name=a", "a"), ("metadata.name==a", "a"), ("metadata.name!=a", "bc"), ("metadata.name=a,", "a"),
        ("metadata.name=a,metadata.name=b", ""), ("metadata.namespace!=other", "abc"), ("metadata.namespace=other", ""),
        (r"metadata.name=a\,b", ""), ("", "abc"),
    ],
)  # fmt: skip
async def test_fields_select(api: Api, maps: str, selector: str, found: str) -> None:
    """Objects of every kind can be selected by name and namespace."""
    assert names((await api.get(maps, params={"fieldSelector": selector})).json) == list(found)


@pytest.mark.parametrize(
    ("plural", "selector", "told"),
    [
        ("configmaps", "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("configmaps", "metadata.name in (a)",
         "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'"),
        ("configmaps", "data.a=1",
         '"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        ("configmaps", "=a", '"" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        ("pods", "spec.foo=1", "field label not supported: spec.foo"),
        ("secrets", "data.a=1", "field label not supported: data.a"),
        ("events", "foo=1", "field label not supported: foo"),
    ],
)  # fmt: skip
async def test_a_field_that_cannot_select_is_refused(
    api: Api, namespace: str, plural: str, selector: str, told: str
) -> None:
    """400 that names the field."""
    reply = await api.get(of_core(namespace, plural), params={"fieldSelector": selector})

    assert refusal(reply) == (400, "BadRequest", told)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("status.phase=Pending", "np"), ("status.phase!=Pending", "e"), ("spec.nodeName=", "ep"),
        ("spec.nodeName!=", "n"), ("spec.nodeName=n1,status.phase=Pending", "n"), ("spec.restartPolicy=Never", "e"),
        ("spec.schedulerName=default-scheduler,metadata.name!=n", "ep"), ("spec.serviceAccountName=", "enp"),
        ("status.podIP=", "enp"), ("status.nominatedNodeName=", "enp"), ("spec.hostNetwork=false", "enp"),
    ],
)  # fmt: skip
async def test_pods_can_be_selected_by_phase_and_node(api: Api, namespace: str, selector: str, found: str) -> None:
    """And by the other fields that schedulers and kubelets use."""
    path = of_core(namespace, "pods")
    made(await api.post(path, pod("p")))
    made(await api.post(path, pod("n", {"nodeName": "n1"})))
    made(await api.post(path, pod("e", {"restartPolicy": "Never"})))
    made(await api.patch(f"{path}/e/status", {"status": {"phase": "Succeeded"}}, MERGE))
    listed = (await api.get(path, params={"fieldSelector": selector})).json

    assert names(listed) == sorted(found)


async def test_secrets_can_be_selected_by_type_and_jobs_by_success(api: Api, namespace: str) -> None:
    """Each kind has its own selectable fields."""
    path = of_core(namespace, "secrets")
    made(await api.post(path, {"metadata": {"name": "a"}}))
    made(await api.post(path, {"metadata": {"name": "b"}, "type": "example.com/own"}))
    own = (await api.get(path, params={"fieldSelector": "type=example.com/own"})).json
    jobs = await api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs", params={"fieldSelector": "status.successful=1"})

    assert names(own) == ["b"]
    assert jobs.json["items"] == []
