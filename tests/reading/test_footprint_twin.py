"""Compare footprints of arbitrary pods with a naive model that plays a pod's start phase by phase, in fractions."""

# ruff: noqa: E501  # tables of fields

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.parts import footprint_of

Manifest = dict[str, Any]
SUFFIXES = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    "u": Fraction(1, 10**6),
    "k": Fraction(1000),
    "Ki": Fraction(1024),
    "Mi": Fraction(1024**2),
}
NAMES = ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi"]

quantities = st.builds(lambda n, s: f"{n}{s}", st.integers(0, 5000), st.sampled_from(sorted(SUFFIXES)))
amounts = st.dictionaries(st.sampled_from(NAMES), quantities, max_size=4)
containers = st.fixed_dictionaries(
    {"name": st.just("c")},
    optional={
        "resources": st.fixed_dictionaries({}, optional={"requests": amounts, "limits": amounts}),
        "restartPolicy": st.just("Always"),
    },
)
specs = st.fixed_dictionaries(
    {"containers": st.lists(containers, min_size=1, max_size=4)},
    optional={
        "initContainers": st.lists(containers, max_size=5),
        "overhead": st.dictionaries(st.sampled_from(["cpu", "memory"]), quantities),
    },
)


def value(text: str) -> Fraction:
    """Return a quantity as the server stores it: rounded up to a thousandth."""
    digits = text.rstrip("mukKiM")
    exact = int(digits) * SUFFIXES[text[len(digits) :]]
    return Fraction(ceil(exact * 1000), 1000)


def asked(container: Manifest, side: str) -> dict[str, Fraction]:
    """Return a container's requests or limits; limits stand in for missing requests."""
    resources = container.get("resources", {})
    given_ = dict(resources.get(side, {}))
    if side == "requests":
        given_ = {**resources.get("limits", {}), **given_}
    return {name: value(text) for name, text in given_.items()}


def peak(spec: Manifest, side: str, name: str) -> Fraction | None:
    """Return the largest amount of all start-up phases of a pod; None if no container names the resource."""
    phases: list[list[Manifest]] = []
    sidecars: list[Manifest] = []
    for init in spec.get("initContainers", []):
        phases.append([*sidecars, init])
        if init.get("restartPolicy") == "Always":
            sidecars.append(init)
    phases.append([*sidecars, *spec["containers"]])
    all_containers = [container for phase in phases for container in phase]
    if all(name not in asked(container, side) for container in all_containers):
        return None
    return max(sum((asked(c, side).get(name, Fraction(0)) for c in phase), Fraction(0)) for phase in phases)


def naive(spec: Manifest) -> Demand:
    """Compute the charge of a pod in the simplest way."""
    charge: dict[str, Fraction] = {"pods": Fraction(1), "count/pods": Fraction(1)}
    overhead = {name: value(text) for name, text in spec.get("overhead", {}).items()}
    for name in NAMES:
        request, limit = peak(spec, "requests", name), peak(spec, "limits", name)
        if request is not None or name in overhead:
            total = (request or Fraction(0)) + overhead.get(name, Fraction(0))
            charge[f"requests.{name}"] = total
            if "/" not in name:
                charge[name] = total
        if limit and name in {"cpu", "memory", "ephemeral-storage"}:
            charge[f"limits.{name}"] = limit + overhead.get(name, Fraction(0))
    all_containers = [*spec["containers"], *spec.get("initContainers", [])]
    lists = [asked(container, side) for container in all_containers for side in ("requests", "limits")]
    busy = any(values.get(name) for values in lists for name in ("cpu", "memory"))
    return Demand({name: int(amount * 10**9) for name, amount in charge.items()}, () if busy else ("BestEffort",))


@given(specs)
def test_a_pod_is_charged_for_its_largest_phase(spec: Manifest) -> None:
    """Containers, init containers, sidecars and overhead give exactly the model's amounts and scopes."""
    assert footprint({"apiVersion": "v1", "kind": "Pod", "spec": spec}) == naive(spec)


@given(specs, st.integers(0, 50), st.none() | st.integers(0, 50))
def test_a_job_is_estimated_at_its_pods_times_their_charge(
    spec: Manifest, parallelism: int, completions: int | None
) -> None:
    """The estimate is the number of pods that run at once, times the charge of one."""
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"parallelism": parallelism, "completions": completions, "template": {"spec": spec}},
    }
    number = parallelism if completions is None else min(parallelism, completions)
    expected = {name: amount * number for name, amount in naive(spec).amounts.items()}
    found = footprint_of(manifest)
    assert found.estimated
    assert found.demand == Demand(expected | {"count/jobs.batch": 10**9}, naive(spec).scopes)


FIELDS = st.sampled_from(
    ["containers", "initContainers", "resources", "requests", "limits", "cpu", "memory", "overhead", "affinity", "template",
     "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "spec", "replicas", "parallelism", "devices", "ports",
     "type", "storage", "jobTemplate", "volumeClaimTemplates", "metadata", "annotations", "restartPolicy"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=True) | st.text(max_size=4) | quantities,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=20,
)
kinds = st.sampled_from(
    [("v1", "Pod"), ("batch/v1", "Job"), ("batch/v1", "CronJob"), ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"),
     ("v1", "Service"), ("v1", "PersistentVolumeClaim"), ("resource.k8s.io/v1", "ResourceClaim"), ("x.io/v1", "X")]
)  # fmt: skip


@given(kinds, st.dictionaries(FIELDS, values, max_size=6))
def test_any_manifest_has_a_footprint_or_one_sentence(kind: tuple[str, str], spec: Manifest) -> None:
    """Any manifest gives a Demand or a FieldError whose message begins with a field."""
    manifest = {"apiVersion": kind[0], "kind": kind[1], "spec": spec}
    try:
        found = footprint_of(manifest)
    except FieldError as error:
        sentence = str(error)
    else:
        sentence = "spec: valid"
        assert all(amount > 0 for amount in found.demand.amounts.values())
    assert sentence.startswith("spec")
