"""The official clients that the tests use. That for asyncio is ``kubernetes.aio``, or what the environment names.

``make test-clients`` runs them on ``kubernetes_asyncio`` as well.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from inspect import signature
from typing import Any, Final

import pytest
from kubernetes.client import ApiClient

from backoff_ctrl.k8s.kube.cluster.finding import find_place

AIO: Final = os.environ.get("BACKOFF_TEST_AIO", "kubernetes.aio")
"""The name of the package."""

for _required in os.environ.get("BACKOFF_TEST_CLIENTS", "").split():  # of a run on other versions
    _name, _, _wanted = _required.partition("==")
    assert version(_name) == _wanted, f"{_name} {version(_name)} is tested instead of {_wanted}"

aio: Final[Any] = import_module(f"{AIO}.client")
aio_config: Final[Any] = import_module(f"{AIO}.config")
AioDynamicClient: Final[Any] = import_module(f"{AIO}.dynamic").DynamicClient if find_spec(f"{AIO}.dynamic") else None
"""None: ``kubernetes.aio`` of 36 has none."""

SINCE_37: Final = hasattr(ApiClient, "param_serialize")
AIO_SINCE_37: Final = hasattr(aio.ApiClient, "param_serialize")
HAS_REQUEST_AUTH: Final = SINCE_37 or "_request_auth" in signature(ApiClient.call_api).parameters
only_since_37: Final = pytest.mark.skipif(not SINCE_37, reason="about the way of kubernetes 37 and later")


def token(header: str) -> dict[str, str]:
    """Return the ``api_key`` of a configuration: older clients know one name of it, each another one."""
    return {"authorization": header, "BearerToken": header}


def skip_without_proxy(kubeconfig: str) -> None:
    """Skip a test of proxies on an older client, which takes none from a kubeconfig or from the environment."""
    if find_place(None, kubeconfig, None, None).configuration.proxy is None:
        pytest.skip("this client takes no proxy from there")
