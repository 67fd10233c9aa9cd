"""What is said of a wrong value has no words of Python, whichever model of settings or tasks has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from backoff_ctrl.k8s.kube.operators.operator_config import OperatorConfig
from backoff_ctrl.k8s.kube.operators.wrong_values import duration, shown, told
from backoff_ctrl.k8s.tasks.model import Task
from backoff_ctrl.k8s.tasks.plugins.config import PlatformSettings
from backoff_ctrl.k8s.tasks.plugins.sleep import Sleep
from backoff_ctrl.k8s.tasks.services.connector.settings import ConnectorSettings
from backoff_ctrl.k8s.tasks.services.rest.service_config import ServiceConfig
from backoff_ctrl.k8s.tasks.services.webapi.settings import WebApiSection, sentence

MODELS = (PlatformSettings, WebApiSection, ConnectorSettings, ServiceConfig, OperatorConfig, Sleep, Task)
PYTHON = re.compile(r"datetime|timedelta|NoneType|<class|dictionary|instance of|\bNone\b|\bTrue\b|\bFalse\b|pydantic")
WRONG: tuple[Any, ...] = (None, True, 0, -1, 10**30, 2.5, float("nan"), "", "x", "1ms", "9999h", [], [{}], {}, {"x": 1})


def models(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """Yield a model and those within it."""
    if model not in seen:
        seen.add(model)
        yield model
        for field in model.model_fields.values():
            yield from (each for inner in inner_of(field.annotation) for each in models(inner, seen))


def inner_of(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from inner_of(each)


ALL = sorted({each for model in MODELS for each in models(model, set())}, key=lambda each: each.__name__)


@pytest.mark.parametrize("model", ALL, ids=lambda each: each.__name__)
def test_a_wrong_value_is_named_in_words(model: type[BaseModel]) -> None:
    """Each field gets each value; whatever is refused says so in words of YAML, also where the value is repeated."""
    for name, field in model.model_fields.items():
        for value in WRONG:
            try:
                model.model_validate({field.alias or name: value})
            except ValidationError as error:
                for each in error.errors():
                    for said in (told(each), sentence("jobs", each, model)):
                        assert not PYTHON.search(said), (model.__name__, name, value, said)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("resyncInterval", "1s", "'1s' is not possible: input should be greater than or equal to 5s"),
        ("resyncInterval", "2h", "is not possible: input should be less than or equal to 1h"),
        ("workers", True, "true is not possible: input should be"),
        ("size", None, "null is not possible: input should be a whole number"),
    ],
)
def test_a_limit_is_written_as_people_write_it(key: str, value: Any, said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        WebApiSection.model_validate({"caching": {key: value}}, strict=isinstance(value, bool))
    assert said in sentence("jobs", raised.value.errors()[0], WebApiSection)


@pytest.mark.parametrize(
    ("length", "text"),
    [(0, "0s"), (5, "5s"), (60, "1m"), (90, "1m30s"), (3600, "1h"), (5400, "1h30m"), (3601, "1h1s"), (36000, "10h")],
)
def test_a_duration_is_as_short_as_it_may_be(length: int, text: str) -> None:
    assert duration(timedelta(seconds=length)) == text
    assert shown(timedelta(seconds=length)) == text
