"""Names drawn before sending: they fit, they are recognised, and a key gives the same name again."""

from __future__ import annotations

import random
import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from backoff_ctrl.k8s.creates.naming import ALPHABET, CREATE_ID, name_create


def named(body: dict[str, Any], key: str | None = None, seed: int = 1, **kind: str) -> Any:
    where = {"namespace": "team", "resource": "pods", **kind}
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


def test_the_id_of_a_gate_in_front_is_kept() -> None:
    """The gate of a client behind a proxy with a gate must recognise its own object."""
    made = named({"metadata": {"generateName": "w-", "annotations": {CREATE_ID: "theirs"}}})

    assert made.create_id == "theirs"


def test_names_are_valid_object_names() -> None:
    """Each is a DNS label, which every kind accepts."""
    name = named({"metadata": {"generateName": "a" * 90}}).name

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
