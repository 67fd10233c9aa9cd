"""An HTTP session of the aio client that does not ask the environment again at every request.

aiohttp with ``trust_env``, as the client sets it, looks for a proxy and for a netrc file at each request, in two other
threads (``ClientSession._request``): a tenth of what a create costs the client. Where neither is there when the
session is made, this one does without.
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
    """The client's own, but for its session."""

    def __init__(self, made: RESTClientObject) -> None:
        """Take over what the client has made: reading certificates is what takes long in it."""
        vars(self).update(vars(made))

    def _create_pool_manager(self) -> aiohttp.ClientSession:
        """Make the session, as the client does (its hook for subclasses)."""
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
    """Say whether the environment names a proxy for this URL, or credentials in a netrc file for any."""
    netrc = os.environ.get("NETRC")
    if netrc or any((Path.home() / name).exists() for name in (".netrc", "_netrc")):
        return True
    try:
        get_env_proxy_for_url(URL(host))
    except LookupError:
        return False
    return True
