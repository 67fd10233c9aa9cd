"""``make cluster``: a Kubernetes control plane for manual use, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.cluster.control_plane.bed import Bed, BedError
from tests.cluster.control_plane.binaries import BinariesError, build, wanted


def main() -> int:
    """Start it, print how to use it, and stop it on a signal. Returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        binaries = wanted()
        build(binaries, _tell)
        with Bed(binaries, logs=Path("build") / "cluster-logs", say=_tell) as bed:
            _tell(
                f"\nKubernetes v{binaries.recipe.version} is ready at {bed.server.url}. It has no nodes: pods stay "
                "Pending.\nCtrl-C stops it and deletes everything in it. In another terminal:\n"
            )
            print(f"export KUBECONFIG={bed.server.kubeconfig()}", flush=True)
            _tell(f"\nkubectl of the same version: {binaries.kubectl}")
            signal.pause()
    except KeyboardInterrupt:
        _tell("\nstopped")
    except (BedError, BinariesError) as error:
        _tell(str(error))
        return 1
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
