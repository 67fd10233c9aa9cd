"""A Kubernetes control plane for a person, until Ctrl-C: ``make cluster``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.cluster.control_plane.bed import Bed, BedError
from tests.cluster.control_plane.binaries import BinariesError, build, wanted


def main() -> int:
    """Start it, say how to use it, end it when asked to. Returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        binaries = wanted()
        build(binaries, _tell)
        with Bed(binaries, logs=Path("build") / "cluster-logs", say=_tell) as bed:
            _tell(
                f"\nKubernetes v{binaries.recipe.version} is ready at {bed.server.url}. It has no nodes: pods stay "
                "Pending.\nCtrl-C ends it and removes all that is in it. In another terminal:\n"
            )
            print(f"export KUBECONFIG={bed.server.kubeconfig()}", flush=True)  # noqa: T201
            _tell(f"\nkubectl of the same version: {binaries.kubectl}")
            signal.pause()
    except KeyboardInterrupt:
        _tell("\nended")
    except (BedError, BinariesError) as error:
        _tell(str(error))
        return 1
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
