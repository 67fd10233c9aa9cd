"""The live page beside a program's own work: the application of ``serve``, in a thread of this process."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.cluster.asking import find_place
from backoff_ctrl.k8s.status.address import PORT

from .access import Loopback
from .app import Connecting, make_app
from .listening import GOODBYE, bind
from .observing import Cluster

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

HOST = "127.0.0.1"


@contextmanager
def page_beside(api_server: str, gate: str) -> Iterator[str]:
    """Serve the page of an API server that needs no credentials and of one gate, to this machine; yields its URL."""
    cluster = Cluster(find_place(api_server, None, None, None))
    app = make_app(cluster, Connecting([gate]), Loopback())
    bound = _bound()
    config = uvicorn.Config(app, loop="asyncio", log_level="error", access_log=False, timeout_graceful_shutdown=GOODBYE)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="live page", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{bound.getsockname()[1]}"
    finally:
        app.state.end_streams()
        server.should_exit = True
        thread.join()
        cluster.close()


def _bound() -> socket.socket:
    """Return a socket at the usual port, or at another one if that is in use."""
    try:
        return bind(HOST, PORT)
    except BadInput:
        return bind(HOST, 0)
