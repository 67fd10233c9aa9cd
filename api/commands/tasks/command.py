"""``backoff-ctrl task``: run tasks, list them, show one, end one."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from backoff_ctrl.api.commands.instance_options import table
from backoff_ctrl.api.commands.namespaces import namespace_options
from backoff_ctrl.api.commands.naming import TASK, singular
from backoff_ctrl.api.commands.options import POLICY, log_to_stderr, set_policy
from backoff_ctrl.api.commands.output import DOCUMENT, LIST, names, output_options, written
from backoff_ctrl.api.exits import DONE, FAILED, BadInput, Failed
from backoff_ctrl.k8s.tasks.platform import Platform

from .completing import ended, existing, of_tasks, unfinished, unsignalled
from .hints import again_here, come_back
from .options import (
    NAMESPACE,
    OF_A_TASK,
    cluster_options,
    find_cluster,
    needs_packages,
    place_options,
    reach_options,
    store_file,
)
from .places import (
    heeding,
    hint_on_tasks,
    in_store,
    items_in,
    named_task,
    namespace_to_list,
    remote,
    user_here,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from backoff_ctrl.k8s.tasks.documents import TaskItem

    from .running import Again
    from .showing import View

NAME: Final = singular("tasks") + TASK.removeprefix("tasks")
"""The kind of a task in ``-o name``, as kubectl prints it."""
ABORT_SECONDS: Final = 60.0
"""Seconds that ``abort`` waits for the end, by default."""


@click.group("task")
def command() -> None:
    """Run tasks through the plugin manager: each create waits for quota, each failure is retried as its spec says.

    Tasks are kept in a store, a file of this user. `task run` runs everything unfinished in it; only one process does
    so at a time, and others watch. `list`, `show`, `logs`, `abort` and `delete` work at the same time.

    \b
    backoff-ctrl task run -f train.yaml
    backoff-ctrl task list
    """


@command.command("run")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="Tasks, as YAML or JSON; - is stdin.")
@click.option(
    "--again",
    metavar="NAME",
    shell_complete=of_tasks(ended),
    help="Run this task again, which has ended, in place of the files; --set PATH=VALUE changes its fields.",
)
@click.option("-n", "--namespace", metavar="NAME", help="For tasks without a namespace; default: that of the context.")
@click.option("--admin", metavar="HOST:PORT", help="Serve the status API of the gate there, on this machine alone.")
@click.option("--abort-on-exit", is_flag=True, help="Ctrl-C aborts the tasks, and waits until they have ended.")
@POLICY
@output_options(*DOCUMENT)
@place_options
@cluster_options
def run(
    files: tuple[str, ...],
    again: str | None,
    namespace: str | None,
    admin: str | None,
    abort_on_exit: bool,
    output: str | None,
    **given: Any,
) -> int:
    """Run tasks, and follow them until all have ended. Without a file: all unfinished tasks of the store, or of the
    namespace with --store cluster.

    A container that sets no resources gets 1 cpu and 1Gi, as requests and as limits, or what the platform's settings
    say.

    A task that is already in the store with the same spec is followed; with another spec it is refused. Ctrl-C
    leaves: what runs in the cluster keeps running, and the same command resumes it.

    A task that has ended runs again with --again NAME, as a new task in its place, once that is checked as any other.
    With --again, --set also changes fields of the task: the value is YAML, the path as in JSONPath.

    \b
    backoff-ctrl task run --again train --set spec.resources.requests.memory=8Gi

    Exit codes: 0 all succeeded, or were not needed; 1 a task failed or was aborted, or Ctrl-C came before the end; 2
    wrong usage, a refused task (then no task is stored), or a store or cluster that can't be used.
    """
    needs_packages()
    once_more = _again(files, again, namespace, given)
    if given["gate"] is not None:
        return _run_there(files, once_more, namespace, abort_on_exit=abort_on_exit, output=output, given=given)
    from .running import Run, wishes_in  # noqa: PLC0415 - loads the plugin manager

    log_to_stderr(logging.WARNING)
    platform = Platform(given["config"], given["settings"])
    platform.ask()
    set_policy(given["policy"], platform.policy())
    _serve(admin)
    cluster = find_cluster(given["apiserver"], given["kubeconfig"], given["context"])
    wishes = wishes_in(files, namespace or cluster.namespace, platform)
    file = store_file(given["store"])
    at = again_here(given["settings"])
    where = {each.namespace for each in wishes} or {namespace or cluster.namespace}
    running = Run(file, cluster, platform, at, namespaces=sorted({once_more.namespace} if once_more else where))
    view = _view(running.items, output)
    heeding(lambda: asyncio.run(running.tasks(wishes, view, abort_on_exit=abort_on_exit, again=once_more)))
    left = [each for each in running.items.values() if each.unfinished]
    if running.detached and left:
        said = come_back(left, by_others=running.by_others, namespaces=file is None, settings=given["settings"])
        click.echo("\n".join(said), err=True)
    return _told(running.items, output, namespace="" if file else namespace or cluster.namespace)


@command.command("list")
@namespace_options(at_a_gate=True)
@output_options(*LIST)
@place_options
@reach_options
def list_(namespace: str | None, everywhere: bool, output: str | None, **given: Any) -> int:
    """List tasks, the oldest first, also while others run them.

    With --store cluster the default is the context's namespace, and without one "default", as with kubectl.

    Exit codes: 0 done; 2 wrong usage, or a store or server that can't be used.
    """
    needs_packages()
    from .showing import HEAD, NUMBERS, WIDE, row, wide_row  # noqa: PLC0415 - loads pydantic

    namespace = namespace_to_list(namespace, given, everywhere=everywhere)
    items = items_in(namespace, given)
    now = time.time()
    if output in DOCUMENT:
        click.echo(written({"items": items}, output))
    elif output == "name":
        names(f"{NAME}/{each.name}" for each in items)
    elif output == "wide":
        click.echo(table(WIDE, [wide_row(each, now) for each in items], len(items), right=NUMBERS, whole=True))
    elif items:
        click.echo(table(HEAD, [row(each, now) for each in items], len(items), right=NUMBERS))
    elif namespace is None:
        click.echo("there are no tasks: backoff-ctrl task run -f FILE runs some")
    else:
        click.echo(f"there are no tasks in namespace {namespace}")
    if namespace is not None and not items:
        hint_on_tasks(namespace, given)
    return DONE


@command.command("show")
@click.argument("name", shell_complete=of_tasks(existing))
@NAMESPACE
@output_options(*DOCUMENT, "name")
@place_options
@reach_options
def show(name: str, namespace: str | None, output: str | None, **given: Any) -> int:
    """Show the task NAME: its phase and why, and its history.

    Exit codes: 0 done; 1 there is no such task; 2 wrong usage, or a store or server that can't be used.
    """
    needs_packages()
    from backoff_ctrl.k8s.tasks.documents import document  # noqa: PLC0415 - loads pydantic

    from .showing import page  # noqa: PLC0415

    where, name = named_task(name, namespace, given)
    if given["gate"] is not None:
        found = remote(given).show(where, name)
    else:
        found = in_store(given, lambda tables: document(tables.get(where, name), time.time()))
    if output == "name":
        names([f"{NAME}/{found.name}"])
    else:
        click.echo(written(found, output) if output else "\n".join(page(found, time.time())))
    return DONE


@command.command("logs")
@click.argument("name", shell_complete=of_tasks(existing))
@NAMESPACE
@click.option("-f", "--follow", is_flag=True, help="Follow the log, across attempts, until the task has ended.")
@click.option(
    "-c", "--container", default="", metavar="NAME", help="The container; default: the task's main container."
)
@place_options
@cluster_options
def logs(name: str, namespace: str | None, follow: bool, container: str, **given: Any) -> int:
    """Print the log of the task NAME.

    That is the output of the pods of its current attempt. While that attempt has no pods, the log of the one before
    is printed; stderr says so.

    For an object with several pods (a Job, a Spark application) each line begins with the pod's name. Once a pod is
    deleted, its log is gone.

    \b
    backoff-ctrl task logs train -f

    Exit codes: 0 done; 1 there is no such task, or no log; 2 wrong usage, or a store, server or cluster that can't be
    used.
    """
    needs_packages()
    if given["gate"] is not None:
        if any(given[name] for name in ("apiserver", "kubeconfig", "context", "config", "settings")):
            raise BadInput("with --gate the server asks the cluster: leave out settings and cluster options")
        where, name = named_task(name, namespace, given)
        for piece in remote(given).log(where, name, container, partial(click.echo, err=True), follow=follow):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        return DONE
    from backoff_ctrl.k8s.kube.cluster.objects import ClusterError  # noqa: PLC0415 - loads the plugin manager
    from backoff_ctrl.k8s.tasks.logs import LogError  # noqa: PLC0415
    from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError  # noqa: PLC0415

    from .running import print_log  # noqa: PLC0415

    named = named_task(name, namespace, given)
    log_to_stderr(logging.WARNING)
    platform = Platform(given["config"], given["settings"])
    cluster = find_cluster(given["apiserver"], given["kubeconfig"], given["context"])
    file = store_file(given["store"])
    try:
        heeding(lambda: asyncio.run(print_log(file, cluster, platform, named, container, follow=follow)))
    except LogError as error:
        raise Failed(str(error)) from None
    except (ClusterError, PluginError) as error:
        raise BadInput(str(error)) from None
    return DONE


@command.command("abort")
@click.argument("name", shell_complete=of_tasks(unfinished))
@NAMESPACE
@click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(min=0, max=86_400),
    default=ABORT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for its end.",
)
@POLICY
@output_options(*DOCUMENT)
@place_options
@cluster_options
def abort(name: str, namespace: str | None, seconds: float, output: str | None, **given: Any) -> int:
    """End the task NAME, and delete its object.

    No further attempt is made; this can't be undone. The request is written to the store for the manager that runs
    there; without a manager, this command ends the task itself.

    Exit codes: 0 it has ended; 1 there is no such task, or it is still running; 2 wrong usage, or a store, server or
    cluster that can't be used.
    """
    needs_packages()
    where, name = named_task(name, namespace, given)
    task: TaskItem
    if given["gate"] is not None:
        task = remote(given).abort(where, name)
    else:
        from .running import Run  # noqa: PLC0415 - loads the plugin manager
        from .showing import View  # noqa: PLC0415

        log_to_stderr(logging.WARNING)
        cluster = find_cluster(given["apiserver"], given["kubeconfig"], given["context"])
        platform = Platform(given["config"], given["settings"])
        set_policy(given["policy"], platform.policy())
        running = Run(store_file(given["store"]), cluster, platform, namespaces=[where])
        heeding(lambda: asyncio.run(running.abort(where, name, View(), seconds)))
        (task,) = running.items.values()
    if output:
        click.echo(written(task, output))
    elif task.unfinished:
        click.echo(f"task {task.namespace}/{name} will end, and is still {task.phase}")
    else:
        click.echo(f"task {task.namespace}/{name} has ended: {task.phase}")
    return FAILED if task.unfinished and given["gate"] is None else DONE


@command.command("signal")
@click.argument("name", shell_complete=of_tasks(unsignalled))
@NAMESPACE
@click.option("--value", "text", default="true", show_default=True, metavar="JSON", help="What becomes its output.")
@place_options
@reach_options
def signal(name: str, namespace: str | None, text: str, **given: Any) -> int:
    """Signal the task NAME, which is Paused until then.

    It has the type signal, and succeeds with the value as its output. The signal is written to the store for the
    manager that runs there, also before the task waits for it. It can't be taken back or changed.

    \b
    backoff-ctrl task signal approve --value '{"by": "ada"}'

    Exit codes: 0 done; 1 there is no such task, it takes no signal, or has ended; 2 wrong usage, or a store, server or
    cluster that can't be used.
    """
    needs_packages()
    from backoff_ctrl.k8s.tasks.plugins.signal import flaw_of_signal  # noqa: PLC0415 - loads the plugins

    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--value: not JSON ({error}): write a text as '\"yes\"', in both quotes") from None
    if flaw := flaw_of_signal(value):
        raise BadInput(f"--value: {flaw}")
    where, name = named_task(name, namespace, given)
    if given["gate"] is not None:
        remote(given).signal(where, name, value)
    else:
        in_store(given, lambda store: store.signal(where, name, value, user_here()))
    click.echo(f"task {where}/{name} is signalled")
    return DONE


@command.command("delete")
@click.argument("name", shell_complete=of_tasks(ended))
@NAMESPACE
@place_options
@reach_options
def delete(name: str, namespace: str | None, **given: Any) -> int:
    """Forget the task NAME, which has ended.

    Its name becomes free, and its history is gone. NAME may begin with its kind or namespace, as in all subcommands.

    Exit codes: 0 done; 1 there is no such task, or it has not ended; 2 wrong usage, or a store or server that can't be
    used.
    """
    needs_packages()
    where, name = named_task(name, namespace, given)
    if given["gate"] is not None:
        remote(given).delete(where, name)
    else:
        in_store(given, lambda tables: tables.delete(where, name))
    click.echo(f"task {where}/{name} is forgotten")
    return DONE


@command.command("schema")
def schema() -> int:
    """Print the JSON schema of a task, for editors and your own checks."""
    needs_packages()
    from backoff_ctrl.k8s.tasks.model import schema as of_tasks  # noqa: PLC0415 - loads pydantic

    click.echo(json.dumps(of_tasks(), indent=2))
    return DONE


def _again(files: tuple[str, ...], name: str | None, namespace: str | None, given: dict[str, Any]) -> Again | None:
    """Return which task runs again, and take its changes out of the settings. Raises ``BadInput``."""
    fields = [each for each in given["settings"] if each.startswith(OF_A_TASK)]
    if name is None:
        if fields:
            raise BadInput(f"--set {fields[0]}: fields of a task are changed with --again NAME")
        return None
    if files:
        raise BadInput("--again runs a task of the store, and -f those of files: give only one of them")
    from backoff_ctrl.k8s.tasks.again import read_change  # noqa: PLC0415
    from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError  # noqa: PLC0415 - loads pydantic

    from .running import Again  # noqa: PLC0415 - loads the plugin manager

    given["settings"] = tuple(each for each in given["settings"] if each not in fields)
    try:
        changes = [read_change(each) for each in fields]
    except TaskSpecError as error:
        raise BadInput(f"--set {error}") from None
    return Again(*named_task(name, namespace, given), changes)


def _run_there(
    files: tuple[str, ...],
    again: Again | None,
    namespace: str | None,
    *,
    abort_on_exit: bool,
    output: str | None,
    given: Mapping[str, Any],
) -> int:
    if abort_on_exit or any(
        given[name] for name in ("store", "apiserver", "kubeconfig", "context", "config", "settings", "policy")
    ):
        raise BadInput(
            "with --gate the manager runs there: leave out --store, --abort-on-exit, settings and cluster options"
        )
    from .showing import ended_before  # noqa: PLC0415 - loads pydantic

    there = remote(given)
    if again is not None:
        made: Sequence[TaskItem] = there.again(*again)
    else:
        made = there.create(files, namespace or "default") if files else there.items(namespace)
    items = {each.uid: each for each in made if files or each.unfinished}
    view = _view(items, output)()
    for each in items.values():
        if not each.unfinished:
            view.say(ended_before(each, time.time(), again_here()))
    try:
        there.follow(items, view)
    except KeyboardInterrupt:
        if any(each.unfinished for each in items.values()):
            click.echo("\n".join(come_back(items.values(), by_others=True, namespaces=True)), err=True)
    finally:
        view.close()
    return _told(items, output, namespace=namespace or "")


def _view(items: Mapping[str, TaskItem], output: str | None) -> Callable[[], View]:
    from .showing import Lines, LiveTable, View  # noqa: PLC0415 - loads pydantic

    def make() -> View:
        if output:
            return View()
        if not sys.stdout.isatty():
            return Lines()
        from rich.console import Console  # noqa: PLC0415 - slow to load

        return LiveTable(items, Console())

    return make


def _told(items: Mapping[str, TaskItem], output: str | None, *, namespace: str) -> int:
    """Print how it ended, and return the exit code. ``namespace`` is the one that was looked at; empty: all were."""
    from backoff_ctrl.k8s.tasks.stepping import NOT_NEEDED  # noqa: PLC0415 - loads pydantic

    from .showing import summary  # noqa: PLC0415

    if output:
        click.echo(written({"items": list(items.values())}, output))
    elif items:
        click.echo(summary(items))
    else:
        where = f" in namespace {namespace}" if namespace else ""
        click.echo(f"all tasks have ended{where}: backoff-ctrl task run -f FILE runs more")
    return DONE if all(each.phase == "Success" or each.code == NOT_NEEDED for each in items.values()) else FAILED


def _serve(admin: str | None) -> None:
    """Serve the status of the gate, if that is wanted. Raises ``BadInput``."""
    if admin is None:
        return
    from backoff_ctrl.k8s.status.showing import serve_status  # noqa: PLC0415 - imported only where it is wanted

    try:
        serve_status(listen=admin, exact=True)
    except ValueError as error:
        raise BadInput(f"--admin: {error}") from None
    except OSError as error:
        raise BadInput(f"--admin: can't listen on {admin} ({error.strerror or error}): choose another") from None
