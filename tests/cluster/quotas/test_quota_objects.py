"""Quota: ResourceQuota objects, valid and invalid, and their status"""

from __future__ import annotations

import pytest

from tests.cluster.objects import SUBDOMAIN_TEXT
from tests.cluster.of_version import in_words_of
from tests.cluster.quotas.quota_room import JSON, Room, pod, quota, selector
from tests.cluster.talking import MERGE

UNKNOWN = ("must be a standard resource type or fully qualified", "must be a standard resource for quota")
PART = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
NOT_FOR_IT = "unsupported scope applied to resource"
EXPRESSIONS = "scopeSelector.matchExpressions"

# The spec (its hard defaults to one pod), the field in error, the value that is shown, and what is wrong with it.
INVALID = [
    ({"hard": {"cpus": "1"}}, "hard[cpus]", '"cpus"', UNKNOWN),
    ({"hard": {"storage": "1"}}, "hard[storage]", '"storage"', UNKNOWN[1:]),
    ({"hard": {"pods": "1.5"}}, "hard[pods]", '"1500m"', ("must be an integer",)),
    ({"hard": {"pods": "0.1n"}}, "hard[pods]", '"1m"', ("must be an integer",)),
    ({"hard": {"count/pods": "1.5"}}, "hard[count/pods]", '"1500m"', ("must be an integer",)),
    ({"hard": {"pods": "-1"}}, "hard[pods]", '"-1"', ("must be greater than or equal to 0",)),
    ({"hard": {"cpu": "-0.5"}}, "hard[cpu]", '"-500m"', ("must be greater than or equal to 0",)),
    ({"hard": {"count/jobs.batch": "-1"}}, "hard[count/jobs.batch]", '"-1"', ("must be greater than or equal to 0",)),
    ({"hard": {"-x": "1"}}, "hard[-x]", '"-x"', (f"name part {PART}", UNKNOWN[1])),
    (
        {"hard": {"a/b/c": "1"}},
        "hard[a/b/c]",
        '"a/b/c"',
        (f"a valid label key {PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",),
    ),
    (
        {"hard": {f"e.com/{'a' * 64}": "1"}},
        f"hard[e.com/{'a' * 64}]",
        f'"e.com/{"a" * 64}"',
        ("name part must be no more than 63 bytes",),
    ),
    ({"scopes": ["Nope"]}, "scopes", '["Nope"]', ("unsupported scope",)),
    (
        {"scopes": ["Terminating", "NotTerminating"]},
        "scopes",
        '["Terminating","NotTerminating"]',
        ("conflicting scopes",),
    ),
    (
        {"scopes": ["BestEffort", "NotBestEffort"]},
        "scopes",
        '["BestEffort","NotBestEffort"]',
        ("conflicting scopes",),
    ),
    ({"hard": {"A/B": "1"}}, "hard[A/B]", '"A/B"', (f"prefix part {SUBDOMAIN_TEXT}",)),
    ({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}, "scopes", '["BestEffort"]', (NOT_FOR_IT,)),
    ({"hard": {"configmaps": "1"}, "scopes": ["Terminating"]}, "scopes", '["Terminating"]', (NOT_FOR_IT,)),
    (
        {"hard": {"services": "1", "secrets": "1"}, "scopes": ["NotBestEffort"]},
        "scopes",
        '["NotBestEffort"]',
        (NOT_FOR_IT, NOT_FOR_IT),
    ),
    (
        {"hard": {"requests.ephemeral-storage": "1"}, "scopes": ["Terminating"]},
        "scopes",
        '["Terminating"]',
        (NOT_FOR_IT,),
    ),
    ({"scopes": ["VolumeAttributesClass"]}, "scopes", '["VolumeAttributesClass"]', (NOT_FOR_IT,)),
    ({"hard": {"hugepages-2Mi": "1"}, "scopes": ["PriorityClass"]}, "scopes", '["PriorityClass"]', (NOT_FOR_IT,)),
    ({"scopeSelector": selector("Nope", "Exists")}, f"{EXPRESSIONS}.scopeName", '"Nope"', ("unsupported scope",)),
    ({"scopeSelector": selector("Terminating", "In", "a")}, f"{EXPRESSIONS}.operator", '"In"', (ONLY_EXISTS,)),
    (
        {"scopeSelector": selector("PriorityClass", "Exists", "a")},
        f"{EXPRESSIONS}.values",
        '["a"]',
        ("must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",),
    ),
    (
        {"scopeSelector": selector("PriorityClass", "Near", "a")},
        f"{EXPRESSIONS}.operator",
        '"Near"',
        ("not a valid selector operator",),
    ),
]


@pytest.mark.parametrize(("spec", "field", "value", "told"), INVALID)
async def test_an_invalid_quota_is_refused_with_field_and_reason(
    room: Room, spec: JSON, field: str, value: str, told: tuple[str, ...]
) -> None:
    """422, field by field, for unknown names, negative or fractional amounts, conflicting or unsuitable scopes."""
    reply = await room.api.post(
        room.path("resourcequotas"), {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}, **spec}}
    )
    problems = [f"Invalid value: {value}: {in_words_of(room.api.server, each)}" for each in told]
    lines = list(dict.fromkeys(f"spec.{field}: {problem}" for problem in problems))

    assert (reply.status, reply.json["reason"]) == (422, "Invalid"), reply.text
    listed = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    assert reply.json["message"] == f'ResourceQuota "q" is invalid: {listed}'
    assert reply.json["details"] == {
        "name": "q",
        "kind": "ResourceQuota",
        "causes": [{"reason": "FieldValueInvalid", "message": each, "field": f"spec.{field}"} for each in problems],
    }


async def test_a_selector_without_required_values_is_refused(room: Room) -> None:
    """`In` without values: a required field is missing."""
    reply = await room.api.post(
        room.path("resourcequotas"), quota("q", {"pods": "1"}, scopeSelector=selector("PriorityClass", "In"))
    )
    assert reply.status == 422
    assert reply.json["message"] == (
        'ResourceQuota "q" is invalid: spec.scopeSelector.matchExpressions.values: Required value: must be at least '
        "one value when `operator` is 'In' or 'NotIn' for scope selector"
    )


@pytest.mark.parametrize("amount", ["x", "", "1 Gi", "1KiB", True, "0x10", "1.2.3", {}, []])
async def test_a_malformed_amount_is_refused(room: Room, amount: object) -> None:
    """400 with the grammar of quantities."""
    reply = await room.api.post(room.path("resourcequotas"), quota("q", {"cpu": amount}))

    assert (reply.status, reply.json["reason"]) == (400, "BadRequest")
    assert reply.json["message"] == (
        'ResourceQuota in version "v1" cannot be handled as a ResourceQuota: quantities must match the regular '
        "expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


@pytest.mark.parametrize("amount", ["1e", "1ii", "1kM", "2Mm", "--1"])
async def test_an_amount_with_an_unknown_suffix_is_refused(room: Room, amount: str) -> None:
    """400 about the suffix."""
    reply = await room.api.post(room.path("resourcequotas"), quota("q", {"cpu": amount}))

    assert reply.status == 400
    assert reply.json["message"].endswith("cannot be handled as a ResourceQuota: unable to parse quantity's suffix")


ODD_BUT_FINE = [
    ({"cpu": None}, {"cpu": "0"}),
    ({"cpu": " 1 "}, {"cpu": "1"}),
    ({"pods": 1}, {"pods": "1"}),
    ({"cpu": 0.25}, {"cpu": "250m"}),
    ({"pods": "1e2"}, {"pods": "100"}),
    ({"cpu": "0.1n"}, {"cpu": "1m"}),
    ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}),
    ({"requests.nvidia.com/gpu": "1.5"}, {"requests.nvidia.com/gpu": "1500m"}),
    ({"limits.nvidia.com/gpu": "1"}, {"limits.nvidia.com/gpu": "1"}),
    ({"memory": "1.5Gi"}, {"memory": "1536Mi"}),
    ({"memory": "0"}, {"memory": "0"}),
    ({"memory": "0Gi"}, {"memory": "0"}),
]


@pytest.mark.parametrize(("given", "kept"), ODD_BUT_FINE)
async def test_a_quota_is_stored_with_canonical_amounts(room: Room, given: JSON, kept: JSON) -> None:
    """Any spelling that was sent is read back from `spec.hard` as a Quantity string."""
    made = await room.create("resourcequotas", quota("q", given))

    assert made["spec"]["hard"] == kept


async def test_a_new_quota_gets_its_status_from_the_controller(room: Room) -> None:
    """`status.hard` repeats the spec and `status.used` has the current counts; only then is the quota enforced."""
    await room.create("configmaps", {"metadata": {"name": "c"}})
    found = await room.quota("q", {"pods": "3", "requests.cpu": "1.5", "persistentvolumeclaims": "1"})

    assert found["status"] == {
        "hard": {"persistentvolumeclaims": "1", "pods": "3", "requests.cpu": "1500m"},
        "used": {"persistentvolumeclaims": "0", "pods": "0", "requests.cpu": "0"},
    }


async def test_a_create_ignores_the_status_of_a_quota(room: Room) -> None:
    """A quota never starts with counts that the client made up."""
    body = {**quota("q", {"pods": "3"}), "status": {"hard": {"pods": "9"}, "used": {"pods": "2"}}}
    made = await room.create("resourcequotas", body)

    assert made.get("status") in ({}, None)


async def test_a_raised_limit_applies_once_the_status_has_it(room: Room) -> None:
    """`status.hard` trails `spec.hard`; after that the pod fits."""
    await room.quota("q", {"pods": "0"})
    reply = await room.api.patch(room.path("resourcequotas", "q"), {"spec": {"hard": {"pods": "1"}}}, MERGE)
    assert reply.json["spec"] == {"hard": {"pods": "1"}}
    assert reply.json["status"]["hard"] == {"pods": "0"}

    await room.until_hard({"pods": "1"})
    await room.create("pods", pod("x"))


async def test_a_lowered_limit_keeps_existing_pods_and_refuses_more(room: Room) -> None:
    """No pod is deleted: `used` stays above the limit."""
    await room.quota("q", {"pods": "3"})
    for name in ("a", "b", "spare"):
        await room.create("pods", pod(name))
    await room.api.patch(room.path("resourcequotas", "q"), {"spec": {"hard": {"pods": "1"}}}, MERGE)
    await room.until_hard({"pods": "1"})
    await room.without_spare({"pods": "2"})

    assert await room.refused("pods", pod("x")) == (
        'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=1'
    )


async def test_a_resource_added_to_a_quota_is_counted(room: Room) -> None:
    """A new name in `spec.hard` appears in `status.used` with the current count; a removed one disappears."""
    await room.quota("q", {"pods": "3"})
    for name in ("a", "spare"):
        await room.create("pods", pod(name, {"cpu": "500m"}))
    change = {"spec": {"hard": {"pods": None, "requests.cpu": "1"}}}
    await room.api.patch(room.path("resourcequotas", "q"), change, MERGE)

    await room.until_hard({"requests.cpu": "1"})
    await room.without_spare({"requests.cpu": "500m"})


async def test_scopes_cannot_be_changed(room: Room) -> None:
    """A quota keeps the scopes that it was created with."""
    await room.quota("q", {"pods": "3"})
    reply = await room.api.patch(room.path("resourcequotas", "q"), {"spec": {"scopes": ["BestEffort"]}}, MERGE)

    assert reply.status == 422
    assert reply.json["message"] == (
        'ResourceQuota "q" is invalid: spec.scopes: Invalid value: ["BestEffort"]: field is immutable'
    )


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"hard": {"pods": "-1"}}, 'status.hard[pods]: Invalid value: "-1": must be greater than or equal to 0'),
        ({"used": {"pods": "1.5"}}, 'status.used[pods]: Invalid value: "1500m": must be an integer'),
        (
            {"used": {"storage": "1"}},
            'status.used[storage]: Invalid value: "storage": must be a standard resource for quota',
        ),
    ],
)
async def test_an_invalid_status_is_refused(room: Room, status: JSON, told: str) -> None:
    """The status of a quota is validated like its spec."""
    await room.quota("q", {"pods": "3"})
    reply = await room.api.patch(room.path("resourcequotas", "q", "status"), {"status": status}, MERGE)

    assert reply.status == 422
    assert reply.json["message"] == f'ResourceQuota "q" is invalid: {told}'


async def test_a_deleted_quota_has_no_effect(room: Room) -> None:
    """Once a quota is deleted, its namespace is unlimited."""
    await room.quota("q", {"pods": "0"})
    await room.refused("pods", pod("x"))
    await room.delete("resourcequotas", "q")

    await room.until_created("pods", pod("x"))


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "limits.nvidia.com/gpu", "example.com/pods", "count/unknowns"])
async def test_a_name_without_charges_has_no_effect(room: Room, name: str) -> None:
    """Extended resources count only as `requests.NAME`: other spellings are accepted, but without effect."""
    await room.quota("q", {name: "0", "requests.nvidia.com/gpu": "1"})
    await room.create("pods", pod("x", limits={"nvidia.com/gpu": "1"}))

    assert await room.used() == {"requests.nvidia.com/gpu": "1"}


async def test_a_count_of_an_unknown_resource_has_no_effect(room: Room) -> None:
    """An unknown `count/` name is left out of `status.used`; the rest of the quota works."""
    await room.quota("q", {"pods": "1", "count/unknowns.example.com": "0"})

    assert await room.used() == {"pods": "0"}
    await room.create("pods", pod("x"))
    assert await room.used() == {"pods": "1"}
