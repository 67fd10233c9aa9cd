"""The console scripts: ``backoff-ctrl``, the plugin ``kubectl backoff``, and ``python -m backoff_ctrl``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; a Ctrl-C while it still loads ends with a sentence, too."""
    try:
        from backoff_ctrl.api.main import main as command_line  # noqa: PLC0415 - it takes a tenth of a second
    except KeyboardInterrupt:
        sys.stderr.write("backoff-ctrl: stopped\n")
        sys.exit(1)
    command_line()


def kubectl() -> None:
    """Run it as ``kubectl backoff``: kubectl runs the program ``kubectl-backoff`` that it finds on the PATH."""
    from backoff_ctrl.api import main as command_line  # noqa: PLC0415

    command_line.main(command_line.KUBECTL)


def kubectl_complete() -> None:
    """Complete ``kubectl backoff ...``: kubectl runs ``kubectl_complete-backoff`` with the words so far."""
    from backoff_ctrl.api.commands.completion import for_kubectl  # noqa: PLC0415

    sys.stdout.write(for_kubectl(sys.argv[1:]))


if __name__ == "__main__":
    main()
