"""``serve`` beside a gate that already has its port: the error is a line that works."""

from __future__ import annotations

import socket

import pytest

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.api.status.listening import bind


def test_the_error_says_how_to_serve_beside_the_gate() -> None:
    """The gate keeps its address, and serve asks it there."""
    with socket.create_server(("127.0.0.1", 0)) as gate:
        port = gate.getsockname()[1]
        with pytest.raises(BadInput) as raised:
            bind("127.0.0.1", port)
    other = port + 1 if port < 65535 else port - 1
    line = f"backoff-ctrl serve --listen 127.0.0.1:{other} --gate http://127.0.0.1:{port}"
    assert line in str(raised.value)
