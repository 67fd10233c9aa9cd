"""Where the tasks of a command are: in a file, in the cluster, or at a server that is asked."""

from __future__ import annotations

import getpass
import os
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from backoff_ctrl.api.commands.namespaces import SHOW_ALL, at_a_gate, check_namespaces, hint, known
from backoff_ctrl.api.commands.naming import split_task
from backoff_ctrl.api.exits import BadInput, Failed

from .hints import placed
from .options import find_cluster, store_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess
    from backoff_ctrl.k8s.tasks.documents import TaskItem
    from backoff_ctrl.k8s.tasks.tables import Tables

    from .in_cluster import TasksInCluster
    from .remote import RemoteTasks

    T = TypeVar("T")

_REACH = ("apiserver", "kubeconfig", "context")


def in_cluster(given: Mapping[str, Any]) -> bool:
    """Return whether the tasks are custom resources. Raises ``BadInput``."""
    return given["gate"] is None and store_file(given["store"]) is None


def namespace_to_list(namespace: str | None, given: Mapping[str, Any], *, everywhere: bool) -> str | None:
    """Return the namespace to list; None: all. Raises ``BadInput``."""
    if not in_cluster(given):
        return at_a_gate(
            namespace, everywhere=everywhere, kubeconfig=given.get("kubeconfig"), context=given.get("context")
        )
    named = check_namespaces(namespace, everywhere=everywhere)
    return None if everywhere else named[0] if named else cluster_of(given).namespace


def hint_on_tasks(namespace: str, given: Mapping[str, Any]) -> None:
    """Print a hint at other namespaces after an empty list: a misspelt name is empty, too."""
    if in_cluster(given):
        from backoff_ctrl.k8s.kube.cluster.asking import Reach, ReachError  # noqa: PLC0415 - imports the client

        reach = Reach(cluster_of(given))
        try:
            absence = reach.absence(namespace)
        except ReachError:  # the tasks themselves were listed
            absence = None
        finally:
            reach.close()
        hint(absence or SHOW_ALL)
        return
    others = Counter(each.namespace for each in items_in(None, given))
    if others:
        count = f"{others.total()} task{' is' if others.total() == 1 else 's are'}"
        hint(f"{count} in other namespaces{known(namespace, others)}: {SHOW_ALL}")


def items_in(namespace: str | None, given: Mapping[str, Any]) -> list[TaskItem]:
    """Return the tasks of a namespace, or (None) of all."""
    if given["gate"] is not None:
        return remote(given).items(namespace)
    from backoff_ctrl.k8s.tasks.documents import item  # noqa: PLC0415 - loads pydantic

    def read(tables: Tables | TasksInCluster) -> list[TaskItem]:
        items: list[TaskItem] = []
        after = 0
        while page := tables.list(after, namespace=namespace):
            items += map(item, page)
            after = page[-1].number
        return items

    return in_store(given, read, [] if namespace is None else [namespace])


def remote(given: Mapping[str, Any]) -> RemoteTasks:
    """Return the server that is asked. Raises ``BadInput``."""
    if given["store"] is not None:
        raise BadInput("--store and --gate name two different stores: give only one of them")
    if any(given.get(name) for name in _REACH):
        raise BadInput("with --gate the server asks the cluster: leave out --apiserver, --kubeconfig and --context")
    from .remote import RemoteTasks  # noqa: PLC0415 - loads pydantic

    return RemoteTasks(given["gate"], given["token_file"])


def user_here() -> str:
    """Return the user of this machine that runs the command, by the name or else the number of its account."""
    if not hasattr(os, "getuid"):  # Windows
        return getpass.getuser()
    import pwd  # noqa: PLC0415 - not on Windows

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def cluster_of(given: Mapping[str, Any]) -> ClusterAccess:
    """Return the cluster that the options choose. Raises ``BadInput``."""
    return find_cluster(*(given.get(name) for name in _REACH))


def in_store(
    given: Mapping[str, Any], ask: Callable[[Tables | TasksInCluster], T], namespaces: Sequence[str] = ()
) -> T:
    """Ask the store itself, which need not exist for a list. ``namespaces``: those of a cluster to list; empty: all.

    Raises ``BadInput``, and ``Failed`` for an absent task.
    """
    from backoff_ctrl.k8s.tasks.tables import Tables  # noqa: PLC0415 - loads pydantic

    file = store_file(given["store"])

    def asked() -> T:
        if file is None:
            from .in_cluster import TasksInCluster  # noqa: PLC0415 - loads the client

            with TasksInCluster(cluster_of(given), namespaces) as tasks:
                return ask(tasks)
        tables = Tables(file, create=given["store"] is None)
        try:
            return ask(tables)
        finally:
            tables.close()

    return heeding(asked)


def heeding(work: Callable[[], T]) -> T:
    """Raise the errors of a store as ``BadInput``, or as ``Failed`` where the task is absent or in another state."""
    from backoff_ctrl.k8s.tasks.store import AbsentError, ConflictError, StoreError  # noqa: PLC0415 - loads pydantic

    try:
        return work()
    except (AbsentError, ConflictError) as error:
        raise Failed(placed(str(error))) from None
    except StoreError as error:
        raise BadInput(placed(str(error))) from None


def named_task(text: str, namespace: str | None, given: Mapping[str, Any]) -> tuple[str, str]:
    """Return namespace and name of the task that is named: ``train``, ``task/train`` or ``team/train``.

    Raises ``Failed``, ``BadInput``.
    """
    within, name = split_task(text)
    if within and namespace and within != namespace:
        raise BadInput(f"{text} is in namespace {within}, and -n says {namespace}: give only one of them")
    return within or namespace or _namespace_of(name, given), name


def _namespace_of(name: str, given: Mapping[str, Any]) -> str:
    """Return the one namespace with a task of this name; in the cluster that of the context, as kubectl does.

    Raises ``Failed``, ``BadInput``.
    """
    if in_cluster(given):
        return cluster_of(given).namespace
    found = sorted({each.namespace for each in items_in(None, given) if each.name == name})
    if not found:
        raise Failed(placed(f"there is no task {name}: backoff-ctrl task list shows the existing ones"))
    if len(found) > 1:
        raise BadInput(f"tasks of this name are in {', '.join(found)}: choose one with -n")
    return found[0]
