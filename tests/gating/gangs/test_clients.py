"""Gangs through the official clients: ``with gang(core, pods)``, ``create_gang``, and the same for asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from backoff_ctrl import (
    AsyncGatedApiClient,
    GangError,
    GangFailed,
    GangRefused,
    Gate,
    GatedApiClient,
    OptionError,
    WaitedTooLong,
    create_gang,
    gang,
    waiting,
)
from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.gangs import gang_of
from tests.kit.gated_creates import pod
from tests.kit.official import aio
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Seen, scripted_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

SOON = Policy(base=0.05, cap=0.2)


def pods(count: int, prefix: str = "member") -> list[dict[str, Any]]:
    """Return manifests of pods that ask for nothing but to be counted."""
    return [pod(f"{prefix}-{number}") for number in range(count)]


@pytest.fixture
def core(sandbox: BackgroundSandbox) -> Iterator[Any]:
    """A client whose gate reads the quotas for each gang, since it watches none; ten pods fit."""
    sandbox.create_quota("team", "q", {"pods": "10"})
    with GatedApiClient(client.Configuration(host=sandbox.url), gate=Gate(policy=SOON)) as api:
        yield client.CoreV1Api(api)


def names(core: Any) -> list[str]:
    """List the pods by name."""
    return sorted(each.metadata.name for each in core.list_namespaced_pod("team").items)


def test_a_gang_that_fits_is_created_within_its_block(core: Any) -> None:
    """Each member draws; the block's end gives back what was not created, and others get in."""
    with gang(core, pods(8), namespace="team") as admitted:
        assert (admitted.whole, admitted.drawn, admitted.undrawn) == (True, 0, 8)
        for member in pods(6):
            core.create_namespaced_pod("team", member)
        assert (admitted.drawn, admitted.undrawn) == (6, 2)
        with pytest.raises(ApiException), waiting(timeout=0.2):
            core.create_namespaced_pod(
                "team", {**pod("other"), "kind": "Pod"} | _labelled("other", hostname="x", cpu="1")
            )
    assert (admitted.undrawn, admitted.given_back) == (0, 2)
    with waiting(timeout=PATIENCE):
        for other in pods(4, "late"):
            core.create_namespaced_pod("team", other)
    assert len(names(core)) == 10


def _labelled(name: str, *, hostname: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"hostname": hostname, "containers": [container, container]}}


def test_a_gang_waits_until_all_of_it_fits(core: Any) -> None:
    """Room for five of six admits none; the read that shows room for six lets all in."""
    for each in pods(5, "first"):
        core.create_namespaced_pod("team", each)
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.extend(create_gang(core, pods(6), namespace="team", timeout=60)))
    thread.start()
    gate: Gate = core.api_client.gate
    while not any(wait.reason == "quota" for wait in gate.waiting_now()):
        thread.join(0.02)
        assert thread.is_alive()
    (wait,) = gate.waiting_now()
    assert (wait.kind, wait.asked, wait.left) == ("gang of 6 pods", "6", "5")
    assert not any(name.startswith("member") for name in names(core))
    core.delete_namespaced_pod("first-0", "team", grace_period_seconds=0)
    thread.join(PATIENCE)
    assert [each.metadata.name for each in made] == [f"member-{number}" for number in range(6)]


@pytest.mark.long
def test_a_gang_that_never_fits_is_an_error_at_once(core: Any) -> None:
    """With the part and the amount; nothing was sent."""
    with pytest.raises(GangRefused, match=r"gang asks pods=11 \(11 x 1 for Pod member-0\), but quota q allows 10"):
        create_gang(core, pods(11), namespace="team")
    assert names(core) == []


def test_a_gang_that_waits_too_long_leaves_nothing(core: Any) -> None:
    """The error says what it waited for; a create behind it gets in."""
    for each in pods(5, "first"):
        core.create_namespaced_pod("team", each)
    with pytest.raises(WaitedTooLong, match=r"gang team/gang-of-8 .* after 0\.3 s.*asks pods=8, 5 left in quota q"):
        create_gang(core, pods(8), namespace="team", timeout=0.3)
    assert core.api_client.gate.waiting_now() == []
    with waiting(timeout=PATIENCE):
        core.create_namespaced_pod("team", pod("after"))


def test_if_the_rest_cannot_follow_what_was_created_is_deleted_again(core: Any, sandbox: BackgroundSandbox) -> None:
    """A stranger takes the room meanwhile, and the gang's limit passes."""
    stranger = client.CoreV1Api(client.ApiClient(client.Configuration(host=sandbox.url)))
    wanted = pods(8)
    created = core.create_namespaced_pod

    def with_a_stranger(namespace: str, body: Any) -> Any:
        stored = created(namespace, body)
        if body["metadata"]["name"] == "member-2":
            for each in pods(6, "stranger"):
                stranger.create_namespaced_pod("team", each)  # type: ignore[arg-type]
        return stored

    core.create_namespaced_pod = with_a_stranger
    with pytest.raises(
        GangFailed, match=r"^4 of 8 members of the gang were created, then .*exceeded quota: q.* deleted again$"
    ) as caught:
        create_gang(core, wanted, namespace="team", limit=0.5)
    assert caught.value.created == [f"member-{number}" for number in range(4)]
    assert caught.value.left == []
    assert all(name.startswith("stranger") for name in names(core))


def test_other_threads_draw_where_they_say_so(core: Any) -> None:
    """Threads inherit no ``with`` block: ``here`` lets them draw."""
    with gang(core, pods(4), namespace="team") as admitted:

        def work(member: dict[str, Any]) -> None:
            with admitted.here():
                core.create_namespaced_pod("team", member)

        threads = [threading.Thread(target=work, args=(member,)) for member in pods(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert (admitted.drawn, admitted.undrawn) == (4, 0)


def test_asyncio_creates_a_gang_as_well(sandbox: BackgroundSandbox) -> None:
    """All at once; one that is cancelled while it waits leaves nothing."""
    sandbox.create_quota("team", "q", {"pods": "10"})

    async def main() -> None:
        gate = AsyncGate(policy=SOON)
        async with AsyncGatedApiClient(aio.Configuration(host=sandbox.url), gate=gate) as api:
            core = aio.CoreV1Api(api)
            made = await create_gang(core, pods(8), namespace="team")
            assert [each.metadata.name for each in made] == [f"member-{number}" for number in range(8)]
            async with asyncio.timeout(PATIENCE):
                waits = asyncio.create_task(create_gang(core, pods(4, "late"), namespace="team"))
                while not gate.waiting_now():  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0)
                waits.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waits
            assert gate.waiting_now() == []
            async with gang(core, pods(2, "small"), namespace="team") as admitted:
                assert admitted.undrawn == 2

    asyncio.run(main())


def test_without_permission_to_read_quotas_a_gang_is_refused_unless_it_may_go_one_by_one(
    sandbox: BackgroundSandbox,
) -> None:
    """A transport that can read nothing stands for the account that may not."""
    asked = gang_of("team", [(pod("a"), 2)])
    with pytest.raises(GangRefused, match="quotas of team can't be read"), Gate().gang(asked):
        pass
    with Gate(policy=Policy(gang_blind="one_by_one")).gang(asked) as admitted:
        assert (admitted.whole, admitted.undrawn) == (False, 2)


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_where_nothing_is_enforced_nothing_is_reserved_and_nothing_waits(sandbox: BackgroundSandbox, mode: Any) -> None:
    """The members are created as without the gate."""
    sandbox.create_quota("team", "q", {"pods": "10"})
    with GatedApiClient(client.Configuration(host=sandbox.url), gate=Gate(mode=mode)) as api:
        core = client.CoreV1Api(api)
        assert len(create_gang(core, pods(4), namespace="team")) == 4


def test_bad_gangs_are_errors_at_once(core: Any) -> None:
    """Before anything waits."""
    with pytest.raises(
        OptionError, match=r"a gang needs a gated client: CoreV1Api\(GatedApiClient\(\)\), not ApiClient"
    ):
        gang(client.CoreV1Api(client.ApiClient()), pods(2), namespace="team")
    with pytest.raises(GangError, match="a gang has 1 to 16 parts, not 0"):
        gang(core, [], namespace="team")
    with pytest.raises(GangError, match="a gang needs a namespace"):
        gang(core, pods(2))
    mixed = [pod("a") | {"metadata": {"name": "a", "namespace": space}} for space in ("team", "other")]
    with pytest.raises(GangError, match="part 2 is of namespace other, the gang of team"):
        gang(core, mixed)
    shapes = [pod(f"m-{number}", cpu=f"{number + 1}m") for number in range(17)]
    with pytest.raises(GangError, match=r"1 to 16 parts, not 17: part 17 \(.*cpu=17m, pods=1.*\) is too many"):
        gang(core, shapes, namespace="team")
    for wrong, said in ((pod("a"), "dict"), ("pod", "str"), (client.V1Pod(), "V1Pod"), (None, "NoneType")):
        with pytest.raises(GangError, match=f"a gang is a list of objects, such as .*, not {said}"):
            gang(core, wrong, namespace="team")  # type: ignore[arg-type]
    for odd in ("pod", None, 7, ["pod"]):
        with pytest.raises(GangError, match="part 2 is not a manifest but "):
            gang(core, [pod("a"), odd], namespace="team")
    with pytest.raises(GangError, match="part 1 can't be read"):
        gang(core, [{"spec": {"containers": 7}}], namespace="team")
    with pytest.raises(OptionError, match="limit must be a number of seconds above 0, not -1"):
        gang(core, pods(2), namespace="team", limit=-1)
    with pytest.raises(OptionError, match="priority must be a whole number"):
        gang(core, pods(2), namespace="team", priority="high")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="for threads: write `with gang"):
        asyncio.run(gang(core, pods(2), namespace="team").__aenter__())


def test_closing_the_client_ends_the_wait_of_a_gang(core: Any) -> None:
    """With the error that all get that wait."""
    from backoff_ctrl import GateClosed  # noqa: PLC0415 - used once

    for each in pods(5, "first"):
        core.create_namespaced_pod("team", each)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            create_gang(core, pods(8), namespace="team")
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not core.api_client.gate.waiting_now():
        thread.join(0.01)
        assert thread.is_alive()
    core.api_client.close()
    thread.join(PATIENCE)
    assert [type(error) for error in ended] == [GateClosed]


def test_a_gang_whose_loop_was_closed_while_it_waited_reserves_nothing() -> None:
    """Nobody is left who could create its members, or give it back."""
    ledger = Gate().ledger
    gate = AsyncGate(ledger=ledger)
    pods_of = {"pods": 10 * 10**9}
    ledger.observe_quota("team", "q", ObservedQuota(pods_of, pods_of, pods_of))
    ledger.watching("team")
    loop = asyncio.new_event_loop()
    waits = gate.gang(gang_of("team", [(pod("a"), 2)]))
    entering = loop.create_task(waits.__aenter__())
    loop.run_until_complete(asyncio.sleep(0))
    assert gate.waiting_now()
    loop.close()
    ledger.observe_quota("team", "q", ObservedQuota(pods_of, pods_of, {"pods": 0}))
    nobody = threading.Event()
    for _ in range(500):
        if not gate.waiting_now():
            break
        nobody.wait(0.01)  # until the room has settled
    assert not gate.waiting_now()
    assert ledger.snapshot().namespaces["team"].quotas["q"]["pods"].reserved == 0
    entering.get_coro().close()


def test_a_job_with_a_key_is_found_again_in_the_next_gang(core: Any) -> None:
    """Each gang puts a label of its own into the Job's template: that is not what its caller asked for."""
    template = {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "job"}, "spec": {"parallelism": 2, "completions": 2, "template": template}}
    job |= {"apiVersion": "batch/v1", "kind": "Job"}
    batch: Any = client.BatchV1Api(core.api_client)
    uids = set()
    for _ in range(2):
        with gang(batch, [job], namespace="team"), waiting(key="job-1"):
            uids.add(batch.create_namespaced_job("team", job).metadata.uid)
    with waiting(key="job-1"):
        uids.add(batch.create_namespaced_job("team", job).metadata.uid)
    assert len(uids) == 1


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "3", None, 100_001])
def test_a_count_that_is_none_is_an_error_at_once(count: Any) -> None:
    """With the part and the count."""
    with pytest.raises(GangError, match=f"part 2 has 1 to 100000 members, as a whole number, not {count!r}"):
        gang_of("team", [(pod("a"), 1), (pod("b"), count)])


@pytest.mark.long
def test_a_job_whose_pods_never_fit_is_refused_at_once_with_what_asks_most(core: Any) -> None:
    """For sync and for async; the part is named as people know it."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"parallelism": 20, "completions": 20, "template": {"spec": pod("x")["spec"]}},
    }
    said = r"gang asks pods=20 \(20 x 1 for the Pods of Job train\), but quota q allows 10 in all"
    with pytest.raises(GangRefused, match=said):
        create_gang(client.BatchV1Api(core.api_client), [job], namespace="team")

    async def main() -> None:
        async with AsyncGatedApiClient(
            aio.Configuration(host=core.api_client.configuration.host), gate=AsyncGate(policy=SOON)
        ) as api:
            await create_gang(aio.BatchV1Api(api), [job], namespace="team")

    with pytest.raises(GangRefused, match=said):
        asyncio.run(main())


@pytest.mark.parametrize("cancelled", [False, True], ids=["one fails", "the caller is cancelled"])
def test_members_in_flight_when_the_gang_fails_are_deleted_too(sandbox: BackgroundSandbox, cancelled: bool) -> None:
    """All are sent at once on asyncio: those that are answered later than the one that failed must not stay."""
    sandbox.create_quota("team", "q", {"pods": "20"})
    wanted = pods(8)
    if not cancelled:
        wanted[0]["metadata"]["name"] = "Not_Valid"

    async def main() -> None:
        async with AsyncGatedApiClient(aio.Configuration(host=sandbox.url), gate=AsyncGate(policy=SOON)) as api:
            core = aio.CoreV1Api(api)
            async with asyncio.timeout(PATIENCE):
                making = asyncio.create_task(create_gang(core, wanted, namespace="team"))
                while cancelled and api.gate.counts.sent == 0:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0)
                if cancelled:
                    making.cancel()
                with pytest.raises(asyncio.CancelledError if cancelled else GangFailed):
                    await making
                await api.gate.drain()
            assert [each.metadata.name for each in (await core.list_namespaced_pod("team")).items] == []

    asyncio.run(main())


def test_a_gang_that_is_entered_already_is_an_error(core: Any) -> None:
    """Its block would give back the other's room, or nobody would."""
    once = gang(core, pods(3), namespace="team")
    with once as admitted:
        with pytest.raises(OptionError, match="this gang's block was entered already: make another"), once:
            pass
        assert admitted.undrawn == 3
    assert core.api_client.gate.ledger.snapshot().namespaces["team"].quotas["q"]["pods"].reserved == 0
    with once as admitted:  # after its end it may wait once more
        assert admitted.undrawn == 3


def test_while_a_gang_waits_the_quotas_are_read_with_the_token_of_that_moment() -> None:
    """The token that it began with expires before there is room."""

    def answer(seen: Seen) -> tuple[int, dict[str, Any]]:
        used = "0" if seen.headers["authorization"] == "Bearer third" else "1"
        quota = {"spec": {"hard": {"pods": "2"}}, "status": {"hard": {"pods": "2"}, "used": {"pods": used}}}
        return 200, {"kind": "ResourceQuotaList", "items": [{"metadata": {"name": "q"}, **quota}]}

    tokens = iter(["first", "second"])
    with scripted_server(answer) as server:
        made = client.Configuration(host=server.url, api_key={"authorization": ""})

        def renew(given: Any) -> None:  # version 36 ignores a prefix of this key
            given.api_key["authorization"] = f"Bearer {next(tokens, 'third')}"

        made.refresh_api_key_hook = renew  # type: ignore[assignment]  # the client's own says None
        with (
            GatedApiClient(made, gate=Gate(policy=SOON)) as api,
            gang(client.CoreV1Api(api), pods(2), namespace="team", timeout=20) as admitted,
        ):
            assert admitted.whole

    assert len({each.headers["authorization"] for each in server.of("GET")}) > 1
