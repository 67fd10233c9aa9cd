"""Parse the sentence with which Kubernetes' quota admission rejects: quota, requested, used, limited.

The wording comes from ``k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go``. It is the only thing
that tells a full quota from missing rights, so it is recognised in everything that other programs wrap around it:
prefixes, quotes, a trailing full stop or bracket, JSON inside a log line, a list of errors (the first quota counts),
and hierarchical quotas, whose sentence begins differently.
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

# The sentence as API servers send it, up to its closing quote. Without the first letter, which some write as a capital.
_PLAIN: Final = re.compile(
    r'xceeded quota: ([^\s"\\,]+), requested: ([^\s"\\]+), used: ([^\s"\\]+), limited: ([^\s"\\]+)"'
)
# Every repetition excludes the character after it, and no list contains white space, so matching is linear.
_ANY_HEAD: Final = re.compile(
    r'[Ee]xceeded (?:hierarchical )?quota(?: in namespace "[^"\s]{0,253}")?: "?([^\s,"]{1,253})"?,'
    r" requested: (\S+), used: (\S+), limited: (\S+)"
)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
# Servers write no leading zeros: "pods=015 times" is "pods=0" followed by the count of an event.
_LEADING_QUANTITY: Final = re.compile(
    r"0(?=[0-9])|[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE])?(?![A-Za-z0-9])"
)


_Plain: TypeAlias = "tuple[str, Mapping[str, int], Mapping[str, int], Mapping[str, int], int, int]"


class QuotaText(NamedTuple):
    """The content of one rejection. Amounts are in nano-units, and only for the resources that it names."""

    quota: str
    requested: Mapping[str, int]
    used: Mapping[str, int]
    limited: Mapping[str, int]


def read_quota_text(text: str) -> QuotaText | None:
    """Return the first complete quota rejection in a one-line text, None if there is none."""
    for found in _ANY_HEAD.finditer(text):
        quota, requested, used, limited = found.groups()
        read = QuotaText(quota, read_amounts(requested), read_amounts(used), read_amounts(limited))
        if not read.requested.keys().isdisjoint(read.limited):
            return read
    return None


def read_plain_quota_text(text: str) -> _Plain | None:
    """Read the rejection in the exact form that API servers send: the whole sentence, then a closing quote.

    This is the fast path: ``text`` is unparsed JSON. Returns the quota, the amounts, and the start and end index of
    the sentence; None for any other form, which ``read_quota_text`` has to read.
    """
    found = _PLAIN.search(text)
    if found is None:
        return None
    quota, requested, used, limited = found.groups()
    try:
        asked = _repeated_amounts(requested)
        taken = _plain_amounts(used)
        limits = _repeated_amounts(limited)
    except ValueError:  # not a quantity, or no "=": left to read_quota_text
        return None
    if not len(asked) == len(taken) == len(limits):
        return None
    for name in taken:
        if name not in asked or name not in limits:
            return None
    return quota, asked, taken, limits, found.start(), found.end() - 1


def read_amounts(items: str) -> dict[str, int]:
    """Read ``K=V,K=V`` up to the first item that is malformed; text glued to a value ends the list."""
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
    """Read exactly ``K=V,K=V``. Raises ``ValueError`` for anything else."""
    amounts = {}
    for item in items.split(","):
        name, value = item.split("=")
        amounts[name] = parse_quantity(value)
    return amounts


@lru_cache(maxsize=1024)
def _repeated_amounts(items: str) -> Mapping[str, int]:
    """Read a list that many rejections repeat: the request of a shape, or the limits of a quota. Cached.

    Also checks the names. Raises ``ValueError`` as ``_plain_amounts`` does.
    """
    amounts = _plain_amounts(items)
    if not all(map(_NAME.fullmatch, amounts)):
        raise ValueError(f"not a list of resources: {items[:80]}")
    return MappingProxyType(amounts)
