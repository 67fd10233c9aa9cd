"""A hypothesis strategy for pods that an API server accepts, with any mix of charged fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from backoff_ctrl.engine.facts.quantities import NANO, format_quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON = dict[str, Any]

_WRITTEN: Final = {
    "cpu": ("", "m", "u", "n", "k", "e0", "e-3"),
    "memory": ("", "m", "k", "M", "Ki", "Mi", "Gi", "e3"),
    "ephemeral-storage": ("", "k", "M", "Mi", "Gi", "e6"),
}
_DEVICES: Final = ("nvidia.com/gpu", "huawei.com/Ascend910", "deviceclass.resource.kubernetes.io/gpu")
_PAGES: Final = {"hugepages-2Mi": 2, "hugepages-1Gi": 1024}
_OVERHEAD: Final = {"cpu": "250m", "memory": "120Mi"}


_digits = st.integers(0, 3000).map(str) | st.builds("{}.{}".format, st.integers(0, 99), st.integers(0, 999))
_quantities = {name: st.builds("{}{}".format, _digits, st.sampled_from(_WRITTEN[name])) for name in _WRITTEN}
_pairs = {name: st.tuples(quantity, quantity) for name, quantity in _quantities.items()}
_plain = st.builds("{}{}".format, st.integers(0, 3000), st.sampled_from(["", "m", "k"]))
_plain_pairs = {name: st.tuples(_plain, _plain) for name in _WRITTEN}
_sides = st.sampled_from(["requests", "limits", "both"])
_measured = st.lists(st.sampled_from(sorted(_WRITTEN)), unique=True)
_devices = st.lists(st.sampled_from(_DEVICES), unique=True, max_size=2)
_pages = st.lists(st.sampled_from(sorted(_PAGES)), unique=True, max_size=2)
_overcommitted = st.lists(st.sampled_from(["cpu", "memory"]), unique=True)
_few = st.integers(0, 8)


@st.composite
def _resources(draw: st.DrawFn, pairs: Mapping[str, st.SearchStrategy[tuple[str, str]]]) -> JSON:
    """Draw one container's resources: each resource has a request, a limit, both (request <= limit) or neither."""
    found: JSON = {"requests": {}, "limits": {}}
    for name in draw(_measured):
        low, high = sorted(draw(pairs[name]), key=_stored)
        sides = draw(_sides)
        if sides != "limits":
            found["requests"][name] = low
        if sides != "requests":
            found["limits"][name] = high
    for name in draw(_devices):
        found["limits"][name] = draw(_few)
    if {"cpu", "memory"} & {*found["requests"], *found["limits"]}:  # huge pages require cpu or memory
        for name in draw(_pages):
            found["limits"][name] = f"{_PAGES[name] * (1 + draw(_few))}Mi"
    return {side: amounts for side, amounts in found.items() if amounts}


_several = st.lists(_resources(_pairs), max_size=3)
_several_plain = st.lists(_resources(_plain_pairs), max_size=3)


@st.composite
def _pod_wide(draw: st.DrawFn, containers: list[JSON]) -> JSON:
    """Draw pod-level resources that cover all containers; otherwise the server would reject the pod."""
    found: JSON = {"requests": {}, "limits": {}}
    for name in draw(_overcommitted):
        least = sum(_stored(amounts[name]) for amounts in _all_amounts(containers) if name in amounts)
        sides = draw(_sides)
        if sides != "limits":
            found["requests"][name] = format_quantity(least + draw(_few) * NANO)
        if sides != "requests":
            found["limits"][name] = format_quantity(least + (8 + draw(_few)) * NANO)
    if found["requests"] or found["limits"]:
        for name in draw(_pages):
            least = sum(_stored(amounts[name]) for amounts in _all_amounts(containers) if name in amounts)
            found["limits"][name] = f"{least // NANO // 2**20 + _PAGES[name] * (1 + draw(_few))}Mi"
    return {side: amounts for side, amounts in found.items() if amounts}


@st.composite
def valid_pods(draw: st.DrawFn) -> JSON:
    """Draw a pod without a name. It may refer to the classes in ``tests/data/charged/cluster/classes.yaml``."""
    # The server sums the containers' amounts before it rounds them. With pod-level resources, it would then reject its
    # own sum of amounts finer than a thousandth.
    pod_wide = draw(st.booleans())
    several = _several_plain if pod_wide else _several
    ordinary = [_container(f"a{n}", resources) for n, resources in enumerate(draw(several) or [{}])]
    starting = [_container(f"i{n}", resources) for n, resources in enumerate(draw(several))]
    for container in starting:
        if draw(st.booleans()):
            container["restartPolicy"] = "Always"
    spec: JSON = {"containers": ordinary}
    if starting:
        spec["initContainers"] = starting
    if pod_wide:
        spec["resources"] = draw(_pod_wide([*ordinary, *starting]))
    if draw(st.booleans()):
        spec |= {"runtimeClassName": "heavy", "overhead": _OVERHEAD}
    if draw(st.booleans()):
        spec["activeDeadlineSeconds"] = draw(st.integers(1, 99))
    if draw(st.booleans()):
        spec["priorityClassName"] = draw(st.sampled_from(["charged-high", "charged-low"]))
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}


def _container(name: str, resources: JSON) -> JSON:
    return {"name": name, "image": "i"} | ({"resources": resources} if resources else {})


def _all_amounts(containers: list[JSON]) -> list[JSON]:
    return [amounts for container in containers for amounts in container.get("resources", {}).values()]


def _stored(text: str) -> int:
    """Return a quantity as the server stores it, rounded up to a thousandth, in nano-units."""
    return -(-parse_quantity(text) // 10**6) * 10**6
