"""Selectors: by label, by field, and which fields can select."""

from __future__ import annotations

import pytest

from tests.cluster.objects import made, names, of_core, pod, refusal, secret
from tests.cluster.talking import MERGE, Api

LABELS = {"a": {"app": "x", "n": "1"}, "b": {"app": "y", "n": "5"}, "c": {}}


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
        ("app=x,app=y", ""), ("app=", ""), ("in", ""), ("App", ""),
        ("none!=d", "abc"), ("example.com/app!=d", "abc"), ("app in (x,)", "a"),
    ],
)  # fmt: skip
async def test_labels_select(api: Api, maps: str, selector: str, found: str) -> None:
    """Equality, sets and presence. All terms must hold; `!=` and `notin` also match absent labels."""
    assert names((await api.get(maps, params={"labelSelector": selector})).json) == list(found)


@pytest.mark.parametrize(
    "selector",
    ["a==b==c", "app=a b", "!app=x", "=x", ",app", "(", "app,,n", "x=y,", "!", "app in (x", "app in x", "a b", "-x",
     "a/b/c=x", "A_b/c", "a" * 64, "app=-x", "app in (x,-y)"],
)  # fmt: skip
async def test_a_malformed_label_selector_is_refused(api: Api, maps: str, selector: str) -> None:
    """400 for lists, watches and deletes."""
    params = {"labelSelector": selector}

    assert refusal(await api.get(maps, params=params))[:2] == (400, "BadRequest")
    watch = {**params, "watch": "1", "timeoutSeconds": "1"}
    assert refusal(await api.get(maps, params=watch))[:2] == (400, "BadRequest")
    assert refusal(await api.delete(maps, params=params))[:2] == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("metadata.name=a", "a"), ("metadata.name==a", "a"), ("metadata.name!=a", "bc"), ("metadata.name=a,", "a"),
        ("metadata.name=a,metadata.name=b", ""), ("metadata.namespace!=other", "abc"), ("metadata.namespace=other", ""),
        ("", "abc"),
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
        ("status.podIP=", "enp"), ("status.nominatedNodeName=", "enp"),
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
