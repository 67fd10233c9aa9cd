"""What commands log on stderr: one format, with times in UTC as everywhere else."""

from __future__ import annotations

import logging
import time


def log_to_stderr(level: int) -> None:
    """Log from this level on. Does nothing where logging is set up already."""
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])
