"""The devices of ResourceClaims: which objects are asked for, and what parts are charged with them."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.engine.quantities import NANO
from backoff_ctrl.k8s.charges.device_claims import UNKNOWN, Devices, claim_charge, reading, with_devices
from backoff_ctrl.k8s.charges.footprint import footprint
from backoff_ctrl.k8s.charges.parts import Part, parts_of

JSON = dict[str, Any]
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


def job(*templates: str, pods: int = 2) -> JSON:
    """A Job whose pods have a claim of each of these templates."""
    claims = [{"name": f"c{n}", "resourceClaimTemplateName": name} for n, name in enumerate(templates)]
    spec = {"containers": [{"name": "main"}], "resourceClaims": claims}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": pods, "template": {"spec": spec}}}


def claims_of(parts: tuple[Part, ...]) -> list[Part]:
    return [part for part in parts if part.kind == "ResourceClaim"]


def spec_of(*requests: tuple[str, int]) -> JSON:
    """The spec of a claim, which asks for so many devices of each class."""
    exactly = [{"name": name, "exactly": {"deviceClassName": name, "count": count}} for name, count in requests]
    return {"devices": {"requests": exactly}}


def answered(manifest: JSON, answers: dict[str, JSON]) -> tuple[Devices, list[str]]:
    """Drive the questions about a manifest; return what was learned, and what was asked."""
    questions = reading("team", parts_of(manifest))
    found: JSON | None = None
    asked: list[str] = []
    while True:
        try:
            path = questions.send(found)
        except StopIteration as end:
            return end.value, asked
        asked.append(path)
        found = answers.get(path)


def test_each_template_and_each_class_is_asked_for_once() -> None:
    answers: dict[str, JSON] = {
        f"{TEMPLATES}/two": {"spec": {"spec": spec_of(("gpu", 2), ("fast", 1))}},
        f"{CLASSES}/fast": {"spec": {"extendedResourceName": "example.com/fast"}},
        f"{CLASSES}/gpu": {"spec": {}},
    }
    known, asked = answered(job("two", "two"), answers)
    assert asked == [f"{TEMPLATES}/two", f"{CLASSES}/gpu", f"{CLASSES}/fast"]
    assert (known.extended, known.unread) == ({"fast": "example.com/fast"}, frozenset())


def test_what_is_asked_of_an_older_server_is_found_there() -> None:
    old = f"{TEMPLATES}/two".replace("/v1/", "/v1beta1/")
    known, asked = answered(job("two"), {old: {"spec": {"spec": spec_of(("gpu", 2))}}})
    assert asked[:3] == [f"{TEMPLATES}/two".replace("/v1/", f"/{version}/") for version in ("v1", "v1beta2", "v1beta1")]
    assert known.templates == {"two": spec_of(("gpu", 2))}


def test_a_claim_of_a_template_is_charged_as_a_claim_of_that_spec() -> None:
    """Under the name of its extended resource as well; as many as there are pods."""
    known = Devices({"two": spec_of(("gpu", 2))}, {"gpu": "example.com/gpu"})
    (part,) = claims_of(with_devices(parts_of(job("two")), known))
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": spec_of(("gpu", 2))}
    assert part.count == 2
    assert part.demand.amounts == {**footprint(claim).amounts, "requests.example.com/gpu": 2 * NANO}


def test_a_template_that_can_t_be_read_leaves_the_number_of_its_claims() -> None:
    """Nor does a name that no object can have lead elsewhere, or a spec that is malformed stop anything."""
    known, asked = answered(job("../../pods"), {})
    assert asked == []
    assert known.unread == {"../../pods"}
    parts = parts_of(job("two"))
    assert with_devices(parts, UNKNOWN) == parts
    assert claim_charge({"devices": {"requests": [{"exactly": {}}]}}, UNKNOWN) == claims_of(parts)[0].demand
