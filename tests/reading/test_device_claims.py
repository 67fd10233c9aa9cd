"""The devices of ResourceClaims: which objects are asked for, and what parts are charged with them."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.kube.charges.device_claims import (
    UNKNOWN,
    Devices,
    claim_charge,
    drive,
    footprint_with_devices,
    reading,
    with_devices,
)
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.parts import Part, footprint_of, parts_of

JSON = dict[str, Any]
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses?limit=500"


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


def answered(manifest: JSON, answers: dict[str, JSON | int]) -> tuple[Devices, list[str]]:
    """Answer the questions about a manifest; a number is the status of a refusal. Return what was learned and asked."""
    asked: list[str] = []

    def ask(path: str) -> tuple[int, JSON]:
        asked.append(path)
        found = answers.get(path, 404)
        return (found, {}) if isinstance(found, int) else (200, found)

    return drive(reading("team", parts_of(manifest)), ask), asked


def a_class(name: str, extended: str | None = None) -> JSON:
    return {"metadata": {"name": name}, "spec": {"extendedResourceName": extended} if extended else {}}


def test_each_template_is_asked_for_once_and_the_classes_are_listed() -> None:
    answers: dict[str, JSON | int] = {
        f"{TEMPLATES}/two": {"spec": {"spec": spec_of(("gpu", 2), ("fast", 1))}},
        CLASSES: {"items": [a_class("fast", "example.com/fast"), a_class("gpu")]},
    }
    known, asked = answered(job("two", "two"), answers)
    assert asked == [f"{TEMPLATES}/two", CLASSES]
    assert (known.classes, set(known.templates)) == ({"fast": "example.com/fast"}, {"two"})


def test_classes_are_listed_page_by_page() -> None:
    """The token of the next page is quoted; one that comes again ends the list as unread."""
    first = {"items": [a_class("a", "example.com/a")], "metadata": {"continue": "x&y"}}
    answers: dict[str, JSON | int] = {CLASSES: first, f"{CLASSES}&continue=x%26y": {"items": [a_class("b", "o.k/b")]}}
    known, _ = answered(job("two"), answers)
    assert known.classes == {"a": "example.com/a", "b": "o.k/b"}
    known, _ = answered(job("two"), {CLASSES: first, f"{CLASSES}&continue=x%26y": first})
    assert known.classes is None


def test_classes_that_may_not_be_listed_are_unknown_and_those_of_a_server_without_them_are_none() -> None:
    assert answered(job("two"), {CLASSES: 403})[0].classes is None
    assert answered(job("two"), {CLASSES: {"kind": "DeviceClass"}})[0].classes is None
    assert answered(job("two"), {})[0].classes == {}


def test_what_is_asked_of_an_older_server_is_found_there() -> None:
    old, classes = (each.replace("/v1/", "/v1beta1/") for each in (f"{TEMPLATES}/two", CLASSES))
    known, asked = answered(job("two"), {old: {"spec": {"spec": spec_of(("gpu", 2))}}, classes: {"items": None}})
    versions = ("v1", "v1beta2", "v1beta1")
    assert asked == [each.replace("/v1/", f"/{v}/") for each in (f"{TEMPLATES}/two", CLASSES) for v in versions]
    assert known == Devices({"two": spec_of(("gpu", 2))}, {})


def test_a_claim_of_a_template_is_charged_as_a_claim_of_that_spec() -> None:
    """Under the name of its extended resource as well; as many as there are pods."""
    known = Devices({"two": spec_of(("gpu", 2))}, {"gpu": "example.com/gpu"})
    (part,) = claims_of(with_devices(parts_of(job("two")), known))
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": spec_of(("gpu", 2))}
    assert part.count == 2
    assert part.demand.amounts == {**footprint(claim).amounts, "requests.example.com/gpu": 2 * NANO}


def test_a_whole_footprint_has_the_devices_of_all_its_claims() -> None:
    """Of those that it makes, and its own; what is suspended is in its part alone."""
    known = Devices({"two": spec_of(("gpu", 2))}, {"gpu": "example.com/gpu"})
    name = "requests.example.com/gpu"
    running, waiting = job("two"), job("two")
    waiting["spec"]["suspend"] = True
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": spec_of(("gpu", 3))}
    whole, suspended, own = (footprint_with_devices(footprint_of(each), known) for each in (running, waiting, claim))
    assert whole.demand.amounts[name] == 4 * NANO
    assert own.demand.amounts[name] == 3 * NANO
    assert name not in suspended.demand.amounts
    assert claims_of(suspended.parts)[0].demand.amounts[name] == 2 * NANO


def test_a_template_that_can_t_be_read_leaves_the_number_of_its_claims() -> None:
    """Nor does a name that no object can have lead elsewhere, or a spec that is malformed stop anything."""
    known, asked = answered(job("../../pods"), {})
    assert asked == [CLASSES.replace("/v1/", f"/{version}/") for version in ("v1", "v1beta2", "v1beta1")]
    assert known.templates == {}
    parts = parts_of(job("two"))
    assert with_devices(parts, UNKNOWN) == parts
    assert claim_charge({"devices": {"requests": [{"exactly": {}}]}}, UNKNOWN) == claims_of(parts)[0].demand
