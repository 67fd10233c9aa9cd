"""``backoff-ctrl uninstall``: leave a cluster, or a part of it, so that no object waits for a removed operator."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from backoff_ctrl.api.commands.cluster_options import check_cluster_options, cluster_options
from backoff_ctrl.api.commands.kinds_option import KINDS, kinds_of
from backoff_ctrl.api.commands.tasks.options import needs_packages
from backoff_ctrl.api.exits import DONE, FAILED, BadInput
from backoff_ctrl.ending import at_signals
from backoff_ctrl.k8s.kube.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.answers.fields import mapping
from backoff_ctrl.k8s.kube.paths import PathError, group_path, path_to

from .narrowing import NARROW_OPTIONS, Dropped, dropped
from .stopped import STOPPED, StepError, Switch, asked

if TYPE_CHECKING:
    from backoff_ctrl.k8s.kube.cluster.objects import Objects
    from backoff_ctrl.k8s.workloads.admitting.kinds import AdmissibleKind

STOPS_WITHIN: Final = 60.0
"""Seconds in which the operator has to end: a pod gets 30 s for that."""
LETS_GO_WITHIN: Final = 90.0
"""Seconds for all Jobs, and for all Tasks. Together these are less than the hook's Job has (280 s)."""
PUTS_BACK_WITHIN: Final = 25.0
"""Seconds for putting back: a pod that is ended has 30 s."""
LOOK: Final = 0.5
AT_A_TIME: Final = 16
"""Tasks whose finalizer is taken off at a time."""
_HOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
_MUTATING: Final = "mutatingwebhookconfigurations"
_KINDS: Final = (_MUTATING, "validatingwebhookconfigurations")

Step = Callable[[], Awaitable[str]]
_ERRORS: Final = (StepError, NotSent, OutcomeUnknown, PathError)


@dataclass(frozen=True, slots=True)
class _Leaving:
    """What is let go, and by which means."""

    objects: Objects
    configuration: Any
    namespace: str
    kinds: Sequence[AdmissibleKind]
    operator: str | None
    webhook: str | None
    dropped: Dropped | None
    """What is let go; None: everything, and the operator goes."""
    back: list[tuple[str, Step]]
    """What puts back what is stopped, in the order in which it was stopped."""


def _narrow_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(NARROW_OPTIONS):
        function = option(function)
    return function


@click.command("uninstall")
@click.option("-n", "--namespace", help="The namespace of the operator's Deployment; default: the context's.")
@click.option("--operator", metavar="NAME", help="Its Deployment and its Lease: it is stopped first.")
@click.option("--webhook", metavar="NAME", help="Its webhooks' configurations, which are removed.")
@click.option("--if-installed", is_flag=True, help="Leave all as it is where there is no Deployment --operator.")
@_narrow_options
@KINDS
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def command(
    apiserver: str | None, kubeconfig: str | None, context: str | None, namespace: str | None, **given: Any
) -> int:
    """Stop the operator, remove its webhooks, let all Jobs go that wait, and take its finalizers off Tasks.

    The Helm chart does this before a release is deleted, or its operator switched off. Afterwards no object in the
    cluster waits for backoff-ctrl: Jobs run whether their quota has room or not, and Tasks are kept, but no operator
    carries them out. It reports each object that it can't let go; then it puts the operator and its webhooks back. What
    they were is noted on them, so that the next run puts them back where one was killed.

    With --narrow the operator goes on for less: what it covers no longer is let go, and its webhooks suspend no such
    object. It is stopped until `helm upgrade`, which the chart's hook precedes, starts it with its new arguments.

    Exit codes: 0 all of it was done; 1 some of it was not; 2 wrong usage, or the cluster cannot be used.
    """
    from backoff_ctrl.k8s.kube.cluster.asking import ReachError, find_api_server  # noqa: PLC0415 - imports the client

    check_cluster_options(apiserver, kubeconfig, context)
    needs_packages()
    if given["if_installed"] and not given["operator"]:
        raise BadInput("--if-installed looks for the Deployment of --operator: name that, too")
    if given["narrow"] and not given["operator"]:
        raise BadInput("--narrow compares with what the Deployment of --operator works for: name that, too")
    if (given["keep_namespaces"] or given["keep_kinds"]) and not given["narrow"]:
        raise BadInput("--keep-namespace and --keep-kind are for --narrow")
    kinds = kinds_of(given["kinds"])
    try:
        place = find_api_server(apiserver, kubeconfig, context, namespace)
    except ReachError as error:
        raise BadInput(str(error)) from None
    if not given["yes"]:
        what = "what the operator works for no longer" if given["narrow"] else "all that waits for backoff-ctrl"
        click.confirm(f"Let go {what} on {place.url}?", abort=True)
    try:
        done = asyncio.run(_leave(place.configuration, place.namespace, kinds, given))
    except asyncio.CancelledError:
        click.echo("ended by a signal; what was stopped is put back, but for what failed: run it again", err=True)
        return FAILED
    return DONE if done else FAILED


async def _leave(configuration: Any, namespace: str, kinds: Sequence[AdmissibleKind], given: Mapping[str, Any]) -> bool:
    """Take the steps; return whether all of them worked."""
    from backoff_ctrl.k8s.kube.cluster.objects import Objects  # noqa: PLC0415
    from backoff_ctrl.k8s.kube.cluster.session import ClusterSession  # noqa: PLC0415 - imports aiohttp

    async with ClusterSession(configuration) as session:
        objects, operator, rest = Objects(session), given["operator"], None
        try:
            deployment = await asked(objects, "GET", _deployment(namespace, operator)) if operator else None
        except _ERRORS as error:
            click.echo(f"the operator: {error}", err=True)
            return False
        if deployment is None and given["if_installed"]:
            click.echo(f"the operator: namespace {namespace} has no Deployment {operator}, so no step is needed")
            return True
        if given["narrow"]:
            if deployment is None:
                click.echo(f"the operator: namespace {namespace} has no Deployment {operator}: name it", err=True)
                return False
            rest = dropped(deployment, kinds, given["keep_namespaces"], given["keep_kinds"])
            if not rest:
                click.echo("the operator: it goes on working for all its kinds and namespaces; no object is let go")
                return True
            click.echo(f"the operator: it works no longer for {rest}")
        leaving = _Leaving(objects, configuration, namespace, kinds, operator, given["webhook"], rest, [])
        return await _taken_in_order(leaving)


async def _taken_in_order(leaving: _Leaving) -> bool:
    """Stop the operator and its webhooks first: while they run, they would suspend released objects again.

    What was stopped is put back if a step fails, or if the process gets a signal to end.
    """
    stopping: list[tuple[str, Step]] = []
    ending: list[tuple[str, Step]] = []
    if leaving.operator:  # first: it would hold Tasks again, and without the webhooks no check judges them
        stopping.append(("the operator", lambda: _stop(leaving)))
    if leaving.webhook:
        stopping.append(("the webhooks", lambda: _silence(leaving)))
        if leaving.dropped is None:
            ending.append(("the webhooks", lambda: _remove(leaving)))
    letting_go: list[tuple[str, Step]] = [("Jobs", lambda: _release(leaving)), ("Tasks", lambda: _let_go(leaving))]
    _end_once()
    done = False
    try:
        for steps in (stopping, letting_go, ending):
            if not all([await _taken(*step) for step in steps]):
                return False
        done = True
    finally:
        if not done:
            await _put_back(leaving)
    return done


def _end_once() -> None:
    """Have SIGTERM, by which a hook's pod is ended, cancel this task: once, so that putting back goes on."""
    working = asyncio.current_task()
    assert working is not None

    def end() -> None:
        if not working.cancelling():
            working.cancel()

    at_signals((signal.SIGTERM,), end)


async def _put_back(leaving: _Leaving) -> None:
    try:
        async with asyncio.timeout(PUTS_BACK_WITHIN):
            while leaving.back:
                await _taken(*leaving.back.pop())
    except TimeoutError:
        click.echo(
            f"not all was put back within {PUTS_BACK_WITHIN:g} s: run it again, or set it by hand; the annotation "
            f"{STOPPED} says what was there",
            err=True,
        )


async def _taken(name: str, step: Step) -> bool:
    """Take a step and say how it ended; return whether it worked."""
    try:
        click.echo(f"{name}: {await step()}")
    except _ERRORS as error:
        click.echo(f"{name}: {error}", err=True)
        return False
    return True


def _deployment(namespace: str, name: str) -> str:
    return path_to("/apis/apps/v1", "deployments", namespace=namespace, name=name)


async def _stop(leaving: _Leaving) -> str:
    """Scale the Deployment to 0; wait until its leader has given the Lease back."""
    name, namespace = leaving.operator or "", leaving.namespace
    switch = Switch(_deployment(namespace, name), ("spec", "replicas"), lambda _: 0)
    leaving.back.append(("the operator", partial(_turned_back, leaving.objects, switch, "started again")))
    await switch.turn(leaving.objects)
    try:
        async with asyncio.timeout(STOPS_WITHIN):
            stopped = await _ended(leaving.objects, switch.path, namespace, name)
    except TimeoutError:
        raise StepError(f"{name} has not ended within {STOPS_WITHIN:g} s: kubectl -n {namespace} get pods") from None
    return "stopped" if stopped else "not installed"


async def _ended(objects: Objects, deployment: str, namespace: str, name: str) -> bool:
    """Wait until no replica is left, and the Lease is free. Return whether there was a Deployment.

    A leader whose node is gone never gives its Lease back: one that is not renewed for its duration counts as free.
    """
    lease = path_to("/apis/coordination.k8s.io/v1", "leases", namespace=namespace, name=name)
    clock = asyncio.get_running_loop().time
    seen, since = None, clock()
    while True:
        found = await asked(objects, "GET", deployment)
        if found is None:
            return False
        spec = mapping((await asked(objects, "GET", lease) or {}).get("spec"))
        if spec != seen:
            seen, since = spec, clock()
        duration = spec.get("leaseDurationSeconds")
        lapsed = isinstance(duration, int) and clock() - since > duration
        if not mapping(found.get("status")).get("replicas") and (lapsed or not spec.get("holderIdentity")):
            return True
        await asyncio.sleep(LOOK)


async def _silence(leaving: _Leaving) -> str:
    """Have the API server call no webhook of ours, or (narrowed) not for what is let go.

    They are removed in the end, when no step is left to put back.
    """
    silenced = False
    for kind in _KINDS if leaving.dropped is None else (_MUTATING,):  # Tasks are judged wherever they are
        change = (lambda _: []) if leaving.dropped is None else leaving.dropped.narrowed
        switch = Switch(path_to(_HOOKS, kind, name=leaving.webhook), ("webhooks",), change)
        put_back = partial(_turned_back, leaving.objects, switch, "put back")
        leaving.back.append((f"the webhooks ({kind})", put_back))
        silenced |= await switch.turn(leaving.objects)
    if not silenced:
        return "not installed" if leaving.dropped is None else "not called for it"
    return "stopped" if leaving.dropped is None else "not called for it any more"


async def _turned_back(objects: Objects, switch: Switch, done: str) -> str:
    return done if await switch.turn_back(objects) else "already back"


async def _remove(leaving: _Leaving) -> str:
    paths = [path_to(_HOOKS, kind, name=leaving.webhook) for kind in _KINDS]
    found = [await asked(leaving.objects, "DELETE", path) for path in paths]
    return "removed" if any(each is not None for each in found) else "not installed"


async def _release(leaving: _Leaving) -> str:
    from backoff_ctrl.k8s.workloads.admitting.jobs import JobsError, WaitingJob, release  # noqa: PLC0415 - aiohttp

    def goes(job: WaitingJob) -> bool:
        return leaving.dropped is None or leaving.dropped.job(job.kind.resource, job.namespace)

    try:
        async with asyncio.timeout(LETS_GO_WITHIN):
            released = await release(leaving.configuration, by="uninstall", kinds=leaving.kinds, goes=goes)
    except JobsError as error:
        raise StepError(str(error)) from None
    except TimeoutError:
        raise StepError(
            f"not all were let go within {LETS_GO_WITHIN:g} s: run it again, it goes on with what is left "
            "(backoff-ctrl jobs list -A)"
        ) from None
    _insist([f"{each.label}: {each.error}" for each in released if each.error])
    return f"{sum(not each.gone for each in released)} let go"


async def _let_go(leaving: _Leaving) -> str:
    """Take our finalizer off Tasks. A change by others is no obstacle: each is tried again."""
    from backoff_ctrl.k8s.tasks.cluster.objects import is_held  # noqa: PLC0415 - pydantic
    from backoff_ctrl.k8s.tasks.cluster.schema import GROUP, PLURAL, VERSION  # noqa: PLC0415 - pydantic
    from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore  # noqa: PLC0415
    from backoff_ctrl.k8s.tasks.store import StoreError  # noqa: PLC0415

    one = path_to(group_path(f"{GROUP}/{VERSION}"), PLURAL)
    if await asked(leaving.objects, "GET", one, query=[("limit", "1")]) is None:
        return "this cluster has no such kind"
    held, slots = [], asyncio.Semaphore(AT_A_TIME)
    try:
        async with ClusterStore(leaving.configuration) as store, asyncio.timeout(LETS_GO_WITHIN):

            async def freed(entry: Any) -> None:
                async with slots:
                    await store.release(entry, running=True)

            await store.ready()
            goes = [each for each in store.cache.entries() if is_held(each.body)]
            held = [each for each in goes if leaving.dropped is None or leaving.dropped.namespace(each.task.namespace)]
            await asyncio.gather(*map(freed, held))
            left = [each for each in held if (now := store.cache.entry(each.task.uid)) and is_held(now.body)]
            _insist([f"task {each.task.namespace}/{each.task.name} keeps its finalizer" for each in left])
    except StoreError as error:
        raise StepError(str(error)) from None
    except TimeoutError:
        raise StepError(
            f"not all of {len(held) or 'them'} were let go within {LETS_GO_WITHIN:g} s: run it again, it goes on with "
            f"what is left (kubectl get {PLURAL}.{GROUP} -A)"
        ) from None
    return f"{len(held)} let go"


def _insist(left: Sequence[str]) -> None:
    """Raise ``StepError`` if a part is left."""
    if left:
        raise StepError(f"{len(left)} are left: {'; '.join(left[:10])}")
