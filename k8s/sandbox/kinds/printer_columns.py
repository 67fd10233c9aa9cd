"""Columns that a CustomResourceDefinition defines for its kind: ``additionalPrinterColumns``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

_STEP = re.compile(r'\.([^.\[\]]+)|\[(\d+)\]|\[\?\(@\.(\w+)\s*==\s*["\']([^"\']*)["\']\)\]')


def value_at(obj: JSON, path: str) -> Any:
    """The value at a JSONPath of names, indexes and equality filters; None where there is none."""
    value: Any = obj
    for name, index, field, wanted in _STEP.findall(path):
        if name:
            value = value.get(name) if isinstance(value, dict) else None
        elif not isinstance(value, list):
            return None
        elif index:
            value = value[int(index)] if int(index) < len(value) else None
        else:
            value = next((each for each in value if isinstance(each, dict) and str(each.get(field)) == wanted), None)
    return value
