"""An HTTP session of the aio client that does not consult the environment at every request.

With ``trust_env``, which the client sets, aiohttp looks for a proxy and a netrc file at each request, in two other
threads (``ClientSession._request``): a tenth of the client's cost of a create. If there is neither when the session is
made, this session does not look again.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp.helpers import get_env_proxy_for_url
from kubernetes.aio.client.rest import RESTClientObject
from yarl import URL

if TYPE_CHECKING:
    import aiohttp


class SparingRestClient(RESTClientObject):
    """The client's own ``RESTClientObject``, with another session."""

    def __init__(self, made: RESTClientObject) -> None:
        """Take over the state of the one that the client made: reading certificates a second time would take long."""
        vars(self).update(vars(made))

    def _create_pool_manager(self) -> aiohttp.ClientSession:
        """Make the session. (This is the client's hook for subclasses.)"""
        given = self.configuration
        if not environment_matters(given.host):
            self.configuration = copy.copy(given)
            extra = getattr(given, "client_session_kwargs", None) or {}
            self.configuration.client_session_kwargs = {"trust_env": False, **extra}
        try:
            return super()._create_pool_manager()
        finally:
            self.configuration = given


def environment_matters(host: str) -> bool:
    """Say whether the environment has a proxy for this URL, or a netrc file with credentials."""
    netrc = os.environ.get("NETRC")
    if netrc or any((Path.home() / name).exists() for name in (".netrc", "_netrc")):
        return True
    try:
        get_env_proxy_for_url(URL(host))
    except LookupError:
        return False
    return True
