"""``backoff-ctrl doctor``: check whether the gate can work here, and say what to do if not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backoff_ctrl.api.commands.tasks.options import SET, can_run_tasks, needs_packages
from backoff_ctrl.api.exits import DONE, FAILED, BadInput
from backoff_ctrl.k8s.kube.answers.printing import printable

from .cluster_options import check_cluster_options, cluster_options
from .kinds_option import KINDS, kinds_of
from .output import DOCUMENT, output_options, written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backoff_ctrl.k8s.gate.settings import InForce
    from backoff_ctrl.k8s.kube.cluster.asking import Check
    from backoff_ctrl.k8s.kube.cluster.rights import Right


@click.command("doctor")
@cluster_options
@click.option("-n", "--namespace", help="The namespace to check; default: the context's.")
@click.option(
    "--for",
    "mode",
    type=click.Choice(["creator", "injection", "gateway", "operator", "serve", "webhooks"]),
    default="creator",
    show_default=True,
    help="What to check the rights for: a program whose creates wait, or a mode of the Helm chart, in its own pod.",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="With --for gateway: it watches all of them.")
@click.option(
    "--keeps",
    metavar="NAME",
    help="With --for injection or webhooks: the Secret and the Lease in which it keeps its certificates.",
)
@click.option("--webhook", metavar="NAME", help="With --keeps: the webhook configurations that must trust them.")
@click.option(
    "--lease",
    default="backoff-ctrl-operator",
    show_default=True,
    metavar="NAME",
    help="With --for operator: the Lease by which its replicas elect their leader.",
)
@KINDS
@click.option("--gates-in", multiple=True, metavar="NAMESPACE", help="With --for serve: it looks for gates there.")
@click.option("--config", metavar="FILE", help="Platform settings to print as well, as YAML: plugins.k8s and the like.")
@SET
@output_options(*DOCUMENT)
def command(
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    output: str | None,
    **given: Any,
) -> int:
    """Check the installation, the connection to the cluster, and the rights that the gate needs.

    Prints the settings in force here and where each comes from; then a line for each check, and how to fix what fails.
    With --for, it checks the rights of a mode of the Helm chart: run it with that mode's account, as the chart's notes
    say.

    Exit codes: 0 all checks passed, 1 some failed, 2 the cluster cannot be used at all.
    """
    from backoff_ctrl.k8s.kube.cluster.asking import Check, Reach, ReachError, find_place  # noqa: PLC0415 - imports the client: 0.25 s

    check_cluster_options(apiserver, kubeconfig, context)
    settings, wrong = _settings(given["config"], given["settings"])
    checks = [_installation(), *wrong]
    if not output:
        for setting in settings:
            click.echo(printable(f"    {setting.name:<28}{setting.value} ({setting.source})"))
        for check in checks:
            _show(check)
    try:
        place = find_place(apiserver, kubeconfig, context, namespace)
        reach = Reach(replace(place, namespace="") if given["all_namespaces"] else place)
        try:
            for check in reach.checks(_rights(place.namespace, given)):
                checks.append(check)
                if not output:
                    _show(check)
        finally:
            reach.close()
    except ReachError as error:
        if output:
            name = "access" if any(check.name == "cluster" for check in checks) else "cluster"
            checks.append(Check(name, ok=False, detail=str(error)))
            _print_document(checks, settings, output)
        raise BadInput(str(error)) from error
    healthy = all(check.ok for check in checks)
    if output:
        _print_document(checks, settings, output)
    if given["mode"] == "creator" and reach.forbidden(checks):
        raise BadInput(
            f"this account may not create pods in {reach.place.namespace} on {reach.place.url}: ask for a role that "
            "allows create on pods, such as edit, or choose another namespace with --namespace"
        )
    return DONE if healthy else FAILED


def _rights(namespace: str, given: Mapping[str, Any]) -> Sequence[Right]:
    """Return the rights to check. Raises ``BadInput`` for options of another mode."""
    from backoff_ctrl.k8s.kube.cluster.rights import CREATOR, GATEWAY, injection, operator, page, webhooks  # noqa: PLC0415
    from backoff_ctrl.k8s.workloads.admitting.kinds import indispensable  # noqa: PLC0415

    mode, keeps, webhook = given["mode"], given["keeps"], given["webhook"]
    for option, wanted, value in (
        ("--all-namespaces", ("gateway",), given["all_namespaces"]),
        ("--keeps", ("injection", "webhooks"), keeps),
        ("--webhook", ("injection", "webhooks"), webhook),
        ("--gates-in", ("serve",), given["gates_in"]),
        ("--kinds", ("operator", "webhooks"), given["kinds"]),
    ):
        if value and mode not in wanted:
            raise BadInput(f"{option} is for --for {' and '.join(wanted)}")
    if (keeps is None) != (webhook is None):
        raise BadInput("--keeps and --webhook belong together: give both, or neither")
    names = None if keeps is None else {"namespace": namespace, "kept": keeps, "webhook": webhook}
    if mode == "injection":
        return injection(names)
    if mode == "operator":
        needed = indispensable(kinds_of(given["kinds"]))
        return operator(given["lease"], namespace, (), [each.resource for each in needed])
    if mode == "webhooks":
        return webhooks(names, [each.resource for each in kinds_of(given["kinds"])])
    return {"creator": CREATOR, "gateway": GATEWAY, "serve": page(given["gates_in"])}[mode]


def _installation() -> Check:
    import platform  # noqa: PLC0415 - only here
    from importlib.metadata import version  # noqa: PLC0415

    from backoff_ctrl.k8s.gate.clients.generations import installed  # noqa: PLC0415
    from backoff_ctrl.k8s.kube.cluster.asking import Check  # noqa: PLC0415

    clients = list(installed())
    versions = [("backoff-ctrl", version("backoff-ctrl")), *[(name, found) for name, found, _ in clients]]
    listed = ", ".join(f"{name} {found}" for name, found in versions)
    problems = "; ".join(problem for _, _, problem in clients if problem)
    return Check("versions", not problems, f"{listed}, Python {platform.python_version()}", problems)


def _settings(config: str | None, flags: Sequence[str]) -> tuple[list[InForce], list[Check]]:
    """Return the settings that apply, and a check for each that is not understood."""
    from backoff_ctrl.k8s.gate.settings import in_force, read_settings  # noqa: PLC0415
    from backoff_ctrl.k8s.kube.cluster.asking import Check  # noqa: PLC0415

    found = list(in_force())
    given = read_settings()
    wrong = [Check("environment", ok=False, detail=sentence) for sentence in (*given.wrong, *given.unknown)]
    if config is None and not flags and not can_run_tasks():
        return found, wrong
    needs_packages()
    from backoff_ctrl.k8s.tasks.plugins import config_file  # noqa: PLC0415 - loads pydantic

    try:
        found += config_file.in_force(None if config is None else Path(config), flags)
    except config_file.ConfigError as error:
        wrong.append(Check("settings", ok=False, detail=str(error)))
    return found, wrong


def _show(check: Check) -> None:
    click.echo(f"{'ok' if check.ok else 'no':<4}{check.name:<23} {check.detail}")
    if check.remedy:
        click.echo(f"    {'':<24}{check.remedy}")


def _print_document(checks: list[Check], settings: list[InForce], output: str) -> None:
    document = {
        "ok": all(each.ok for each in checks),
        "checks": [{"name": each.name, "ok": each.ok, "detail": each.detail, "remedy": each.remedy} for each in checks],
        "settings": [{"name": each.name, "value": each.value, "source": each.source} for each in settings],
    }
    click.echo(written(document, output))
