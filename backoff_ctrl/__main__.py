"""The console scripts: ``backoff-ctrl``, the plugin ``kubectl backoff``, and ``python -m backoff_ctrl``."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from backoff_ctrl.early import listen_early
from backoff_ctrl.ending import SERVERS, stopped


def main(*, as_plugin: bool = False) -> None:
    """Run the command line. From its first moment on, while it still loads, SIGTERM ends it as Ctrl-C does.

    (A kubelet that changes its mind sends one within the first second.) A server that still loads has no state to put
    in order and ends at once; it sets its own handlers when it begins to serve. A ``KeyboardInterrupt`` would not do:
    CPython turns one that falls into ``__set_name__`` into a ``RuntimeError``, and one that falls into ``exec`` of a
    text, as dataclasses do, into an end by the signal, even where it is caught.
    """
    if sys.argv[1:2] and sys.argv[1] in SERVERS:
        signal.signal(signal.SIGINT, _leave)
        signal.signal(signal.SIGTERM, _leave)
        listen_early(sys.argv[1], sys.argv[2:])
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from backoff_ctrl.api.main import KUBECTL, PROGRAM, run  # noqa: PLC0415 - it takes a tenth of a second

        code = run(sys.argv[1:], KUBECTL if as_plugin else PROGRAM)
    except KeyboardInterrupt:
        code = stopped(sys.argv[1:])
    sys.exit(code)


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's arguments
    os._exit(stopped(sys.argv[1:]))


def kubectl() -> None:
    """Run it as ``kubectl backoff``: kubectl runs the program ``kubectl-backoff`` that it finds on the PATH."""
    main(as_plugin=True)


def kubectl_complete() -> None:
    """Complete ``kubectl backoff ...``: kubectl runs ``kubectl_complete-backoff`` with the words so far."""
    from backoff_ctrl.api.main import for_kubectl  # noqa: PLC0415

    sys.stdout.write(for_kubectl(sys.argv[1:]))


if __name__ == "__main__":
    main()
