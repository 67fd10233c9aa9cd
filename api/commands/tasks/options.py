"""What the commands about tasks share: their options, the platform's settings, and where store and cluster are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from backoff_ctrl.api.commands.options import CONTEXT, KUBECONFIG
from backoff_ctrl.api.exits import BadInput

if TYPE_CHECKING:
    from backoff_ctrl.k8s.cluster.finding import ClusterAccess
    from backoff_ctrl.k8s.plugins.config import K8sPluginConfig, PlatformSettings
    from backoff_ctrl.k8s.plugins.registry import Registry


log = logging.getLogger(__name__)

SET: Callable[[Any], Any] = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting that overrides the file, such as plugins.k8s.default-cpus=2. May be repeated.",
)


class Platform:
    """The platform's present settings, and the plugins that it has enabled."""

    def __init__(self, file: str | None, flags: Sequence[str] = ()) -> None:
        """Read the file, and the settings that flags name. Raises ``BadInput``."""
        from backoff_ctrl.k8s.plugins.config_file import ConfigError, LiveSettings  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.registry import Registry  # noqa: PLC0415 - likewise

        self._file = file
        self.registry: Registry = Registry(())
        """The plugins; it follows the settings."""
        try:
            self._live = LiveSettings(None if file is None else Path(file), flags, self._adopt)
        except ConfigError as error:  # its message has the place
            raise BadInput(str(error)) from None

    def _adopt(self, settings: PlatformSettings) -> list[Path]:
        """Use the plugins of these settings; return the files that describe some. Raises ``ConfigError``."""
        from backoff_ctrl.k8s.plugins.config_file import ConfigError  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.descriptions import DescriptionError, files_of  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.generic import entry_of  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.operator_config import OPERATORS  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.protocol import PluginError  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.registry import registry  # noqa: PLC0415 - loads pydantic
        from backoff_ctrl.k8s.plugins.rest.entry import entry_of as service_of  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.rest.service_config import SERVICES  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.webapi.entry import WebPluginEntry  # noqa: PLC0415 - likewise
        from backoff_ctrl.k8s.plugins.webapi.settings import SettingsError, read_section  # noqa: PLC0415 - likewise

        folder = Path() if self._file is None else Path(self._file).parent
        generic, rest, chosen = settings.plugins.generic, settings.plugins.rest, settings.tasks.task_plugins
        where = "" if self._file is None else f"{self._file}: "
        try:
            fresh = registry(
                enabled=chosen.enabled_plugins,
                defaults=chosen.default_for_task_types,
                described=[
                    *map(entry_of, OPERATORS.configured(generic, folder, self._file)),
                    *map(service_of, SERVICES.configured(rest, folder, self._file)),
                ],
            )
            for entry in fresh.entries():
                if isinstance(entry, WebPluginEntry):
                    read_section(entry.id, settings.plugins.section(entry.id), entry.own_keys)
        except DescriptionError as error:
            raise ConfigError(str(error)) from None
        except (PluginError, SettingsError) as error:
            raise ConfigError(f"{where}{error}") from None
        self.registry.become(fresh)
        return [*files_of(generic, folder), *files_of(rest, folder)]

    def config(self) -> K8sPluginConfig:
        """Return the settings of plugins' objects."""
        return self._live.current.k8s

    def section(self, plugin: str) -> Mapping[str, Any]:
        """Return the present section ``plugins.ID`` of a plugin, as it was written."""
        return self._live.current.plugins.section(plugin)

    def policy(self) -> Mapping[str, float]:
        """Return the gate's policy in the settings, which takes effect at the start of the gate."""
        return self._live.current.tasks.backoff.policy()

    def poll(self) -> list[str]:
        """Apply changes of the file, and return them, a line for each key."""
        return self._live.poll()

    async def follow(self) -> None:
        """Apply changes of the file, until cancelled."""
        await self._live.follow(self._note)

    def _note(self, changes: Sequence[str]) -> None:
        if any(each.startswith("tasks.backoff.") for each in changes):
            log.warning("%s: tasks.backoff has changed: it takes effect at the next start", self._file)


F = TypeVar("F", bound=Callable[..., object])

AS_JSON: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else on stdout."
)
NAMESPACE: Final = click.option("-n", "--namespace", metavar="NAME", help="The namespace of the task.")


def place_options(command: F) -> F:
    """Add ``--store``, ``--server`` and ``--token-file``, which choose where the tasks are."""
    for option in (
        click.option("--token-file", metavar="FILE", help="With --server: the file with the token to send."),
        click.option("--server", metavar="URL", help="Ask `backoff-ctrl serve --store` at this URL, not a store here."),
        click.option(
            "--store",
            metavar="FILE",
            help="The store; default: $XDG_STATE_HOME/backoff-ctrl/tasks.db, below ~/.local/state where that is unset.",
        ),
    ):
        command = option(command)
    return command


def cluster_options(command: F) -> F:
    """Add what a manager needs: ``--upstream``, ``--kubeconfig``, ``--context``, ``--config`` and ``--set``."""
    for option in (
        SET,
        click.option("--config", metavar="FILE", help="The platform's settings, as YAML: plugins.k8s and the like."),
        CONTEXT,
        KUBECONFIG,
        click.option(
            "--upstream",
            metavar="URL",
            help="The URL of an API server that needs no credentials, such as the sandbox.",
        ),
    ):
        command = option(command)
    return command


def store_file(store: str | None) -> Path:
    """Return the file of the store. Raises ``BadInput``."""
    from backoff_ctrl.k8s.tasks.store import StoreError  # noqa: PLC0415 - pydantic
    from backoff_ctrl.k8s.tasks.tables import default_file, expanded  # noqa: PLC0415 - sqlite

    try:
        return default_file() if store is None else expanded(store)
    except StoreError as error:
        raise BadInput(str(error)) from None


def manifests_in(files: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the manifests in files, each with its name in errors. Raises ``BadInput``."""
    from backoff_ctrl.k8s.charges.manifests import ManifestError, load_manifests, read_source  # noqa: PLC0415 - yaml

    for file in files:
        name = "stdin" if file == "-" else file
        try:
            found = load_manifests(read_source(file), name)
        except ManifestError as error:
            raise BadInput(str(error)) from None
        for number, manifest in enumerate(found, start=1):
            yield name if len(found) == 1 else f"{name}, document {number}", manifest


def find_cluster(upstream: str | None, kubeconfig: str | None, context: str | None) -> ClusterAccess:
    """Return the cluster that the options choose. Raises ``BadInput``."""
    if upstream is not None and (kubeconfig is not None or context is not None):
        raise BadInput("--upstream cannot be combined with --kubeconfig or --context: give only one of them")
    from backoff_ctrl.k8s.cluster.finding import ReachError, find_place  # noqa: PLC0415 - the client

    try:
        return find_place(upstream, kubeconfig, context, None)
    except ReachError as error:
        raise BadInput(str(error).replace("--server", "--upstream")) from None


def needs_packages() -> None:
    """Raise ``BadInput`` if the packages of the plugin manager are not installed."""
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("pydantic") is None or find_spec("pydantic_settings") is None or find_spec("jsonpath") is None:
        raise BadInput("task needs further packages: pip install 'backoff-ctrl[tasks]'")
