"""Reading payloads: a manifest, a stored object and a Status say the same in protobuf as in JSON, or nothing at all."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.lab.sandbox.objects import protobuf as of_the_sandbox
from backoff_ctrl.k8s.sidecar.http.charged_fields import MESSAGES
from backoff_ctrl.k8s.sidecar.http.messages import LARGEST, PayloadError
from backoff_ctrl.k8s.sidecar.http.payload import OURS, Payload, marked, read
from backoff_ctrl.k8s.sidecar.http.protobuf import MOST_FIELDS, field, varint
from tests.cluster.proxying.payloads.twins import Twin, recorded
from tests.kit.charged import cases
from tests.kit.yaml_scalars import SCALARS, text_of
from tests.proxying.payloads.payload_parts import PROTOBUF, YAML, enveloped, number, projected, protobuf, without_empty

TWINS = recorded()
OBJECTS = [twin for twin in TWINS if twin.resource]
BODIES = [protobuf(twin.protobuf) for twin in TWINS] + [Payload(json.dumps(twin.json).encode()) for twin in TWINS[:40]]


@pytest.mark.parametrize("twin", TWINS, ids=[twin.shows for twin in TWINS])
def test_what_a_real_server_writes_says_the_same_in_both_forms(twin: Twin) -> None:
    """Each field that is read has the value that it has in JSON, and none is missing."""
    found = read(protobuf(twin.protobuf))
    assert found is not None
    assert without_empty(found) == without_empty(projected(twin.json))
    if twin.resource:
        assert footprint(found, resource=twin.resource) == footprint(twin.json, resource=twin.resource)
    assert read(Payload(json.dumps(twin.json).encode(), b"application/json; charset=utf-8")) == twin.json


def test_every_manifest_whose_charge_is_known_is_among_them() -> None:
    """All but those of custom kinds, which Kubernetes does not serve in protobuf; and refusals with causes."""
    assert {twin.shows for twin in OBJECTS} == {case.key for case in cases() if case.theme != "custom"}
    told = [read(protobuf(twin.protobuf)) for twin in TWINS if not twin.resource]
    assert any(each and each["details"].get("causes") for each in told)
    assert any(each and "exceeded quota: full" in each["message"] and each["code"] == 403 for each in told)


def test_both_tables_of_protobuf_fields_agree() -> None:
    """The sandbox reads all fields by a table of its own, made by another program: neither copies a mistake."""
    other = of_the_sandbox._table()
    shared = MESSAGES.keys() & other.keys()
    for message in shared:
        ours = {place: known.name for place, known in MESSAGES[message].items()}
        assert ours.items() <= {place: known.name for place, known in other[message].items()}.items(), message
    apart = {message for message in MESSAGES if message not in shared}
    assert not [message for message in apart if not message.startswith(("meta.v1.Status", "resource.v1beta"))]


def test_the_depth_of_what_is_read_is_bounded() -> None:
    """No message of the table contains itself, at any depth."""

    def depth(message: str, above: tuple[str, ...] = ()) -> int:
        assert message not in above
        inner = [known.type for known in MESSAGES[message].values() if isinstance(known.type, str)]
        return 1 + max((depth(each, (*above, message)) for each in inner), default=0)

    assert max(map(depth, MESSAGES)) == 7


# -- as Go reads protobuf ---------

META = field(1, b"a") + field(11, field(1, b"x") + field(2, b"1")) + number(10, 30)


def test_a_message_that_comes_twice_is_merged() -> None:
    """Later texts win, entries of maps are added or replaced, and what comes once stays."""
    again = field(1, b"b") + field(11, field(1, b"x") + field(2, b"2")) + field(11, field(1, b"y"))
    found = read(enveloped(field(1, META) + field(1, again)))
    assert found is not None
    assert found["metadata"] == {"name": "b", "labels": {"x": "2", "y": ""}, "deletionGracePeriodSeconds": 30}


def test_an_empty_text_after_another_takes_it_away() -> None:
    """As in Go, where the field then holds its zero."""
    found = read(enveloped(field(1, field(1, b"a") + field(1, b""))))
    assert found is not None
    assert found["metadata"] == {}


def test_unknown_fields_of_any_type_are_passed_over() -> None:
    """A newer Kubernetes has fields that the table does not know."""
    strange = (
        number(901, 7) + varint(902 << 3 | 1) + bytes(8) + varint(903 << 3 | 5) + bytes(4) + field(904, b"\xff\x00")
    )
    found = read(enveloped(strange + field(1, strange + META + strange) + strange))
    plain = read(enveloped(field(1, META)))
    assert found == plain is not None


@pytest.mark.parametrize(
    ("written", "read_as"),
    [(number(5, -1), -1), (number(5, 0), 0), (number(5, 2**63 - 1), 2**63 - 1), (number(5, 5) + number(5, 6), 6)],
)
def test_numbers_are_signed_and_a_pointer_keeps_its_zero(written: bytes, read_as: int) -> None:
    """``activeDeadlineSeconds: 0`` is not the same as none."""
    found = read(enveloped(field(2, written)))
    assert found is not None
    assert found["spec"] == {"activeDeadlineSeconds": read_as}


def test_the_kind_of_the_path_is_used_where_the_envelope_names_none() -> None:
    """As the API server does; a kind that is not in the table has its metadata read."""
    spec = field(2, number(5, 9))
    assert read(enveloped(spec, "", ""), ("v1", "Pod")) == {
        "apiVersion": "v1", "kind": "Pod", "spec": {"activeDeadlineSeconds": 9},
    }  # fmt: skip
    assert read(enveloped(field(1, META) + spec, "wardle.example.com/v1", "Pod"), ("v1", "Pod")) == {
        "apiVersion": "wardle.example.com/v1",
        "kind": "Pod",
        "metadata": {"name": "a", "labels": {"x": "1"}, "deletionGracePeriodSeconds": 30},
    }


def test_devices_of_an_older_version_are_charged() -> None:
    """In v1beta1 the fields lie on the request itself, and v1 numbers others."""
    request = field(2, b"gpu") + field(4, b"ExactCount") + number(5, 3)
    either = field(7, field(2, b"nic") + number(5, 2)) + field(7, field(2, b"nic") + field(4, b"All"))
    claim = enveloped(
        field(2, field(1, field(1, request) + field(1, either))), "resource.k8s.io/v1beta1", "ResourceClaim"
    )
    found = read(claim)
    assert found is not None
    charged = footprint(found).amounts
    assert charged["gpu.deviceclass.resource.k8s.io/devices"] == 3 * NANO
    assert charged["nic.deviceclass.resource.k8s.io/devices"] == 32 * NANO


def test_a_status_says_when_to_come_again() -> None:
    """``details.retryAfterSeconds``, as the API server sends it with a 429."""
    details = field(1, b"p") + field(3, b"pods") + number(5, 7)
    said = field(2, b"Failure") + field(3, b"slow down") + field(4, b"TooManyRequests") + field(5, details)
    assert read(enveloped(field(1, b"") + said + number(6, 429), "v1", "Status")) == {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "message": "slow down",
        "reason": "TooManyRequests",
        "details": {"name": "p", "kind": "pods", "retryAfterSeconds": 7},
        "code": 429,
    }


@pytest.mark.parametrize(
    "raw",
    [
        varint(2**32 + 1 << 3 | 2) + b"\x00",  # Go cuts the number off, and sees field 1
        varint(0 << 3 | 2) + b"\x00",
        varint(1 << 3 | 3) + varint(1 << 3 | 4),
        varint(1 << 3 | 6),
        varint(999 << 3) + b"\x80" * 10 + b"\x01",
        field(1, META)[:-1],
        number(1, 5),
        field(1, number(1, 5)),
        field(1, field(1, b"\xff")),
        field(1, field(8, number(1, 2**62))),
        field(2, field(5, b"1")),
    ],
    ids=[
        "cut-off",
        "no-number",
        "group",
        "unknown-type",
        "long",
        "short",
        "message",
        "text",
        "utf-8",
        "time",
        "number",
    ],
)
def test_malformed_protobuf_is_refused(raw: bytes) -> None:
    """Also what Go would read in another way than it looks."""
    with pytest.raises(PayloadError):
        read(enveloped(raw))


def test_yaml_of_thousands_of_levels_crashes_nothing() -> None:
    """PyYAML's C loader would go down level by level until the process dies."""
    with pytest.raises(PayloadError, match="levels"):
        read(Payload(b"a: " + b"[" * 15_000 + b"]" * 15_000, YAML))


def test_a_body_of_tiny_fields_is_given_up_soon() -> None:
    """A million fields of two bytes would hold up everybody else for a second."""
    with pytest.raises(PayloadError, match="more than 100000 fields"):
        read(enveloped(number(99, 1) * (MOST_FIELDS + 1)))


@pytest.mark.parametrize("content_type", [b"application/json", PROTOBUF, YAML])
def test_a_body_that_no_server_accepts_is_not_read(content_type: bytes) -> None:
    """It may be sent; nobody spends time on it here."""
    with pytest.raises(PayloadError, match="larger than"):
        read(Payload(b"k8s\0" + bytes(LARGEST), content_type))


# -- JSON and YAML ---------


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"name":"a"},"metadata":{"name":"b"}}',
        b'{"spec":{"containers":[{"name":"a","name":"b"}]}}',
        b'{"a":NaN}',
        b"[1]",
        b"{} {}",
        b"",
        b'{"a":"\xff"}',
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        b'{"a":' + b"[" * 100_000,
        b'{"a":' + b"1" * 5_000 + b"}",
    ],
    ids=["twice", "twice-below", "nan", "list", "two", "empty", "utf-8", "bom", "utf-16", "deep", "long-number"],
)
def test_json_that_the_server_may_read_otherwise_is_refused(body: bytes) -> None:
    """Go merges fields that come twice into a typed object, and takes the last in a custom one."""
    with pytest.raises(PayloadError):
        read(Payload(body))


def test_yaml_is_read() -> None:
    """Of creates and of server-side apply."""
    body = b"apiVersion: v1\nkind: Pod\nmetadata:\n  generateName: a-\nspec: {containers: [{name: a}]}\n"
    for content_type in (YAML, b"application/apply-patch+yaml"):
        found = read(Payload(body, content_type))
        assert found is not None
        assert (found["metadata"], found["spec"]) == ({"generateName": "a-"}, {"containers": [{"name": "a"}]})


@pytest.mark.parametrize("scalar", SCALARS)
def test_plain_scalars_in_yaml_are_those_of_kubernetes(scalar: str) -> None:
    """A date, a time or ``1:30`` is a text for the API server, and no number or date as for PyYAML."""
    found, value = read(Payload(f"a: {scalar}\n".encode(), YAML)), text_of(scalar)
    assert found is not None
    assert (found["a"], type(found["a"])) == (value, type(value))


@pytest.mark.parametrize(
    "body",
    [
        b"a: &x [1]\nb: *x\n",
        b"a: 1\na: 2\n",
        b"a: 1\n---\nb: 1\n",
        b"a: " + b"[" * 5_000,
        b"a: \x00",
    ],
    ids=["alias", "twice", "documents", "deep", "control"],
)
def test_yaml_that_means_more_than_it_says_is_refused(body: bytes) -> None:
    """An alias may stand for a gigabyte; deep nesting would crash the loader."""
    with pytest.raises(PayloadError):
        read(Payload(body, YAML))


@pytest.mark.parametrize("content_type", [b"application/cbor", b"text/html", b"application/merge-patch+json"])
def test_other_forms_pass_unread(content_type: bytes) -> None:
    """What they say is not known, and that is no fault."""
    assert read(Payload(b"\xbf\xff", content_type)) is None


# -- anything ---------


@given(data=st.data())
def test_any_bytes_are_read_or_refused_in_one_way(data: st.DataObject) -> None:
    """Random bytes and bodies with a few bytes changed raise one error at most."""
    chosen = data.draw(st.sampled_from(BODIES))
    kind = data.draw(st.sampled_from(["random", "changed", "cut", "doubled"]))
    drawn = random.Random(data.draw(st.integers(0, 2**32)))
    body = bytearray(chosen.body)
    if kind == "random":
        body = bytearray(data.draw(st.sampled_from([b"", b"k8s\0", b"{"])) + drawn.randbytes(drawn.randrange(60)))
    for _ in range(drawn.randrange(1, 5) if kind == "changed" else 0):
        body[drawn.randrange(len(body))] = drawn.randrange(256)
    if kind in {"cut", "doubled"}:
        begin, end = sorted(drawn.randrange(len(body) + 1) for _ in range(2))
        body[begin:end] = body[begin:end] * (2 if kind == "doubled" else 0)
    content_type = data.draw(st.sampled_from([chosen.content_type, PROTOBUF, YAML, None]))
    payload = Payload(bytes(body), content_type)
    for attempt in (read, _marked):
        try:
            found = attempt(payload)
        except PayloadError:
            continue
        assert found is None or isinstance(found, (dict, bytes))


def _marked(payload: Payload) -> Any:
    return marked(payload, "drawn", dict.fromkeys(OURS, "1"))


def test_an_error_keeps_what_the_body_holds() -> None:
    """A Secret's content must not get into a log with an error of ours."""
    for body in (b'{"data":{"key":"c2VjcmV0', b'{"data" "c2VjcmV0": 1}', b"k8s\0\x0a\x05c2VjcmV0"):
        for content_type in (None, YAML, PROTOBUF):
            with pytest.raises(PayloadError) as caught:
                read(Payload(body, content_type))
            told = repr(caught.value) + repr(caught.value.__cause__)
            assert "c2Vj" not in told
