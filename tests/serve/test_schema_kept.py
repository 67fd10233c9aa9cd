"""Whatever is asked of ``serve`` and of a gate's own status: no 5xx, and no answer that its schema does not have.

schemathesis draws requests from the OpenAPI document, good ones and bad ones. A gate serves no such document, so it is
made here of the shapes of its answers.
"""

from __future__ import annotations

import copy
import json
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from backoff_ctrl.api.status.shapes import MANIFEST
from backoff_ctrl.k8s.status.endpoints import URLS
from backoff_ctrl.k8s.status.shapes import Page, PolicyDocument, Problem, RequestHistory
from tests.status.asking import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.serve.conftest import Served

pytestmark = pytest.mark.long
EXAMPLES = 25
JSON_TYPE, PROBLEM = "application/json", "application/problem+json"
DRAWN = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
ANY_TEXT = ("/v1/requests/{id}", "/v1/tasks/{namespace}/{name}", "/v1/tasks/{namespace}/{name}/abort")
"""Where every text is an id or a name: there is no wrong one to draw."""
NAMES = {"namespace": ["team", "other", "nowhere"], "quota": ["q"], "resource": ["pods"], "limit": ["1", "2"]}
"""Values that are there: drawn ones hardly ever are."""


def described(document: dict[str, Any]) -> Any:
    """Read an OpenAPI document."""
    return schemathesis.openapi.from_dict(document)


def asked(schema: Any, url: str) -> dict[tuple[str, str], set[int]]:
    """Send drawn requests to each operation, and check the answers; return which statuses there were.

    Good data may still be refused: a cursor is opaque, and a manifest has rules of its own. Streams never end.
    """
    seen: dict[tuple[str, str], set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == "/v1/decisions":
            continue
        seen[operation.path, "good"] = sent(operation, url, GenerationMode.POSITIVE)
        may_be_wrong = any(operation.iter_parameters()) or operation.body
        if may_be_wrong and operation.path not in ANY_TEXT:
            seen[operation.path, "bad"] = sent(operation, url, GenerationMode.NEGATIVE)
    return seen


def sent(operation: Any, url: str, mode: GenerationMode) -> set[int]:
    """Send drawn requests to one operation, and check the answers; return which statuses there were."""
    statuses: set[int] = set()

    @DRAWN
    @given(operation.as_strategy(generation_mode=mode), st.data())
    def send(case: Any, data: Any) -> None:
        if mode is GenerationMode.POSITIVE:
            for name in sorted(set(case.query or {}) & NAMES.keys()):
                case.query[name] = data.draw(st.sampled_from([*NAMES[name], case.query[name]]))
            case.query.pop("after", None)
        answer = case.call(base_url=url)
        statuses.add(answer.status_code)
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    send()
    return statuses


def test_serve_answers_as_it_says(served: Served) -> None:
    """With two gates behind it."""
    seen = asked(described(ask(served.url, "/openapi.json").json), served.url)
    for path in ("ceilings", "namespaces", "waiting", "gates", "overload", "policy", "holders"):
        assert 200 in seen[f"/v1/{path}", "good"], path
    assert {code for codes in seen.values() for code in codes} <= {200, 400, 403, 404, 413, 415, 422}


def test_a_gate_answers_as_its_shapes_say(served: Served) -> None:
    """The small server, by a document made of the shapes."""
    seen = asked(described(of_shapes()), served.gates[0].url)
    for path in ("ceilings", "namespaces", "waiting", "gates", "overload", "policy"):
        assert 200 in seen[f"/v1/{path}", "good"], path
    assert served.gates[0].gate.ledger.counts.failed_open == 0


def of_shapes() -> dict[str, Any]:
    """The OpenAPI of a gate's own status."""
    schemas: dict[str, Any] = {}

    def of(shape: Any) -> dict[str, Any]:
        made = TypeAdapter(shape).json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
        schemas.update(made.pop("$defs", {}))
        return made

    texts = {"type": "string", "maxLength": 512}
    whole = {"type": "integer", "minimum": 1, "maximum": 1000}
    pages = {"limit": whole, "after": texts}
    queries: dict[str, dict[str, Any]] = {
        "/v1/ceilings": {"namespace": texts, "quota": texts, "resource": texts, **pages},
        "/v1/waiting": {"namespace": texts, **pages},
        "/v1/namespaces": pages,
        "/v1/explain": {"namespace": texts},
    }
    problems = {code: {"description": "", "content": {PROBLEM: {"schema": of(Problem)}}} for code in ("4XX", "5XX")}
    paths: dict[str, Any] = {}
    for path, shape in URLS.items():
        if path in {"/v1/decisions", "/v1/actions/{action}"}:
            continue
        alone = shape in {RequestHistory, PolicyDocument} or path == "/v1/explain"
        assert is_dataclass(shape)
        answer = {"schema": of(shape if alone else Page[shape])}  # type: ignore[valid-type]
        operation: dict[str, Any] = {
            "parameters": [{"name": n, "in": "query", "schema": each} for n, each in queries.get(path, {}).items()],
            "responses": {"200": {"description": "", "content": {JSON_TYPE: answer}}, **problems},
        }
        if "{id}" in path:
            operation["parameters"].append({"name": "id", "in": "path", "required": True, "schema": texts})
        if path == "/v1/explain":
            operation["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": {"type": "object"}}}}
        paths[path] = {"post" if path == "/v1/explain" else "get": operation}
    return {"openapi": "3.1.0", "info": {"title": "gate", "version": "1"}, "paths": paths,
            "components": {"schemas": schemas}}  # fmt: skip


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a manifest."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*path, key))


@settings(DRAWN, max_examples=150)
@given(data=st.data())
def test_a_broken_manifest_is_a_problem_that_points_to_the_field(served: Served, data: Any) -> None:
    """One field of a good manifest becomes anything: it is explained, or a problem with a pointer into the body."""
    place = data.draw(st.sampled_from(list(places(MANIFEST))))
    manifest: Any = copy.deepcopy(MANIFEST)
    parent = manifest
    for step in place[:-1]:
        parent = parent[step]
    parent[place[-1]] = data.draw(VALUES)
    body = json.dumps(manifest).encode()
    answers = [
        ask(url, "/v1/explain?namespace=team", method="POST", body=body, Content_Type=JSON_TYPE)
        for url in (served.url, served.gates[0].url)
    ]
    assert answers[0].status == answers[1].status
    for answer in answers:
        assert answer.status in {200, 400, 422}, answer
        if answer.status != 200:
            (pointed,) = answer.json["errors"]
            assert pointed["pointer"].startswith(("#/body", "#/query/namespace"))
