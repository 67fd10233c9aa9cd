"""Parse the sentence with which Kubernetes' quota admission rejects: quota, requested, used, limited.

The wording comes from ``k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go``. It is the only thing
that distinguishes a full quota from missing rights, so in a log it is recognised in everything that other programs wrap
around it: prefixes, quotes, a trailing full stop or bracket, JSON inside a log line, a list of errors (the first quota
counts), and hierarchical quotas, whose sentence begins differently.

The gate learns from answers, so in an answer the sentence counts only where the server itself puts it. The rest of the
message repeats the request: anybody may ask for a pod, a user or a resource whose name is the sentence, in any
namespace.
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.facts.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

# Every repetition excludes the character after it, and no list contains white space, so matching is linear.
_ANY_HEAD: Final = re.compile(
    r'[Ee]xceeded (?:hierarchical )?quota(?: in namespace "[^"\s]{0,253}")?: "?([^\s,"]{1,253})"?,'
    r" requested: (\S+), used: (\S+), limited: (\S+)"
)
# What the server writes before the sentence: ``NewForbidden`` of apimachinery's ``api/errors``. It puts names in
# quotes, as Go's ``%q`` does, but not the resource, which for a refused right is copied from the URL.
_REFUSED: Final = r"[a-z0-9.-]{1,317}"
_FORBIDDEN: Final = re.compile(rf'{_REFUSED}(?: "(?:[^"\\]|\\.)*")? is forbidden: \[?')
_EXCEEDED_IN_JSON: Final = re.compile(rf'{_REFUSED}(?: \\"[^"\\]*\\")? is forbidden: [Ee]xceeded quota: ')
_DENIED: Final = re.compile(r'admission webhook "[^"\s]{1,253}" denied the request: \[?')
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_QUOTA: Final = re.compile(r'[^\s"\\,]+')
# Servers write no leading zeros: "pods=015 times" is "pods=0" followed by the count of an event.
_LEADING_QUANTITY: Final = re.compile(
    r"0(?=[0-9])|[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE])?(?![A-Za-z0-9])"
)


class QuotaText(NamedTuple):
    """The content of one rejection. Amounts are in nano-units, and only for the resources that it names."""

    quota: str
    requested: Mapping[str, int]
    used: Mapping[str, int]
    limited: Mapping[str, int]


def read_quota_text(text: str) -> QuotaText | None:
    """Return the first complete quota rejection in a one-line text, or None."""
    return next((read for found in _ANY_HEAD.finditer(text) if (read := _complete(found)) is not None), None)


def _complete(found: re.Match[str]) -> QuotaText | None:
    quota, requested, used, limited = found.groups()
    read = QuotaText(quota, read_amounts(requested), read_amounts(used), read_amounts(limited))
    return None if read.requested.keys().isdisjoint(read.limited) else read


def read_told_quota_text(text: str) -> QuotaText | None:
    """Return the quota rejection in a server's message on one line, None if the message says something else.

    It follows the head of the message, or of a webhook's denial, and no quote follows its name: else it would be the
    name, or the resource, in a message that goes on.
    """
    denied = _DENIED.match(text)
    start = denied.end() if denied else 0
    forbidden = _FORBIDDEN.match(text, start)
    found = _ANY_HEAD.match(text, forbidden.end() if forbidden else start)
    return None if found is None or '"' in text[found.start(2) :] else _complete(found)


Plain: TypeAlias = "tuple[int, int, bool, str, Mapping[str, int], Mapping[str, int], Mapping[str, int]]"
"""Where the message begins and ends, whether waiting may help, the quota; requested, used and limited amounts."""


def read_plain_quota_text(text: str) -> Plain | None:
    """Read the rejection in the exact form that API servers send: the whole sentence, then a closing quote.

    This is the fast path: ``text`` is unparsed JSON. None for any other form, which ``read_told_quota_text`` has
    to read.
    """
    start = text.find('"message":"') + 11
    exceeded = _EXCEEDED_IN_JSON.match(text, start) if start > 10 else None
    if exceeded is None:
        return None
    quota, _, amounts = text[exceeded.end() :].partition(", requested: ")
    requested, _, amounts = amounts.partition(", used: ")
    used, _, amounts = amounts.partition(", limited: ")
    limited, quote, behind = amounts.partition('"')
    if not quote:
        return None
    taken: dict[str, int] = {}
    try:
        asked, limits, retryable = _repeated(quota, requested, limited)
        for item in used.split(","):
            name, value = item.split("=")
            if name not in asked:
                return None
            taken[name] = parse_quantity(value)
    except ValueError:  # not a quantity, or no "=": left to read_told_quota_text
        return None
    if len(taken) != len(asked):
        return None
    return start, len(text) - len(behind) - 1, retryable, quota, asked, taken, limits


_MUST_SPECIFY: Final = re.compile(r"[Ff]ailed quota: [^\s:]{1,253}: must specify ")
_UNSPECIFIED: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._/-]*)(?: for: ([a-z0-9-]+(?:,[a-z0-9-]+)*))?([;,] ?|)")


def read_unspecified(text: str) -> dict[str, list[str]]:
    """Return the resources in ``must specify limits.cpu for: a,b; requests.cpu for: b``, each with its containers.

    An older server writes ``must specify limits.cpu,requests.cpu``. Empty if the text has no such sentence.
    """
    found, unspecified = _MUST_SPECIFY.search(text), dict[str, list[str]]()
    at = -1 if found is None else found.end()
    while at >= 0 and (item := _UNSPECIFIED.match(text, at)) is not None:
        name, containers, more = item.groups()
        unspecified[name.rstrip(".")] = containers.split(",") if containers else []
        at = item.end() if more else -1
    return unspecified


def exceeds(requested: Mapping[str, int], limited: Mapping[str, int]) -> bool:
    """Return whether more is requested than the whole quota. A limit of zero means paused, not never."""
    return any(amount > limited.get(name, 0) > 0 for name, amount in requested.items())


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


def _plain_amounts(items: str) -> Mapping[str, int]:
    """Read exactly ``K=V,K=V``. Raises ``ValueError`` for anything else."""
    amounts = {}
    for item in items.split(","):
        name, value = item.split("=")
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"not a resource: {name[:80]}")
        amounts[name] = parse_quantity(value)
    return MappingProxyType(amounts)


@lru_cache(maxsize=1024)
def _repeated(quota: str, requested: str, limited: str) -> tuple[Mapping[str, int], Mapping[str, int], bool]:
    """Read what all refusals of a shape by a quota repeat; return whether the shape fits into the empty quota.

    Raises ``ValueError`` for anything but a quota's name and two lists that name the same resources.
    """
    asked, limits = _plain_amounts(requested), _plain_amounts(limited)
    if _QUOTA.fullmatch(quota) is None or asked.keys() != limits.keys():
        raise ValueError(f"not as a server words it: {quota[:80]}")
    return asked, limits, not exceeds(asked, limits)
