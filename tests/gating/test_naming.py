"""Names drawn before sending: they fit, they are recognised, and a key gives the same name again."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backoff_ctrl.k8s.gate.creates.naming import ALPHABET, BODY_HASH, CREATE_ID, Signature, hash_of, name_create


def named(body: dict[str, Any], key: str | None = None, seed: int = 1, **kind: Any) -> Any:
    where: dict[str, Any] = {"namespace": "team", "resource": "pods", **kind}
    return name_create(body, key=key, rng=random.Random(seed), **where)


@example(prefix="p" * 53, seed=1)
@example(prefix="p" * 54, seed=1)
@example(prefix="p" * 90, seed=1)
@given(prefix=st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=80), seed=st.integers())
def test_a_minted_name_fits_and_shows_its_prefix(prefix: str, seed: int) -> None:
    """It has 63 characters at most; the prefix is cut, never the ten drawn characters."""
    name = named({"metadata": {"generateName": prefix}}, seed=seed).name

    assert len(name) <= 63
    assert name[:-10] == prefix[:53]
    assert set(name[-10:]) <= set(ALPHABET)


def test_generate_name_and_the_rest_of_the_object_stay() -> None:
    """Only the name and the annotation are added."""
    body = {"kind": "Pod", "metadata": {"generateName": "w-", "labels": {"a": "b"}, "annotations": {"c": "d"}}}
    made = named(body)

    assert made.body["metadata"]["generateName"] == "w-"
    assert made.body["metadata"]["labels"] == {"a": "b"}
    assert made.body["metadata"]["annotations"] == {"c": "d", CREATE_ID: made.create_id}
    assert body["metadata"] == {"generateName": "w-", "labels": {"a": "b"}, "annotations": {"c": "d"}}


def test_a_name_of_the_callers_is_kept_and_not_marked_as_minted() -> None:
    """Such a name may exist already."""
    made = named({"metadata": {"name": "mine", "generateName": "w-"}})

    assert (made.name, made.minted) == ("mine", False)


def test_a_key_gives_the_same_name_and_id_everywhere() -> None:
    """Another process with another seed finds the same object."""
    body = {"metadata": {"generateName": "w-"}}

    assert named(body, "k", seed=1) == named(body, "k", seed=2)


def test_a_key_is_separate_for_each_namespace_kind_and_prefix() -> None:
    """The same key with another namespace, kind or prefix is another create."""
    body = {"metadata": {"generateName": "w-"}}
    all_of_them = [
        named(body, "k"),
        named(body, "k2"),
        named(body, "k", namespace="other"),
        named(body, "k", resource="jobs.batch"),
        named({"metadata": {"generateName": "v-"}}, "k"),
    ]

    assert len({each.create_id for each in all_of_them}) == 5
    assert len({each.name for each in all_of_them}) == 5


def test_without_a_key_each_create_is_another() -> None:
    """Name and id are random."""
    body = {"metadata": {"generateName": "w-"}}

    assert named(body, seed=1).name != named(body, seed=2).name
    assert named(body, seed=1).create_id != named(body, seed=2).create_id


def test_a_copied_id_is_replaced() -> None:
    """A manifest exported from a living pod has that pod's id: kept, it would turn a 409 into a success."""
    copied = {CREATE_ID: "0123", BODY_HASH: "4567", "a": "b"}
    made = named({"metadata": {"name": "web", "annotations": copied}})

    assert made.create_id != "0123"
    assert made.body["metadata"]["annotations"] == {"a": "b", CREATE_ID: made.create_id}
    assert not made.made(copied)


@pytest.mark.parametrize(
    ("carried", "kept"), [("front/12", True), ("other/12", False), ("front", False), ("front/", False), (7, False)]
)
def test_the_id_of_a_trusted_gate_in_front_is_kept(carried: Any, kept: bool) -> None:
    """The gate of a client behind a proxy with a gate must recognise its own object."""
    trusting = Signature(trusted=frozenset({"front"}))
    body = {"metadata": {"generateName": "w-", "annotations": {CREATE_ID: carried, BODY_HASH: "h"}}}
    made = named(body, signature=trusting)

    assert (made.create_id == carried, made.made({CREATE_ID: carried})) == (kept, kept)
    assert (BODY_HASH in made.body["metadata"]["annotations"]) is kept


def test_a_gate_signs_with_its_name_and_knows_its_objects_after_it_was_renamed() -> None:
    """The id of a key is the same under any name."""
    body = {"metadata": {"generateName": "w-"}}
    before, after = (named(body, "k", signature=Signature(name)) for name in ("old", "new"))

    assert after.create_id.startswith("new/")
    assert after.made({CREATE_ID: before.create_id})
    assert not after.made({CREATE_ID: named(body, "other", signature=Signature("new")).create_id})


def test_the_hash_of_a_body_is_of_what_was_asked_for() -> None:
    """Order and our own annotations do not count; everything else does. Without a key there is none."""
    body = {"metadata": {"generateName": "w-", "labels": {"a": "b", "c": "d"}}, "spec": {}}
    again = {"spec": {}, "metadata": {"labels": {"c": "d", "a": "b"}, "generateName": "w-"}}
    exported = named(body, "k").body
    del exported["metadata"]["name"]  # drawn here

    assert hash_of(body) == hash_of(again) == hash_of(exported)
    assert hash_of(body) != hash_of({**body, "spec": {"priority": 1}})
    assert named(body, "k").body["metadata"]["annotations"][BODY_HASH] == hash_of(body)
    assert BODY_HASH not in named(body).body["metadata"]["annotations"]


def test_a_body_that_is_no_json_has_no_hash() -> None:
    """The client will say what is wrong with it."""
    assert named({"metadata": {"generateName": "w-"}, "spec": object()}, "k").body_hash == ""
