"""A mark changes name and annotations in a body's metadata, and nothing else; what YAML is read."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from backoff_ctrl.k8s.gate.creates.naming import BODY_HASH, CREATE_ID, Signature, name_create
from backoff_ctrl.k8s.kube.charges.bounded_yaml import KubernetesLoader
from backoff_ctrl.k8s.lab.sandbox.objects.protobuf import read_protobuf
from backoff_ctrl.k8s.sidecar.http.messages import PayloadError
from backoff_ctrl.k8s.sidecar.http.payload import OURS, Payload, marked, read
from backoff_ctrl.k8s.sidecar.http.protobuf import Wire, field
from backoff_ctrl.k8s.sidecar.http.yaml_text import DEEPEST, LONGEST_NUMBER, MOST_VALUES, read_yaml
from tests.cluster.proxying.payloads.twins import PROTOBUF, Twin, recorded
from tests.proxying.payloads.payload_parts import JSON, YAML, enveloped, protobuf

TWINS = [twin for twin in recorded() if twin.resource]
NAME, IDS = "drawn-name", {CREATE_ID: "gate/12"}

texts = st.text(max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
notes = st.dictionaries(st.sampled_from([CREATE_ID, BODY_HASH, "a", "é\ud800"]), texts, max_size=4)
metadata: st.SearchStrategy[JSON] = st.fixed_dictionaries(
    {}, optional={"name": texts, "generateName": texts, "labels": values, "x": values, "annotations": notes}
)
objects: st.SearchStrategy[JSON] = st.fixed_dictionaries(
    {}, optional={"kind": texts, "metadata": st.none() | metadata, "spec": values, 'a"\\': values}
)


def _mark(payload: Payload, name: str = NAME, annotations: dict[str, str] = IDS) -> bytes:
    found = marked(payload, name, annotations)
    assert found is not None
    return found


def _expected(given: JSON, name: str = NAME) -> JSON:
    """Return what a marked object is, computed on the object."""
    meta = given.get("metadata") or {}
    kept = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in OURS}
    return {**given, "metadata": {**meta, **({"name": name} if name else {}), "annotations": {**kept, **IDS}}}


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.shows)
def test_the_sandbox_reads_a_marked_protobuf_body_as_a_real_server_does(twin: Twin) -> None:
    """The second metadata is merged into the first, in every kind."""
    before = read_protobuf(twin.protobuf)
    assert read_protobuf(_mark(Payload(twin.protobuf, PROTOBUF.encode()))) == _expected(before)


# -- JSON ---------


@given(given=objects, indent=st.sampled_from([None, 0, 3]), ascii_only=st.booleans(), named=st.booleans())
def test_json_is_marked_in_its_metadata_and_nowhere_else(
    given: JSON, indent: int | None, ascii_only: bool, named: bool
) -> None:
    """Parsed before and after, all but name and annotations is equal; and all bytes outside of them are the same."""
    try:
        body = f" {json.dumps(given, indent=indent, ensure_ascii=ascii_only)}\n".encode()
    except UnicodeEncodeError:  # half a surrogate that is not written as an escape
        assume(False)
    name = NAME if named else ""
    after = _mark(Payload(body), name)
    assert json.loads(after) == _expected(given, name)
    meta = given.get("metadata")
    if meta is not None and not meta.keys() & {"name", "annotations"}:
        added = ('"name":"drawn-name",' if named else "") + '"annotations":{"backoff-ctrl.dev/create-id": "gate/12"}'
        assert after.replace(f"{added}{',' if meta else ''}".encode(), b"", 1) == body


def test_numbers_and_escapes_of_the_creator_stay_as_they_were_written() -> None:
    """Written anew, 1e400 would be no number, and 1.50 another text."""
    before = b'{"metadata":{"labels":{"x":1.50,"y":1e400,"z":"\\u00e9\\/"},"generateName":"a-"},"spec":1E+2}'
    assert _mark(Payload(before)) == before.replace(
        b'{"labels"', b'{"name":"drawn-name","annotations":{"backoff-ctrl.dev/create-id": "gate/12"},"labels"'
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"name":"a","name":"b"}}',
        b'{"metadata":{},"metadata":{"annotations":{}}}',
        b'{"metadata":{"annotations":{"a":"1","a":"2"}}}',
        b'{"met\\u0061data":{},"metadata":{}}',
        b'{"metadata":{}} x',
        b'{"metadata" {}}',
        b'{"metadata":}',
        b"{1:2}",
    ],
)
def test_json_that_comes_twice_or_is_malformed_is_not_marked(body: bytes) -> None:
    """The last of two counts in a custom object, both in a typed one: a name put into one might not be the name."""
    with pytest.raises(PayloadError):
        marked(Payload(body), NAME, IDS)


@pytest.mark.parametrize(
    "body", [b'{"metadata":[]}', b'{"metadata":{"annotations":[]}}', b'{"metadata":{"annotations":{"a":1}}}']
)
def test_metadata_that_the_server_refuses_is_sent_as_it_is(body: bytes) -> None:
    """Its own sentence says best what is wrong."""
    assert marked(Payload(body), NAME, IDS) is None


# -- protobuf ---------


@pytest.mark.parametrize("twin", TWINS, ids=[twin.shows for twin in TWINS])
def test_protobuf_is_marked_behind_what_it_says(twin: Twin) -> None:
    """The object is what it was, but for name and annotations; its bytes stay, and what is added follows them."""
    before = read(protobuf(twin.protobuf))
    after = _mark(protobuf(twin.protobuf))
    assert before is not None
    assert read(protobuf(after)) == _expected(before)
    raw = next(piece for piece in Wire(twin.protobuf).pieces(4, len(twin.protobuf)) if piece.number == 2)
    added = field(1, b"drawn-name") + field(12, field(1, CREATE_ID.encode()) + field(2, b"gate/12"))
    whole = field(2, twin.protobuf[raw.start : raw.stop] + field(1, added))
    assert after == twin.protobuf[: raw.length_at - 1] + whole + twin.protobuf[raw.stop :]


@pytest.mark.parametrize("size", [100, 116, 117, 127, 128, 16_000, 16_300, 16_383, 16_384])
def test_the_length_of_a_body_grows_with_its_mark(size: int) -> None:
    """Also where the length itself takes a byte more."""
    inner = field(1, field(1, b"a")) + field(999, bytes(size))
    found = read(protobuf(_mark(enveloped(inner))))
    assert found is not None
    assert found["metadata"] == {"name": "drawn-name", "annotations": {CREATE_ID: "gate/12"}}


def test_copied_marks_are_cut_out_of_protobuf() -> None:
    """Wherever they are: in several entries, in a second metadata message, and between other fields."""
    copies = [field(12, field(1, name.encode()) + field(2, b"copied")) for name in (CREATE_ID, BODY_HASH, CREATE_ID)]
    own = field(12, field(1, b"own") + field(2, b"kept"))
    inner = (
        field(1, field(1, b"a") + copies[0] + own + copies[1] + field(2, b"p"))
        + field(2, b"")
        + field(1, copies[2])
        + field(999, b"rest")
    )
    after = _mark(enveloped(inner))
    found = read(protobuf(after))
    assert found is not None
    assert found["metadata"]["annotations"] == {"own": "kept", CREATE_ID: "gate/12"}
    assert b"copied" not in after
    assert field(1, b"a") + own + field(2, b"p") in after
    assert field(999, b"rest") in after


def test_an_envelope_without_an_object_is_not_marked() -> None:
    """There is nothing to name."""
    assert marked(protobuf(b"k8s\0" + field(1, field(2, b"Pod"))), NAME, IDS) is None


# -- YAML ---------

MANIFEST = """\
# made by hand
apiVersion: v1
kind: Pod
metadata:            # who it is
    # its name
    generateName: "é-"
    labels: {a: "b"}
spec: {containers: [{name: a, image: i, args: [0x10, 1_000, yes, 'no']}]}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ('generateName: "é-"', "name: mine"),
        ('generateName: "é-"', "name: ''"),
        ("    labels", "    annotations:\n      a: b   # one\n      c: |\n        d\n    labels"),
        ("    labels", "    annotations: {a: b}\n    labels"),
        ("    labels", "    annotations: {}\n    labels"),
        ("    labels", "    annotations:\n    labels"),
        ("    labels", "    annotations: ~\n    labels"),
        ("    labels", "    annotations: {backoff-ctrl.dev/create-id: copied}\n    labels"),
        ("# made by hand", "---"),
        ("spec:", '"spec":'),
    ],
)
def test_yaml_is_marked_in_its_text(old: str, new: str) -> None:
    """Comments, quotes and other spellings of the creator stay."""
    text = MANIFEST.replace(old, new) if old else MANIFEST
    after = _mark(Payload(text.encode(), YAML)).decode()
    assert yaml.safe_load(after) == _expected(yaml.safe_load(text))
    assert "# who it is" in after
    assert "args: [0x10, 1_000, yes, 'no']" in after


def test_yaml_in_flow_style_is_marked() -> None:
    """JSON is YAML, too."""
    text = "{kind: Pod, metadata: {generateName: a-}}"
    assert yaml.safe_load(_mark(Payload(text.encode(), YAML))) == _expected(yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        "kind: Pod\n",
        "metadata: [a]\n",
        "metadata:\n  name: >\n    a\n  labels: {}\n",
        "metadata:\n  annotations: {backoff-ctrl.dev/body-hash: copied}\n  name: a\n",
        "metadata:\n  ? name\n  : a\n",
        "metadata:\n  annotations:\n    ? a\n\nspec: 1\n",
    ],
)
def test_yaml_that_cannot_be_marked_exactly_is_sent_as_it_is(text: str) -> None:
    """Rather unmarked than changed in a way that nobody asked for."""
    assert marked(Payload(text.encode(), YAML), "drawn", {CREATE_ID: "1"}) is None


# -- which, and with what ---------


@pytest.mark.parametrize(
    "form", [b"application/apply-patch+yaml", b"application/apply-patch+cbor", b"application/cbor"]
)
def test_applies_and_unread_forms_are_never_marked(form: bytes) -> None:
    """Marks in an apply would belong to the field manager of the creator."""
    assert marked(Payload(b"metadata: {name: a}", form), NAME, IDS) is None


@given(given=objects, seed=st.integers(0, 9), key=st.none() | texts, trusted=st.booleans())
def test_the_mark_of_a_create_changes_what_the_gate_itself_changes(
    given: JSON, seed: int, key: str | None, trusted: bool
) -> None:
    """A body marked here is the body that a gated client would send."""
    assume(given.get("metadata") is not None)
    if trusted:
        given["metadata"]["annotations"] = {CREATE_ID: "front/ab12"}
    signature = Signature("gate", frozenset({"front"}))
    named = name_create(given, namespace="n", resource="pods", key=key, rng=random.Random(seed), signature=signature)
    annotations = named.body["metadata"].get("annotations") or {}
    ours = {key: value for key, value in annotations.items() if key in OURS}
    found: Any = json.loads(_mark(Payload(json.dumps(given).encode()), named.name if named.minted else "", ours))
    assert found == named.body


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False),
    st.dates(),
    st.datetimes(),
    st.binary(max_size=9),
    TEXTS,
    st.sampled_from(
        ["yes", "no", "~", "", "1:30", "0x1f", "0o17", "017", "1_000", "1e3", "<<", "=", "- a", "a: b", "|"]
    ),
)
KEYS = TEXTS.filter(lambda key: yaml.load(yaml.safe_dump({key: 0}), Loader=KubernetesLoader) == {key: 0})
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@pytest.mark.long
@given(
    value=st.dictionaries(KEYS, VALUES, max_size=5),
    flow=st.sampled_from([True, False, None]),
    style=st.sampled_from([None, '"', "'", "|", ">"]),
    canonical=st.booleans(),
)
def test_what_kubernetes_reads_is_read(value: Any, flow: bool | None, style: str | None, canonical: bool) -> None:
    """In every style in which it writes an object."""
    text = yaml.dump(
        value, default_flow_style=flow, default_style=style, canonical=canonical, allow_unicode=True, Dumper=NoAliases
    )
    assert read_yaml(text.encode()) == yaml.load(text, Loader=KubernetesLoader)


class NoAliases(yaml.CSafeDumper):
    """Writes an object that comes twice two times."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


@pytest.mark.parametrize(
    "text",
    [
        "a: 1:30\nb: 190:20:30.15\nc: 0x1F\nd: 0b1\ne: 1_000\nf: .inf\ng: 010\nh: 08\ni: +1\nj: 1.\nk: .5\nl: 1e3\n",
        "a: yes\nb: No\nc: on\nd: ~\ne: null\nf:\ng: ''\nh: yy\ni: TRUE\n",
        "a: 2001-12-14t21:59:43.10-05:00\nb: 2002-12-14\nc: '2002-12-14'\n",
        "a: !!str 5\nb: !!int '7'\nc: ! 9\nd: !!binary aGk=\ne: !!float 1\nf: !!map {a: 1}\ng: !!seq [1]\n",
        "a: |\n  one\n  two\nb: >-\n  one\n  two\nc: 'it''s'\nd: \"\\u00e9\\n\"\ne: plain # comment\n",
        "%YAML 1.1\n---\na: {b: [c, {d: e}], f: }\n...\n",
        '{"apiVersion": "v1", "a": [1, 2.5, true, null, "x"]}',
        "a: &x [1]\nb: &y {c: &z d}\n",
        "[1, a]",
        "text",
        "",
    ],
)
def test_the_values_of_yaml_are_those_of_kubernetes(text: str) -> None:
    """Numbers in base 60, octal ones, times, tags, blocks, JSON, anchors that nobody refers to."""
    assert read_yaml(text.encode()) == yaml.load(text, Loader=KubernetesLoader)


@pytest.mark.parametrize(
    "text",
    [
        "a: !!set {b}",
        "a: !!omap [b: 1]",
        "a: !!pairs [b: 1]",
        "a: !!python/object:os.system {}",
        "a: !!python/name:os.system ''",
        "a: !!map b",
        "a: !!set b",
        "a: !!own b",
        "a: {1: b}",
        "a: {yes: b}",
        "a: {~: b}",
        "a: {[b]: c}",
        "a: {b: 1, 'b': 2}",
        "a: {<<: {b: 1}}",
        "a: {'<<': {b: 1}}",
        "a: [",
        "a: b: c",
        "\ta: b",
    ],
)
def test_yaml_that_is_more_than_json_is_refused(text: str) -> None:
    """Go's reader may take it otherwise."""
    with pytest.raises(PayloadError):
        read_yaml(text.encode())


@pytest.mark.parametrize("written", ["[{}]", "\n{}", "{{{}}}"], ids=["list", "block", "object"])
def test_values_are_counted(written: str) -> None:
    """A body of 32 KiB can have 16,000, and took a quarter of a second in which nobody else was served."""
    most = MOST_VALUES - 3  # the object, its key and the list
    read_yaml(_of(written, most))
    with pytest.raises(PayloadError, match=f"more than {MOST_VALUES} values"):
        read_yaml(_of(written, most + 2))


def _of(written: str, values: int) -> bytes:
    """A document with so many values in one list, or object."""
    if "{{" in written:
        return ("a: {" + ", ".join(f"k{number}: 1" for number in range(values // 2)) + "}").encode()
    return ("a: " + written.format("".join("\n- 1" if "\n" in written else "1," for _ in range(values)))).encode()


@pytest.mark.parametrize("number", ["1" + ":1" * 50, "1" + ":1" * 49 + ".0", "1" * 101, "0x" + "f" * 99])
def test_the_length_of_a_number_is_bounded(number: str) -> None:
    """In base 60 the time grows with its square: one of 32 KiB took 80 ms."""
    assert len(number) == LONGEST_NUMBER + 1
    with pytest.raises(PayloadError, match="number"):
        read_yaml(f"a: {number}".encode())
    assert read_yaml(f"a: '{number}'".encode()) == {"a": number}


def test_levels_are_counted() -> None:
    """The object itself is one."""
    deepest = DEEPEST - 1
    read_yaml(("a: " + "[" * deepest + "]" * deepest).encode())
    with pytest.raises(PayloadError, match="levels"):
        read_yaml(("a: " + "[" * DEEPEST + "]" * DEEPEST).encode())
