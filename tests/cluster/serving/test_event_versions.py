"""Events of events.k8s.io/v1: the same objects as in v1, with other field names."""

from __future__ import annotations

from typing import Any

from tests.cluster.talking import MERGE, Api

JSON = dict[str, Any]
WHEN = "2026-01-01T00:00:00.000000Z"


def event(namespace: str, **fields: Any) -> JSON:
    """An Event; fields that are None are left out."""
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "x"},
        "eventTime": WHEN,
        "reportingController": "example.com/it",
        "reportingInstance": "it-0",
        "action": "Trying",
        "reason": "Tried",
        "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "namespace": namespace},
        "note": "it was tried",
        "type": "Normal",
        **fields,
    }
    return {name: value for name, value in body.items() if value is not None}


def group(namespace: str, name: str = "") -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events" + (f"/{name}" if name else "")


def core(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/events" + (f"/{name}" if name else "")


async def test_an_event_can_be_read_in_both_versions(api: Api, namespace: str) -> None:
    """An Event created in the group is read in v1 with the names of v1, and the other way round."""
    made = await api.post(group(namespace), event(namespace))
    assert made.status == 201, made.text
    assert made.json["apiVersion"] == "events.k8s.io/v1"
    found = (await api.get(core(namespace, "x"))).json
    assert (found["apiVersion"], found["message"], found["reportingComponent"]) == (
        "v1", "it was tried", "example.com/it"
    )  # fmt: skip
    assert found["involvedObject"]["name"] == "c"
    assert "note" not in found

    body = {
        "metadata": {"name": "y"},
        "message": "hello",
        "involvedObject": {"kind": "ConfigMap", "name": "c", "namespace": namespace},
        "count": 3,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "old"},
        "type": "Normal",
    }
    made = await api.post(core(namespace), body)
    assert made.status == 201, made.text
    found = (await api.get(group(namespace, "y"))).json
    assert (found["note"], found["deprecatedCount"], found["deprecatedSource"]) == ("hello", 3, {"component": "old"})
    listed = (await api.get(group(namespace))).json
    assert (listed["kind"], listed["apiVersion"]) == ("EventList", "events.k8s.io/v1")
    assert sorted(each["note"] for each in listed["items"]) == ["hello", "it was tried"]


async def test_events_are_selected_by_what_they_regard(api: Api, namespace: str) -> None:
    """By the names of fields that the version has."""
    made = await api.post(group(namespace), event(namespace))
    assert made.status == 201, made.text
    for path, field in ((group(namespace), "regarding"), (core(namespace), "involvedObject")):
        for kind, count in (("ConfigMap", 1), ("Pod", 0)):
            found = await api.get(path, params={"fieldSelector": f"{field}.kind={kind},{field}.name=c"})
            assert found.status == 200, found.text
            assert len(found.json["items"]) == count


async def test_the_series_of_an_event_can_be_patched(api: Api, namespace: str) -> None:
    """Both versions show it; a watch of the group shows the group's field names."""
    await api.post(group(namespace), event(namespace))
    version = (await api.get(group(namespace))).json["metadata"]["resourceVersion"]
    async with api.watch(group(namespace), {"resourceVersion": version}) as seen:
        counted = {"count": 2, "lastObservedTime": WHEN}
        answer = await api.patch(group(namespace, "x"), {"series": counted}, MERGE)
        assert (answer.status, answer.json["series"], answer.json["note"]) == (200, counted, "it was tried")
        changed = await anext(seen)
    assert (changed["type"], changed["object"]["series"], changed["object"]["note"]) == (
        "MODIFIED", counted, "it was tried"
    )  # fmt: skip
    assert (await api.get(core(namespace, "x"))).json["series"] == counted
    assert (await api.delete(group(namespace, "x"))).status == 200
    assert (await api.get(core(namespace, "x"))).status == 404
