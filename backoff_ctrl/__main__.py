"""The console scripts: ``backoff-ctrl``, the plugin ``kubectl backoff``, and ``python -m backoff_ctrl``."""

from __future__ import annotations

import signal
import sys

from backoff_ctrl.ending import stopped


def main(*, as_plugin: bool = False) -> None:
    """Run the command line. From its first moment on, while it still loads, SIGTERM ends it as Ctrl-C does.

    (A kubelet that changes its mind sends one within the first second. Commands set handlers of their own later.)
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from backoff_ctrl.api.main import KUBECTL, PROGRAM, run  # noqa: PLC0415 - it takes a tenth of a second

        code = run(sys.argv[1:], KUBECTL if as_plugin else PROGRAM)
    except KeyboardInterrupt:
        code = stopped(sys.argv[1:])
    sys.exit(code)


def kubectl() -> None:
    """Run it as ``kubectl backoff``: kubectl runs the program ``kubectl-backoff`` that it finds on the PATH."""
    main(as_plugin=True)


def kubectl_complete() -> None:
    """Complete ``kubectl backoff ...``: kubectl runs ``kubectl_complete-backoff`` with the words so far."""
    from backoff_ctrl.api.main import for_kubectl  # noqa: PLC0415

    sys.stdout.write(for_kubectl(sys.argv[1:]))


if __name__ == "__main__":
    main()
