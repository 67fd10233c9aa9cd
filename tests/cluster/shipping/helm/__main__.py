"""Build helm if need be, and link it into a folder: ``python -m tests.cluster.shipping.helm FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cluster.shipping.helm.programs import HELM

if __name__ == "__main__":
    HELM.build(lambda line: print(line, file=sys.stderr, flush=True))
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "helm"
    link.unlink(missing_ok=True)
    link.symlink_to(HELM.path("helm"))
