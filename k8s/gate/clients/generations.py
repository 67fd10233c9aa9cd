"""Which generation of the official client is installed, and which versions are supported.

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


def is_since_37(package: str) -> bool:
    """Return whether the client has the interface of 37 and later. Raises ``ImportError`` if it can't be gated."""
    name = package.partition(".")[0]
    try:
        api_client = import_module(f"{package}.client").ApiClient
    except ModuleNotFoundError as error:
        raise ImportError(f"GatedApiClient needs {_wanted(name)}: {_remedy(name)}", name=name) from error
    _warn_if_untested(name)
    if not hasattr(api_client, "param_serialize") and not hasattr(api_client, "request"):
        said = f"this version of {name} has no method by which creates can be gated: use {_wanted(name)}"
        raise ImportError(f"{said}; {_remedy(name)}", name=package)
    return hasattr(api_client, "param_serialize")


@cache
def _warn_if_untested(name: str) -> None:
    found = str(getattr(import_module(name), "__version__", "of an unknown version"))
    if wrong := _untested(name, found):
        log.warning("%s", wrong)


def asyncio_package(configuration: Any) -> str:
    """Return the package whose client is meant: that of the configuration, else the one that the program uses.

    Without a configuration that is the package which has a default configuration (``load_kube_config`` sets it), else
    the one that is imported, else the one that is installed. Raises ``TypeError`` if two are left, or if the
    configuration is not for asyncio, and ``ImportError`` if it is missing.
    """
    if configuration is not None:
        modules = [each.__module__ for each in type(configuration).__mro__]
        for package in ASYNCIO:
            if any(module.startswith(f"{package}.") for module in modules):
                return package
        raise TypeError(
            f"AsyncGatedApiClient needs a configuration of {' or '.join(ASYNCIO)}, not {modules[0]}."
            f"{type(configuration).__name__}; GatedApiClient is the one for threads"
        )
    imported = [package for package in ASYNCIO if f"{package}.client" in sys.modules]
    configured = [
        package
        for package in imported
        if getattr(sys.modules[f"{package}.client"].Configuration, "_default", None) is not None
    ]
    left = configured or imported or [package for package in ASYNCIO if _is_importable(package)][:1]
    if not left:
        name = "kubernetes_asyncio"
        needs = f"AsyncGatedApiClient needs {_wanted(name)} or {_wanted('kubernetes')}: {_remedy(name)}"
        raise ImportError(needs, name=name)
    if len(left) > 1:
        raise TypeError(
            f"both {' and '.join(left)} are in use here: say which one is meant by its configuration, for example "
            "AsyncGatedApiClient(client.Configuration.get_default_copy())"
        )
    return left[0]


def _is_importable(package: str) -> bool:
    try:
        import_module(f"{package}.client")
    except ModuleNotFoundError:
        return False
    return True


def installed() -> Iterator[tuple[str, str, str]]:
    """Yield name and version of each official client that is installed, and what is wrong with it, or an empty text."""
    for name in SUPPORTED:
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        yield name, found, _untested(name, found)


def _untested(name: str, found: str) -> str:
    oldest, newest = SUPPORTED[name]
    major = found.partition(".")[0]
    supported = major.isdecimal() and oldest <= int(major) <= newest
    return "" if supported else f"{name} {found} is not supported: {_wanted(name)} is; {_remedy(name)}"


def _wanted(name: str) -> str:
    return "{} {} to {}".format(name, *SUPPORTED[name])


def _remedy(name: str) -> str:
    oldest, newest = SUPPORTED[name]
    return f"pip install '{name}>={oldest},<{newest + 1}'"
