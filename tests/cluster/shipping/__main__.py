"""Write the goldens of the chart anew: ``python -m tests.cluster.shipping``."""

from __future__ import annotations

import sys

from tests.cluster.shipping.helm.programs import HELM
from tests.cluster.shipping.rendering import DATA, goldens

if __name__ == "__main__":
    HELM.build(lambda line: print(line, file=sys.stderr, flush=True))
    for name, text in goldens().items():
        (DATA / name).write_text(text)
