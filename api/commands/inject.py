"""``backoff-ctrl inject``: the injection webhook, and a preview of its changes to a manifest."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import yaml

from backoff_ctrl.api.commands.tasks.options import SET, needs_packages
from backoff_ctrl.api.exits import DONE, BadInput
from backoff_ctrl.api.webhooks.counting import LABEL
from backoff_ctrl.api.webhooks.mutation import inject, with_account
from backoff_ctrl.api.webhooks.sidecar import SidecarSettings, wrong_amounts
from backoff_ctrl.ending import at_signals
from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.gate.creates.creation import OptionError
from backoff_ctrl.k8s.kube.answers.fields import labels_of, metadata_of
from backoff_ctrl.k8s.kube.charges.manifests import ManifestError, load_manifests, read_source
from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
from backoff_ctrl.k8s.tasks.platform import Platform

from .cluster_options import check_cluster_options, cluster_options
from .kinds_option import KINDS, kinds_of
from .options import address_of, log_to_stderr
from .proxy import command as proxy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.api.webhooks.certificates import Installation
    from backoff_ctrl.api.webhooks.server import InjectionSettings
    from backoff_ctrl.api.webhooks.task_review import TaskReviews
    from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess

OWN_ARGS: Final = frozenset(
    {"--listen", "--probe-listen", "--listen-first", "--tls-authority", "--tls-account", "--tls-token-volume"}
    | {"--tls-cert", "--tls-key", "--kubeconfig", "--context", "--help"}
)
"""Options of ``proxy`` that the webhook sets itself, or that make no sense in a sidecar."""
ANSWER_WITHIN: Final = 2.0
"""Seconds in which the API server has to say who may have a Task: it waits for the webhook meanwhile."""
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@click.command("inject")
@click.option("-f", "--file", metavar="FILE", help="Print these pods with their sidecar, and end; - reads stdin.")
@click.option(
    "--listen", default="0.0.0.0:9443", show_default=True, metavar="HOST:PORT", help="Where the API server calls."
)
@click.option(
    "--for",
    "admits",
    type=click.Choice(["pods", "jobs", "tasks"]),
    multiple=True,
    default=("pods",),
    show_default=True,
    help="Give labelled pods the sidecar, suspend labelled Jobs, check who may create Tasks. May be repeated.",
)
@click.option("--config", metavar="FILE", help="With --for tasks: the platform's settings, those of the operator.")
@SET
@KINDS
@click.option(
    "--operator",
    "operators",
    multiple=True,
    metavar="USER",
    help="With --for jobs: the operator's user name, whose Tasks' Jobs have their room. May be repeated.",
)
@click.option("--probe-listen", metavar="HOST:PORT", help="Serve /livez, /readyz and /metrics there, without TLS.")
@click.option("--image", default=SidecarSettings().image, show_default=True, help="The sidecar's image.")
@click.option(
    "--pull-policy", type=click.Choice(["", "Always", "IfNotPresent", "Never"]), default="", help="Of the image."
)
@click.option("--request", multiple=True, metavar="NAME=AMOUNT", help="What a sidecar requests, such as cpu=20m.")
@click.option("--limit", multiple=True, metavar="NAME=AMOUNT", help="What a sidecar may use, such as memory=256Mi.")
@click.option("--sidecar-arg", multiple=True, metavar="ARG", help="One more argument of each sidecar: --hold=20.")
@click.option(
    "--sidecar-env", multiple=True, metavar="NAME=VALUE", help="One more environment variable of each sidecar."
)
@click.option("--tls-cert", metavar="FILE", help="A certificate that others renew, such as cert-manager.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option(
    "--client-ca",
    metavar="FILE",
    help="Answer only API servers with a client certificate of these authorities (PEM). Default: any client.",
)
@click.option(
    "--drain",
    type=click.FloatRange(min=0, max=3600),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to keep serving after SIGTERM, not ready, until API servers use another replica.",
)
@click.option(
    "--service", default="backoff-ctrl-inject", show_default=True, help="The Service that the API server calls."
)
@click.option(
    "--secret", default="backoff-ctrl-inject", show_default=True, help="The Secret with certificates of its own."
)
@click.option(
    "--webhook",
    default="backoff-ctrl-inject",
    show_default=True,
    help="The MutatingWebhookConfiguration (for Tasks: and ValidatingWebhookConfiguration) that must trust them.",
)
@click.option("-n", "--namespace", help="The namespace of the Service and the Secret; default: this pod's.")
@click.option(
    "--excluded",
    multiple=True,
    metavar="NAMESPACE",
    help="A namespace that its MutatingWebhookConfiguration excludes: pods there need no sidecar. May be repeated.",
)
@cluster_options
def command(file: str | None, apiserver: str | None, kubeconfig: str | None, context: str | None, **given: Any) -> int:
    """Serve the admission webhooks: labelled pods get the gate as a sidecar, labelled Jobs wait, Tasks are checked.

    With --for jobs, new Jobs and the like with the label backoff-ctrl.dev/wait=true (on them or on their namespace) are
    suspended, until `backoff-ctrl operator` lets them in. With --for tasks, a Task is refused that its author may not
    have done, or whose spec was changed. Both belong to the operator; by default it is for pods alone.

    A pod that can't have a sidecar (hostNetwork, no service account, Kubernetes before 1.29) is created without one,
    and its creator gets a warning. The webhook keeps its own certificates in a Secret and has the API server trust
    them, or serves those of --tls-cert and --tls-key, which it reloads when they change.

    \b
    backoff-ctrl inject -f pod.yaml         # what would this pod look like?

    Exit codes: 0 ended by Ctrl-C or SIGTERM, or the manifest was printed; 2 wrong usage or bad input.
    """
    sidecar = _sidecar(given)
    if file is not None:
        _print(file, sidecar)
        return DONE
    check_cluster_options(apiserver, kubeconfig, context)
    platform = _platform(given)
    _serve(_settings(given, sidecar), platform, apiserver, kubeconfig, context)
    return DONE


def _platform(given: Mapping[str, Any]) -> Platform | None:
    """Return the plugins by which Tasks are judged; None: they are not judged here."""
    if "tasks" not in given["admits"]:
        if given["config"] or given["settings"]:
            raise BadInput("--config and --set are for --for tasks")
        return None
    needs_packages()
    return Platform(given["config"], given["settings"])


def _reviews(platform: Platform, place: ClusterAccess) -> TaskReviews:
    from backoff_ctrl.api.webhooks.task_review import REMEDY, TaskReviews  # noqa: PLC0415
    from backoff_ctrl.k8s.kube.cluster.asking import Reach  # noqa: PLC0415 - imports the client
    from backoff_ctrl.k8s.kube.cluster.subjects import Subjects  # noqa: PLC0415
    from backoff_ctrl.k8s.tasks.executing import check  # noqa: PLC0415 - pydantic

    registry = platform.registry
    subjects = Subjects(Reach(place, limit=ANSWER_WITHIN), REMEDY)
    return TaskReviews(lambda wish: check(wish, registry, platform.config()), registry.resolve, subjects)


def _serve(
    settings: InjectionSettings,
    platform: Platform | None,
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    from backoff_ctrl.api.webhooks.server import Webhook, serve  # noqa: PLC0415
    from backoff_ctrl.k8s.kube.cluster.asking import ReachError, find_api_server  # noqa: PLC0415 - imports the client
    from backoff_ctrl.k8s.kube.cluster.session import ClusterSession  # noqa: PLC0415
    from backoff_ctrl.k8s.sidecar.certificates import CertificatesError  # noqa: PLC0415

    log_to_stderr(logging.INFO)

    async def run() -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with ClusterSession(place.configuration) as session:
            webhook = Webhook(settings, session, tasks=None if platform is None else _reviews(platform, place))
            following = None if platform is None else asyncio.create_task(platform.follow())

            def end() -> None:
                if settings.drain and not webhook.leaving:
                    webhook.leaving = True
                    loop.call_later(settings.drain, over.set)
                else:  # at once, or asked again
                    over.set()

            at_signals((signal.SIGINT, signal.SIGTERM), end)
            await serve(webhook, settings, over, click.echo)
            if following is not None:
                following.cancel()

    try:
        place = find_api_server(apiserver, kubeconfig, context, None, patient=True)
        asyncio.run(run())
    except (ReachError, CertificatesError) as error:
        raise BadInput(str(error)) from None


def _settings(given: Mapping[str, Any], sidecar: SidecarSettings) -> InjectionSettings:
    from backoff_ctrl.api.webhooks.server import InjectionSettings  # noqa: PLC0415

    listen = address_of("--listen", given["listen"], "127.0.0.1:9443")
    asked = given["probe_listen"]
    probes = None if asked is None else address_of("--probe-listen", asked, "127.0.0.1:9098")
    who = f"{socket.gethostname()}-{os.getpid()}"
    admits: dict[str, Any] = {"pods": "pods" in given["admits"], "jobs": "jobs" in given["admits"]}
    if given["kinds"] and not admits["jobs"]:
        raise BadInput("--kinds is for --for jobs")
    if given["operators"] and not admits["jobs"]:
        raise BadInput("--operator is for --for jobs")
    admits |= {"kinds": kinds_of(given["kinds"]), "operators": given["operators"]}
    admits["client_ca"] = None if given["client_ca"] is None else Path(given["client_ca"])
    if (given["tls_cert"] is None) != (given["tls_key"] is None):
        raise BadInput("--tls-cert and --tls-key belong together: give both, or neither")
    if given["tls_cert"] is not None:
        files = (Path(given["tls_cert"]), Path(given["tls_key"]))
        return InjectionSettings(listen, probes, sidecar, None, files, who, given["drain"], given["excluded"], **admits)
    installation = _installation(given)
    return InjectionSettings(
        listen, probes, sidecar, installation, None, who, given["drain"], given["excluded"], **admits
    )


def _installation(given: Mapping[str, Any]) -> Installation:
    try:
        from backoff_ctrl.api.webhooks.certificates import MUTATING, VALIDATING, Installation  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("backoff_ctrl"):
            raise
        raise BadInput(
            "certificates of its own need a further package: pip install 'backoff-ctrl[proxy]', or give --tls-cert"
        ) from None
    namespace = given["namespace"]
    if namespace is None:
        with suppress(OSError):  # outside a pod
            namespace = _NAMESPACE.read_text().strip()
    if not namespace:
        raise BadInput("outside a pod, --namespace must say where the Service and the Secret are")
    admits = given["admits"]
    kinds = (*((MUTATING,) if {"pods", "jobs"} & {*admits} else ()), *((VALIDATING,) if "tasks" in admits else ()))
    return Installation(namespace, given["secret"], given["service"], given["webhook"], kinds)


def _sidecar(given: Mapping[str, Any]) -> SidecarSettings:
    default = SidecarSettings()
    requests = {**default.requests, **_amounts("--request", given["request"])}
    limits = {**default.limits, **_amounts("--limit", given["limit"])}
    if wrong := wrong_amounts(requests, limits):
        raise BadInput(f"the sidecar's {wrong}")
    _check_args(given["sidecar_arg"])
    return SidecarSettings(
        given["image"],
        given["pull_policy"],
        requests,
        limits,
        tuple(given["sidecar_arg"]),
        tuple({"name": name, "value": value} for name, value in _pairs("--sidecar-env", given["sidecar_env"])),
    )


def _check_args(args: tuple[str, ...]) -> None:
    """Refuse arguments with which sidecars, and so their pods, would not start."""
    for each in args:
        name = each.partition("=")[0]
        if name in OWN_ARGS or not name.startswith("--"):
            raise BadInput(
                f"--sidecar-arg: {each!r} can't be given: write NAME=VALUE, of what the webhook does not set"
            )
    try:
        with proxy.make_context("proxy", ["--listen=127.0.0.1:0", *args]) as context:
            hold, total, answer = (context.params[name] for name in ("hold", "hold_total", "answer"))
            HoldSettings(hold, total, answer)
    except (click.ClickException, OptionError) as error:
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise BadInput(f"--sidecar-arg: {said}") from None


def _amounts(option: str, given: tuple[str, ...]) -> dict[str, str]:
    found = dict(_pairs(option, given))
    for amount in found.values():
        try:
            parse_quantity(amount)
        except QuantityError as error:
            raise BadInput(f"{option}: {error}") from None
    return found


def _pairs(option: str, given: tuple[str, ...]) -> list[tuple[str, str]]:
    for each in given:
        if not each.partition("=")[0] or "=" not in each:
            raise BadInput(f"{option} must be NAME=VALUE, not {each!r}")
    return [(each.partition("=")[0], each.partition("=")[2]) for each in given]


def _print(source: str, sidecar: SidecarSettings) -> None:
    """Print the pods of a file as the webhook would change them; other objects stay unchanged."""
    try:
        manifests = load_manifests(read_source(source), "stdin" if source == "-" else source)
    except ManifestError as error:
        raise BadInput(str(error)) from None
    documents = []
    for manifest in manifests:
        pod = json.loads(json.dumps(manifest))
        what = inject(with_account(pod), sidecar) if pod.get("kind") == "Pod" else None
        for warning in _unasked(pod) if what is None else (*_unasked(pod), *what.warnings):
            click.echo(f"backoff-ctrl: {warning}", err=True)
        documents.append(pod if what is None or what.pod is None else what.pod)
    click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)


def _unasked(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why the webhook would not be called for a manifest."""
    found = metadata_of(manifest)
    named = f"{manifest.get('kind')} {found.get('name') or found.get('generateName') or ''}".rstrip()
    if manifest.get("kind") != "Pod":
        return (f"{named} is not a pod and stays unchanged: the webhook is called for the pods that are made from it",)
    if labels_of(manifest).get(LABEL) != "true":
        return (f'{named} lacks the label {LABEL}: "true", without which the webhook is not called for it',)
    return ()
