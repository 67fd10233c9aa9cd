"""Unknown JSON: the strict readers name the field that is wrong, the lenient ones take it as absent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.answers import fields
from backoff_ctrl.k8s.kube.answers.fields import FieldError

ODD: tuple[Any, ...] = (None, 7, True, "a text", [1], {"a": 1}, date(2026, 1, 2))


@pytest.mark.parametrize(
    ("read", "kind"),
    [(fields.mapping, dict), (fields.items, list), (fields.text, str)],
)
def test_a_value_of_another_type_counts_as_absent(read: Callable[[object], Any], kind: type) -> None:
    for value in ODD:
        assert read(value) == (value if isinstance(value, kind) else kind())


def test_objects_of_a_list_are_read_without_its_other_items() -> None:
    assert fields.mappings([{"a": 1}, None, "b", MappingProxyType({"c": 2})]) == [{"a": 1}, {"c": 2}]
    assert fields.mappings({"a": 1}) == []


@pytest.mark.parametrize("body", [None, [], {}, {"metadata": None}, {"metadata": [1]}, {"metadata": {"labels": "a"}}])
def test_metadata_of_anything_can_be_asked_for_its_labels(body: object) -> None:
    assert not fields.labels_of(body)
    assert not fields.annotations_of(body)


def test_metadata_is_read_where_it_is() -> None:
    body = {"metadata": {"name": "web", "labels": {"a": "1"}, "annotations": {"b": "2"}}}
    assert fields.metadata_of(body)["name"] == "web"
    assert (fields.labels_of(body), fields.annotations_of(body)) == ({"a": "1"}, {"b": "2"})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05+01:00", datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)),
        (date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)),
        (datetime(2026, 1, 2, 3), datetime(2026, 1, 2, 3, tzinfo=UTC)),  # noqa: DTZ001 - as YAML reads it
        ("0001-01-01T00:00:00+14:00", None),
        ("soon", None),
        (7, None),
    ],
)
def test_times_are_in_utc(value: object, expected: datetime | None) -> None:
    assert fields.moment(value) == expected


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (fields.mapping_at, [1], "spec.key: must be an object, not a list"),
        (fields.mapping_at, date(2026, 1, 2), "spec.key: must be an object, not a date (put it in quotes)"),
        (fields.required_mapping_at, None, "spec.key: required field is missing"),
        (fields.list_at, {"a": 1}, "spec.key: must be a list, not an object"),
        (fields.mappings_at, [{}, 7], "spec.key[1]: must be an object, not a number"),
        (fields.text_at, True, "spec.key: must be a string, not a boolean"),
        (fields.count_at, -1, "spec.key: -1 is not a whole number of 0 or more"),
        (fields.flag_at, "yes", "spec.key: must be true or false, not a string"),
        (fields.amounts_at, {"cpu": "-1"}, 'spec.key.cpu: "-1" is negative'),
    ],
)
def test_a_strict_reader_names_the_field(read: Callable[..., object], value: object, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        read({"key": value}, "key", "spec")
    assert str(caught.value) == message
