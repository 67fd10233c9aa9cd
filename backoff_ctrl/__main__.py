"""The console script, and ``python -m backoff_ctrl``."""

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


if __name__ == "__main__":
    main()
