"""The sentence with which Kubernetes' quota admission refuses: quota, requested, used, limited.

Its words come from ``k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go``; they are the only
thing that tells a full quota from missing rights, so they are read in every coat that other programs put
around them: prefixes, quotes, a trailing full stop or bracket, a JSON text inside a log line, a list of
errors (the first quota counts), hierarchical quotas with a head of their own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

# The sentence as API servers send it, up to the quote that closes it; some write it with a capital.
_PLAIN: Final = re.compile(
    r'xceeded quota: ([^\s"\\,]+), requested: ([^\s"\\]+), used: ([^\s"\\]+), limited: ([^\s"\\]+)"'
)
# Every repetition excludes what follows it, and no list holds white space: one pass, whatever the text.
_ANY_HEAD: Final = re.compile(
    r'[Ee]xceeded (?:hierarchical )?quota(?: in namespace "[^"\s]{0,253}")?: "?([^\s,"]{1,253})"?,'
    r" requested: (\S+), used: (\S+), limited: (\S+)"
)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
# Servers write no leading zeros: "pods=015 times" is "pods=0" with the count of an event glued to it.
_LEADING_QUANTITY: Final = re.compile(
    r"0(?=[0-9])|[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE])?(?![A-Za-z0-9])"
)


_Plain: TypeAlias = "tuple[str, Mapping[str, int], Mapping[str, int], Mapping[str, int], int, int]"


class QuotaText(NamedTuple):
    """What one refusal says: amounts in nano-units, only of the resources that it names."""

    quota: str
    requested: Mapping[str, int]
    used: Mapping[str, int]
    limited: Mapping[str, int]


def read_quota_text(text: str) -> QuotaText | None:
    """Find the first whole quota refusal in a text of one line; None where there is none."""
    for found in _ANY_HEAD.finditer(text):
        quota, requested, used, limited = found.groups()
        read = QuotaText(quota, read_amounts(requested), read_amounts(used), read_amounts(limited))
        if not read.requested.keys().isdisjoint(read.limited):
            return read
    return None


def read_plain_quota_text(text: str) -> _Plain | None:
    """Read the refusal as API servers send it, fast: the whole sentence, then a closing quote.

    ``text`` is a JSON document that has not been parsed. Returns what it says with the first and the last
    index of its sentence, or None for anything that needs a closer look.
    """
    found = _PLAIN.search(text)
    if found is None:
        return None
    quota, requested, used, limited = found.groups()
    try:
        asked = _repeated_amounts(requested)
        taken = _plain_amounts(used)
        limits = _repeated_amounts(limited)
    except ValueError:  # not a quantity, or no "=": the reader of other coats decides
        return None
    if not len(asked) == len(taken) == len(limits):
        return None
    for name in taken:
        if name not in asked or name not in limits:
            return None
    return quota, asked, taken, limits, found.start(), found.end() - 1


def read_amounts(items: str) -> dict[str, int]:
    """Read ``K=V,K=V`` up to the first thing that is not one; junk after a value is cut off."""
    amounts: dict[str, int] = {}
    for item in items.split(","):
        name, _, value = item.partition("=")
        leading = _LEADING_QUANTITY.match(value)
        if leading is None or _NAME.fullmatch(name) is None:
            break
        try:
            amounts[name] = parse_quantity(leading.group())
        except QuantityError:
            break
        if leading.end() != len(value):
            break
    return amounts


def _plain_amounts(items: str) -> dict[str, int]:
    """Read ``K=V,K=V`` with nothing around it; raise ``ValueError`` for anything else."""
    amounts = {}
    for item in items.split(","):
        name, value = item.split("=")
        amounts[name] = parse_quantity(value)
    return amounts


@lru_cache(maxsize=1024)
def _repeated_amounts(items: str) -> Mapping[str, int]:
    """Read what many refusals have in common: the request of a shape, the limits of a quota.

    Names are checked here, once; raises ``ValueError`` as ``_plain_amounts`` does.
    """
    amounts = _plain_amounts(items)
    if not all(map(_NAME.fullmatch, amounts)):
        raise ValueError(f"not a list of resources: {items[:80]}")
    return MappingProxyType(amounts)
