"""``explain`` agrees with what then happens: manifests at random, in namespaces at random, on either server.

``BACKOFF_TEST_EXPLAINED=500`` tries so many manifests instead of a few dozen.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from random import Random
from typing import Any, Final

import pytest

from backoff_ctrl.engine.facts.quantities import format_quantity, parse_quantity
from backoff_ctrl.k8s.kube.answers.rejections import Lane, read_rejection
from backoff_ctrl.k8s.kube.charges.admission_rules import items_of
from backoff_ctrl.k8s.status.explaining import asking_listed
from backoff_ctrl.k8s.status.explaining import explain as explained
from backoff_ctrl.k8s.status.shapes import Blocker, Explained, ExplainedPart
from tests.cluster.quotas.drawn_worlds import (
    MARK,
    draw_job,
    draw_limit_range,
    draw_manifest,
    draw_pod_spec,
    draw_quotas,
)
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import Api, Reply
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long
JSON = dict[str, Any]
MANIFESTS: Final = int(os.environ.get("BACKOFF_TEST_EXPLAINED", "60"))
OF_ONE_WORLD: Final = 9
SEED: Final = 20_261_122


@pytest.mark.timeout(900)
async def test_explain_says_what_the_server_does(api: Api) -> None:
    """Dry runs of creates, and for Jobs the real creates of their pods."""
    random = Random(SEED)
    seen: dict[str, int] = {}
    for world in range(-(-MANIFESTS // (OF_ONE_WORLD + 1))):
        room = await new_room(api, random)
        for number in range(OF_ONE_WORLD):
            resource, manifest = draw_manifest(random, f"x{number}")
            found = await explain(room, manifest)
            reply = await room.api.post(room.path(resource), manifest, params={"dryRun": "All"})
            told = f"world {world}: {manifest}\n{found}\n{reply.status} {reply.text}"
            agrees(found.parts[0], reply, told)
            seen[found.verdict] = seen.get(found.verdict, 0) + 1
        job = draw_job(random, "job")
        pods = (await explain(room, job)).parts[1]
        replies = await make_pods(room, job)
        agrees(pods, replies[-1], f"world {world}: {job}\n{pods}\n{replies[-1].text}", last_of=len(replies))
        seen[f"pods {pods.verdict}"] = seen.get(f"pods {pods.verdict}", 0) + 1
    print("explained:", dict(sorted(seen.items())))  # noqa: T201 - figures for who asks with -s
    assert {"now", "wait", "never", "refused"} <= seen.keys()


async def new_room(api: Api, random: Random) -> Room:
    """A namespace with a LimitRange or none, quotas, and pods that use a part of them."""
    name = f"explained-{secrets.token_hex(5)}"
    assert (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
    room = Room(api, name)
    limits = draw_limit_range(random)
    if limits is not None:
        await room.create("limitranges", limits)
        await knows_limit_range(room)
    for number, (hard, spec) in enumerate(draw_quotas(random)):
        await room.quota(f"q{number}", hard, **spec)
    for number in range(random.randint(0, 4)):
        await api.post(room.path("pods"), pod(f"used-{number}", spec=draw_pod_spec(random)))  # it may be refused
    await room.admission_is_current()
    return room


async def knows_limit_range(room: Room) -> None:
    """Wait until admission fills in the defaults, or refuses by the LimitRange."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + PATIENCE
    while True:
        reply = await room.api.post(room.path("pods"), pod("mark"), params={"dryRun": "All"})
        resources = reply.json["spec"]["containers"][0]["resources"] if reply.status == 201 else None
        if reply.status == 403 or (resources and MARK.keys() <= resources.get("requests", {}).keys()):
            return
        assert clock() < deadline, reply.text
        await asyncio.sleep(0.02)


async def explain(room: Room, manifest: JSON) -> Explained:
    quotas = (await room.api.get(room.path("resourcequotas"))).json["items"]
    ranges = (await room.api.get(room.path("limitranges"))).json["items"]
    ask, unreadable = asking_listed(room.namespace, quotas)
    assert not unreadable
    return explained(manifest, ask, items_of(ranges), 0.0)[0]


async def make_pods(room: Room, job: JSON) -> list[Reply]:
    """Create the pods of a Job as its controller would: until one is refused, or all are there."""
    replies = []
    for number in range(job["spec"]["parallelism"]):
        body = {"metadata": {"name": f"of-job-{number}"}, "spec": job["spec"]["template"]["spec"]}
        replies.append(await room.api.post(room.path("pods"), body))
        if replies[-1].status != 201:
            break
    return replies


def agrees(part: ExplainedPart, reply: Reply, told: str, last_of: int = 1) -> None:
    """Compare a verdict with an answer, and what is in the way with what the server names."""
    if reply.status == 201:
        assert part.verdict == "now", told
        return
    read = read_rejection(reply.status, reply.headers, reply.text.encode())
    if read.lane is not Lane.QUOTA:
        assert (part.verdict, reply.status in (403, 422)) == ("refused", True), told
        assert part.why, told
        return
    assert part.verdict in ("wait", "never"), told
    named = {(each.quota, each.resource): each for each in part.blockers}
    for resource, asked in read.requested.items():
        blocker = named.get((read.quota, resource))
        assert blocker is not None, told
        assert blocker.limited == in_the_same_form(blocker, read.limited[resource]), told
        if last_of == 1 and part.part == "create":
            assert parse_quantity(blocker.asked) == asked, told
            assert parse_quantity(blocker.left) == max(0, read.limited[resource] - read.used[resource]), told
    if read.never_fits:
        assert part.verdict == "never", told
    if part.verdict == "never":  # perhaps by another quota than the one that the server names
        assert any(parse_quantity(each.asked) > parse_quantity(each.limited) > 0 for each in part.blockers), told


def in_the_same_form(blocker: Blocker, amount: int) -> str:
    return format_quantity(amount, binary="memory" in blocker.resource or "storage" in blocker.resource)
