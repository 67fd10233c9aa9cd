"""Loading manifests: YAML, JSON, lists and streams. Errors name file, line and column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.charges.manifests import LARGEST_FILE, ManifestError, load_manifests, read_source
from tests.kit.yaml_scalars import KEYS, SCALARS, text_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("scalar", SCALARS)
def test_plain_scalars_are_those_of_kubernetes(scalar: str) -> None:
    """What the API server would make of the same text."""
    (found,) = load_manifests(f"kind: A\nvalue: {scalar}\n", "f.yaml")
    value = text_of(scalar)
    assert (found["value"], type(found["value"])) == (value, type(value))


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_texts(key: str) -> None:
    """As JSON needs them."""
    (found,) = load_manifests(f"kind: A\nlabels: {{{key}: a}}\n", "f.yaml")
    assert found["labels"] == {KEYS[key]: "a"}


DOUBLING = "\n".join(
    ["a0: &a0 {" + ",".join(f"k{n}: 1" for n in range(100)) + "}"]
    + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 15)]
).encode()
"""2 kB that would become an object of 1,600,000 keys."""


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("kind: Pod", ["Pod"]),
        ("---\nkind: Pod\n---\n---\nkind: Job\n...\n", ["Pod", "Job"]),
        ('{"kind": "Pod"}', ["Pod"]),
        ('  {"kind": "Pod"}\n', ["Pod"]),
        ("{kind: Pod}", ["Pod"]),
        ('{"kind": "Pod"}\n---\n{"kind": "Job"}', ["Pod", "Job"]),
        ("\ufeffkind: Pod", ["Pod"]),
        ("kind: List\nitems: [{kind: Pod}, {kind: Job}]", ["Pod", "Job"]),
        ("kind: PodList\nitems: [{kind: Pod}]\n---\nkind: Job", ["Pod", "Job"]),
        ("kind: PodList\nitems: [{metadata: {name: p}}]", ["Pod"]),
        ("kind: List\nitems: null\n---\nkind: Job", ["Job"]),
        ("kind: AllowList\nspec: {}", ["AllowList"]),
        ("# a comment\nkind: Pod # here", ["Pod"]),
    ],
)
def test_a_file_holds_any_number_of_manifests(text: str, kinds: list[str]) -> None:
    """Streams, lists, YAML and JSON; a kind that ends in List but has no items is a plain manifest."""
    assert [manifest["kind"] for manifest in load_manifests(text.encode(), "f.yaml")] == kinds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "f.yaml: contains no manifest"),
        (b"---\n---\n", "f.yaml: contains no manifest"),
        (b"kind: List\nitems: []", "f.yaml: contains no manifest"),
        (b"just text", "f.yaml, document 1: must be an object with fields such as kind and spec"),
        (b"kind: Pod\n---\n- a\n", "f.yaml, document 2: must be an object with fields such as kind and spec"),
        (
            b"kind: List\nitems: [1]",
            "f.yaml, document 1, items[0]: must be an object with fields such as kind and spec",
        ),
        (b"a: [1\nb: }", "f.yaml, line 2, column 2: is not valid YAML: did not find expected ',' or ']'"),
        (
            b"a: 1\n  b: 2",
            "f.yaml, line 2, column 4: is not valid YAML: mapping values are not allowed in this context",
        ),
        (b"a: *b", "f.yaml, line 1, column 4: is not valid YAML: found undefined alias"),
        (
            b"a: !!python/object:os.system x",
            "f.yaml, line 1, column 4: is not valid YAML: could not determine a constructor",
        ),
        (b"kind: \xff", "f.yaml: is not UTF-8: invalid byte at offset 6"),
        (b"kind: \x01", "f.yaml: is not valid YAML: "),
        (b"a: " + b"9" * 5000, "f.yaml, line 1, column 4: is not valid YAML: a number has more than 1000 characters"),
        (
            b"a: 1" + b":1" * 60_000,
            "f.yaml, line 1, column 4: is not valid YAML: a number has more than 1000 characters",
        ),
        (b"a: 1" + b":1" * 600 + b".5", "f.yaml, line 1, column 4: is not valid YAML: a number has more than 1000"),
        (
            DOUBLING,
            "f.yaml, line 8, column 5: is not valid YAML: its merge keys make an object of more than 10000 keys",
        ),
        (b'{"a": ', "f.yaml, line 2, column 1: is not valid YAML: did not find expected node content"),
        (b'a: !!int ""', "f.yaml: is not valid YAML: string index out of range"),
        (b"a: !!bool x", "f.yaml: is not valid YAML: 'x'"),
        (b"a: !!timestamp x", "f.yaml: is not valid YAML: cannot decode 'x' as a !!timestamp"),
        (b"[" * 200_000, "f.yaml: is nested more than 200 levels deep"),
        (b'{"a":' * 200_000, "f.yaml: is nested more than 200 levels deep"),
    ],
)
def test_an_unreadable_manifest_is_refused_with_its_place(text: bytes, sentence: str) -> None:
    """The message is one line: the file, the place, the problem."""
    with pytest.raises(ManifestError) as caught:
        load_manifests(text, "f.yaml")
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=80) | st.text(max_size=80))
def test_any_content_is_manifests_or_one_sentence(content: bytes | str) -> None:
    """No content raises anything but a ManifestError."""
    try:
        manifests = load_manifests(content, "stdin")
    except ManifestError as error:
        sentence = str(error)
        assert sentence.startswith("stdin")  # both outcomes are valid
    else:
        assert all(isinstance(manifest, dict) for manifest in manifests)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, a folder, too large: the message has the path and the reason."""
    with pytest.raises(ManifestError, match=r"none\.yaml: cannot be read: No such file or directory"):
        read_source(str(tmp_path / "none.yaml"))
    with pytest.raises(ManifestError, match="cannot be read: Is a directory"):
        read_source(str(tmp_path))
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with pytest.raises(ManifestError, match="is larger than 16 MiB"):
        read_source(str(large))
    (tmp_path / "f.yaml").write_text("kind: Pod")
    assert read_source(str(tmp_path / "f.yaml")) == b"kind: Pod"


def test_aliases_of_yaml_are_counted_where_their_number_is_limited() -> None:
    """Each may stand for any amount of text; no other text is read for it."""
    text = b"a: &a {b: 1}\nc: [*a, *a]"
    assert load_manifests(text, "f.yaml", 2) == [{"a": {"b": 1}, "c": [{"b": 1}] * 2}]
    with pytest.raises(ManifestError, match=r"^f\.yaml has more than 1 YAML aliases: write them out$"):
        load_manifests(text, "f.yaml", 1)
