"""``backoff-ctrl uninstall``: leave a cluster so that nothing waits for an operator that is gone."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from backoff_ctrl.api.exits import DONE, FAILED, BadInput
from backoff_ctrl.k8s.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.answers.fields import mapping
from backoff_ctrl.k8s.answers.rejections import rejection_of
from backoff_ctrl.k8s.cluster.paths import PathError, group_path, path_to

from .kinds_option import KINDS, kinds_of
from .options import check_cluster_options, cluster_options
from .tasks.options import needs_packages

if TYPE_CHECKING:
    from backoff_ctrl.k8s.admitting.kinds import AdmissibleKind
    from backoff_ctrl.k8s.plugins.manager.objects import Objects

STOPS_WITHIN: Final = 60.0
"""Seconds in which the operator has to end: a pod gets 30 s for that."""
LOOK: Final = 0.5
_HOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
_KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}


Step = Callable[[], Awaitable[str]]


class _StepError(Exception):
    """A step can't be done; the message says why."""


@click.command("uninstall")
@click.option("-n", "--namespace", help="The namespace of the operator's Deployment; default: the context's.")
@click.option("--operator", metavar="NAME", help="Its Deployment and its Lease: it is stopped first.")
@click.option("--webhook", metavar="NAME", help="Its webhooks' configurations, which are removed.")
@click.option("--if-installed", is_flag=True, help="Do nothing where there is no Deployment --operator.")
@KINDS
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def command(
    server: str | None, kubeconfig: str | None, context: str | None, namespace: str | None, **given: Any
) -> int:
    """Stop the operator, remove its webhooks, let all Jobs go that wait, and take its finalizers off Tasks.

    The Helm chart does this before a release is deleted, or its operator switched off. Afterwards nothing in the
    cluster waits for backoff-ctrl: Jobs run whether their quota has room or not, and Tasks are kept, but nobody carries
    them out. What can't be let go is said; then the operator and its webhooks are put back.

    Exit codes: 0 all of it was done; 1 some of it was not; 2 wrong usage, or the cluster cannot be used.
    """
    from backoff_ctrl.k8s.cluster.finding import ReachError, find_place  # noqa: PLC0415 - imports the client

    check_cluster_options(server, kubeconfig, context)
    needs_packages()
    if given["if_installed"] and not given["operator"]:
        raise BadInput("--if-installed looks for the Deployment of --operator: name that, too")
    kinds = kinds_of(given["kinds"])
    try:
        place = find_place(server, kubeconfig, context, namespace)
    except ReachError as error:
        raise BadInput(str(error)) from None
    if not given["yes"]:
        click.confirm(f"Let everything go that waits for backoff-ctrl on {place.url}?", abort=True)
    try:
        done = asyncio.run(_leave(place.configuration, place.namespace, kinds, given))
    except asyncio.CancelledError:
        click.echo("ended by a signal; what was stopped is put back: run it again", err=True)
        return FAILED
    return DONE if done else FAILED


async def _leave(configuration: Any, namespace: str, kinds: Sequence[AdmissibleKind], given: Mapping[str, Any]) -> bool:
    """Take the steps; return whether all of them worked. Else what was stopped is put back.

    Nothing is let go where the operator or its webhooks can't be stopped: they would have it wait again.
    """
    from backoff_ctrl.k8s.cluster.session import ClusterSession  # noqa: PLC0415 - imports aiohttp
    from backoff_ctrl.k8s.plugins.manager.objects import Objects  # noqa: PLC0415

    async with ClusterSession(configuration) as session:
        objects = Objects(session)
        operator, webhook = given["operator"], given["webhook"]
        stopping: list[tuple[str, Step]] = []
        ending: list[tuple[str, Step]] = []
        back: list[tuple[str, Step]] = []
        if operator:  # first: it would hold Tasks again, and without the webhooks nobody judges them
            stopping.append(("the operator", lambda: _stop(objects, namespace, operator, back)))
        if webhook:
            stopping.append(("the webhooks", lambda: _silence(objects, webhook, back)))
            ending.append(("the webhooks", lambda: _remove(objects, webhook)))
        letting_go: list[tuple[str, Step]] = [
            ("Jobs", lambda: _release(configuration, kinds)),
            ("Tasks", lambda: _let_go(configuration, objects)),
        ]
        try:
            if given["if_installed"] and await _asked(objects, "GET", _deployment(namespace, operator)) is None:
                click.echo(f"the operator: there is none called {operator} in {namespace}, and nothing to let go")
                return True
        except (_StepError, NotSent, OutcomeUnknown, PathError) as error:
            click.echo(f"the operator: {error}", err=True)
            return False
        working = asyncio.current_task()
        assert working is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)  # a hook's pod that is ended
        try:
            if all([await _taken(*step) for step in stopping]) and all([await _taken(*step) for step in letting_go]):
                back.clear()
                return all([await _taken(*step) for step in ending])
            return False
        finally:
            for step in reversed(back):
                await _taken(*step)


async def _taken(name: str, step: Step) -> bool:
    """Take a step and say how it ended; return whether it worked."""
    try:
        click.echo(f"{name}: {await step()}")
    except (_StepError, NotSent, OutcomeUnknown, PathError) as error:
        click.echo(f"{name}: {error}", err=True)
        return False
    return True


def _deployment(namespace: str, name: str) -> str:
    return path_to("/apis/apps/v1", "deployments", namespace=namespace, name=name)


async def _stop(objects: Objects, namespace: str, name: str, back: list[tuple[str, Step]]) -> str:
    """Scale the Deployment to nothing; wait until its leader has given the Lease back."""
    deployment = _deployment(namespace, name)
    lease = path_to("/apis/coordination.k8s.io/v1", "leases", namespace=namespace, name=name)
    found = await _asked(objects, "GET", deployment)
    if found is None:
        return "there is none"
    if replicas := mapping(found.get("spec")).get("replicas"):
        back.append(("the operator", partial(_start, objects, deployment, replicas)))
    await _asked(objects, "PATCH", f"{deployment}/scale", {"spec": {"replicas": 0}})
    try:
        async with asyncio.timeout(STOPS_WITHIN):
            while await _still_runs(objects, deployment, lease):  # noqa: ASYNC110 - the cluster is asked
                await asyncio.sleep(LOOK)
    except TimeoutError:
        raise _StepError(f"{name} has not ended within {STOPS_WITHIN:g} s: kubectl -n {namespace} get pods") from None
    return "stopped"


async def _start(objects: Objects, deployment: str, replicas: int) -> str:
    await _asked(objects, "PATCH", f"{deployment}/scale", {"spec": {"replicas": replicas}})
    return "started again"


async def _still_runs(objects: Objects, deployment: str, lease: str) -> bool:
    status = mapping((await _asked(objects, "GET", deployment) or {}).get("status"))
    spec = mapping((await _asked(objects, "GET", lease) or {}).get("spec"))
    return bool(status.get("replicas") or spec.get("holderIdentity"))


async def _silence(objects: Objects, name: str, back: list[tuple[str, Step]]) -> str:
    """Have the API server call none of them. They are removed in the end, when nothing is left to put back."""
    silenced = False
    for kind in _KINDS:
        path = path_to(_HOOKS, kind, name=name)
        hooks = (await _asked(objects, "GET", path) or {}).get("webhooks")
        if not hooks:
            continue
        back.append((f"the webhooks ({kind})", partial(_put_back, objects, path, hooks)))
        await _asked(objects, "PATCH", path, {"webhooks": []})
        silenced = True
    return "stopped" if silenced else "there are none"


async def _put_back(objects: Objects, path: str, hooks: object) -> str:
    await _asked(objects, "PATCH", path, {"webhooks": hooks})
    return "put back"


async def _remove(objects: Objects, name: str) -> str:
    found = [await _asked(objects, "DELETE", path_to(_HOOKS, kind, name=name)) for kind in _KINDS]
    return "removed" if any(each is not None for each in found) else "there are none"


async def _release(configuration: Any, kinds: Sequence[AdmissibleKind]) -> str:
    from backoff_ctrl.k8s.admitting.jobs import JobsError, release  # noqa: PLC0415 - aiohttp

    try:
        released = await release(configuration, by="uninstall", kinds=kinds)
    except JobsError as error:
        raise _StepError(str(error)) from None
    _insist([f"{each.label}: {each.error}" for each in released if each.error])
    return f"{sum(not each.gone for each in released)} let go"


async def _let_go(configuration: Any, objects: Objects) -> str:
    """Take our finalizer off all Tasks. Somebody else's change is no obstacle: each is tried again."""
    from backoff_ctrl.k8s.tasks.cluster.objects import is_held  # noqa: PLC0415 - pydantic
    from backoff_ctrl.k8s.tasks.cluster.schema import GROUP, PLURAL, VERSION  # noqa: PLC0415 - pydantic
    from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore  # noqa: PLC0415
    from backoff_ctrl.k8s.tasks.store import StoreError  # noqa: PLC0415

    if await _asked(objects, "GET", path_to(group_path(f"{GROUP}/{VERSION}"), PLURAL), query=[("limit", "1")]) is None:
        return "this cluster has no such kind"
    async with ClusterStore(configuration) as store:
        try:
            await store.ready()
        except StoreError as error:
            raise _StepError(str(error)) from None
        held = [each for each in store.cache.entries() if is_held(each.body)]
        for each in held:
            await store.release(each, running=True)
        left = [each for each in held if (now := store.cache.entry(each.task.uid)) and is_held(now.body)]
        _insist([f"task {each.task.namespace}/{each.task.name} keeps its finalizer" for each in left])
    return f"{len(held)} let go"


def _insist(left: Sequence[str]) -> None:
    """Raise ``_StepError`` if something is left."""
    if left:
        raise _StepError(f"{len(left)} are left: {'; '.join(left[:10])}")


async def _asked(
    objects: Objects, method: str, path: str, body: object = None, query: list[tuple[str, str]] | None = None
) -> dict[str, Any] | None:
    """Return the object in an answer; None: it is not there. Raises ``_StepError`` if it is refused."""
    headers = _MERGE if method == "PATCH" else None
    answer = await objects.ask(method, path, body, query=query, headers=headers)
    if answer.status == 404:
        return None
    if not answer.ok:
        raise _StepError(f"{method} {path}: {answer.status} {rejection_of(answer).message}")
    return answer.json() or {}
