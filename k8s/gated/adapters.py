"""Which adapter serves the official client that is installed, and which versions are supported.

What decides is what the client offers, not its number: since 37 ``ApiClient`` has ``param_serialize``, before that
everything goes through ``ApiClient.request``. A version that offers neither is refused with a sentence; one that fits,
but that our tests do not run on, is used, and a warning says so once.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

log = logging.getLogger(__name__)

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {"kubernetes": (31, 37), "kubernetes_asyncio": (31, 36)}
"""The oldest and the newest major version of each that the tests run on; ``kubernetes.aio`` is since 36."""
ASYNCIO: Final = ("kubernetes.aio", "kubernetes_asyncio")
"""The packages with a client for asyncio, the official one first."""


def thread_adapter() -> type:
    """Return the adapter for the ``kubernetes`` that is installed. Raises ``ImportError`` with what to do."""
    try:
        api_client = import_module("kubernetes.client").ApiClient
    except ModuleNotFoundError as error:
        raise ImportError(_needed("GatedApiClient", "kubernetes"), name="kubernetes") from error
    _check("kubernetes")
    if hasattr(api_client, "param_serialize"):
        return import_module(f"{__package__}.since_37").Since37  # type: ignore[no-any-return]
    if hasattr(api_client, "request"):
        return import_module(f"{__package__}.until_36").Until36  # type: ignore[no-any-return]
    raise ImportError(_unfit("kubernetes"), name="kubernetes")


@cache
def asyncio_adapter(package: str) -> type:
    """Return a client class of this package with its adapter mixed in. Raises ``ImportError`` with what to do."""
    client = import_module(f"{package}.client")
    _check(package.partition(".")[0])
    if hasattr(client.ApiClient, "param_serialize"):
        return import_module(f"{__package__}.aio_since_37").adapted(client)  # type: ignore[no-any-return]
    if hasattr(client.ApiClient, "request"):
        return import_module(f"{__package__}.aio_until_36").adapted(client)  # type: ignore[no-any-return]
    raise ImportError(_unfit(package), name=package)


def asyncio_package(configuration: Any) -> str:
    """Return the package whose client is meant: that of the configuration, else the one that the program uses.

    Without a configuration that is the package which has a default configuration (``load_kube_config`` sets it), else
    the one that is imported, else the one that is installed. Raises ``TypeError`` if two are left, or if the
    configuration is not for asyncio, and ``ImportError`` if there is none.
    """
    if configuration is not None:
        return _package_of(configuration)
    imported = [package for package in ASYNCIO if f"{package}.client" in sys.modules]
    configured = [package for package in imported if _has_default(package)]
    left = configured or imported or [package for package in ASYNCIO if _is_importable(package)][:1]
    if not left:
        raise ImportError(_needed("AsyncGatedApiClient", "kubernetes_asyncio", "kubernetes"), name="kubernetes_asyncio")
    if len(left) > 1:
        raise TypeError(
            f"both {' and '.join(left)} are in use here: say which one is meant by its configuration, for example "
            "AsyncGatedApiClient(client.Configuration.get_default_copy())"
        )
    return left[0]


def _package_of(configuration: Any) -> str:
    modules = [each.__module__ for each in type(configuration).__mro__]
    for package in ASYNCIO:
        if any(module.startswith(f"{package}.") for module in modules):
            return package
    raise TypeError(
        f"AsyncGatedApiClient needs a configuration of {' or '.join(ASYNCIO)}, not {modules[0]}."
        f"{type(configuration).__name__}; GatedApiClient is the one for threads"
    )


def _has_default(package: str) -> bool:
    return getattr(sys.modules[f"{package}.client"].Configuration, "_default", None) is not None


def _is_importable(package: str) -> bool:
    try:
        import_module(f"{package}.client")
    except ModuleNotFoundError:
        return False
    return True


# -- versions ---------


def installed() -> Iterator[tuple[str, str, str]]:
    """Yield name and version of each official client that is installed, and what is wrong with it: empty if nothing."""
    for name in SUPPORTED:
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        yield name, found, "" if _is_supported(name, found) else _untested(name, found)


@cache
def _check(name: str) -> None:
    """Warn once about a version that the tests do not run on."""
    found = str(getattr(import_module(name), "__version__", "of an unknown version"))
    if not _is_supported(name, found):
        log.warning("%s", _untested(name, found))


def _is_supported(name: str, found: str) -> bool:
    oldest, newest = SUPPORTED[name]
    major = found.partition(".")[0]
    return major.isdecimal() and oldest <= int(major) <= newest


def _untested(name: str, found: str) -> str:
    return f"{name} {found} is not supported: {_wanted(name)} is; {_remedy(name)}"


def _unfit(package: str) -> str:
    name = package.partition(".")[0]
    return f"this version of {name} offers nothing that creates can be gated by: use {_wanted(name)}; {_remedy(name)}"


def _needed(who: str, *names: str) -> str:
    return f"{who} needs {' or '.join(_wanted(name) for name in names)}: {_remedy(names[0])}"


def _wanted(name: str) -> str:
    oldest, newest = SUPPORTED[name]
    return f"{name} {oldest} to {newest}"


def _remedy(name: str) -> str:
    oldest, newest = SUPPORTED[name]
    return f"pip install '{name}>={oldest},<{newest + 1}'"
