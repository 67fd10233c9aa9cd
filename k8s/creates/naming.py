"""Draws the name of an object on the client before the first send, so that no create is ever stored twice.

The API server draws the random part of a ``generateName`` only when it stores the object, so after a lost answer
nothing tells which object is ours. The gate draws it earlier, with a longer suffix (10 characters of 27 make
2 x 10^14 names), and adds an annotation that identifies the create that made the object. With an idempotency key a
second annotation holds a hash of the body as it was asked for: the server's defaults change what is stored.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

CREATE_ID: Final = "backoff-ctrl.dev/create-id"
"""The annotation that identifies our object among objects of the same name."""
GANG_LABEL: Final = "backoff-ctrl.dev/gang"
"""The label of pods that others make for a gang; its value is the gang's ``label``."""
BODY_HASH: Final = "backoff-ctrl.dev/body-hash"
"""The annotation of a create with a key: the hash of its body as it was asked for."""
ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own alphabet for random names: no vowels, no digits that look like letters."""
SUFFIX_LENGTH: Final = 10
_PAIRS: Final = [low + high for high in ALPHABET for low in ALPHABET]  # one division draws two characters
NAME_LENGTH: Final = 63  # a DNS label, which every kind accepts


@dataclass(frozen=True, slots=True)
class Signature:
    """How a gate signs its create ids, ``name/id``, and the names of the gates whose ids it keeps in a body.

    An id of a gate that is not named here is replaced: it is a copy, as in a manifest exported from a living pod, and
    would make that pod look like the one that was just created.
    """

    name: str = ""
    trusted: frozenset[str] = frozenset()

    def sign(self, digits: str) -> str:
        """Return the create id."""
        return f"{self.name}/{digits}" if self.name else digits

    def keeps(self, create_id: object) -> bool:
        """Say whether an id in a body is that of a trusted gate in front of this one."""
        gate, slash, digits = create_id.partition("/") if isinstance(create_id, str) else ("", "", "")
        return bool(slash and digits) and gate in self.trusted


UNSIGNED: Final = Signature()
"""A gate without a name, which trusts no other."""


@dataclass(frozen=True, slots=True)
class Named:
    """A create with its final name. ``name`` is empty if the body names none: the server will refuse that."""

    given: Mapping[str, Any]  # the caller's body
    name: str
    create_id: str
    minted: bool  # we drew the name: no other client has a reason to use it
    keyed: bool  # derived from an idempotency key: an earlier process may have made it already
    body_hash: str  # of the body as asked for, where there is a key; empty: not known
    kept: bool  # the id is that of a trusted gate in front of this one: the body carries it already

    def made(self, annotations: object) -> bool:
        """Say whether an object with these annotations is the one that this create made, or would make."""
        found = annotations.get(CREATE_ID) if isinstance(annotations, dict) else None
        # A gate that was renamed between two processes still knows its objects.
        return isinstance(found, str) and found.rpartition("/")[2] == self.create_id.rpartition("/")[2]

    def asked_otherwise(self, annotations: Mapping[str, Any]) -> bool:
        """Say whether the object of this create was asked for with another body."""
        found = annotations.get(BODY_HASH)
        return bool(self.body_hash) and isinstance(found, str) and found != self.body_hash

    @property
    def body(self) -> dict[str, Any]:
        """The body to send. It is built for each send: most of its time a create only waits, and a copy takes memory.

        The caller's body is not modified; the changed parts are copies.
        """
        metadata = dict(_mapping(self.given.get("metadata")))
        if self.minted:
            metadata["name"] = self.name
        if not self.kept:
            annotations = {**_mapping(metadata.get("annotations")), CREATE_ID: self.create_id}
            annotations.pop(BODY_HASH, None)  # copied, as the id was
            metadata["annotations"] = annotations | ({BODY_HASH: self.body_hash} if self.body_hash else {})
        return {**self.given, "metadata": metadata}


def name_create(
    body: Mapping[str, Any],
    *,
    namespace: str,
    resource: str,
    key: str | None,
    rng: random.Random,
    signature: Signature = UNSIGNED,
    asked: Mapping[str, Any] | None = None,
) -> Named:
    """Give the create a name and an id, both derived from ``key`` if there is one, else random.

    A create id that the body already carries is kept if it comes from a gate in front of this one that ``signature``
    trusts: that gate must recognise its object. ``asked`` is the body as its caller gave it, if that is another.
    """
    metadata = _mapping(body.get("metadata"))
    prefix = metadata.get("generateName")
    name = metadata.get("name")
    seed = None if key is None else f"{namespace}\0{resource}\0{name or prefix or ''}\0{key}"
    body_hash = "" if key is None else hash_of(asked or body)
    given = _mapping(metadata.get("annotations")).get(CREATE_ID)
    kept = signature.keeps(given)
    create_id = str(given) if kept else signature.sign(f"{_digits(seed, 'id', rng):032x}")
    minted = False
    if not name and isinstance(prefix, str) and prefix:
        name, minted = mint(prefix, _digits(seed, "name", rng)), True
    named = name if isinstance(name, str) else ""
    return Named(body, named, create_id, minted, key is not None, body_hash, kept)


def hash_of(body: Mapping[str, Any]) -> str:
    """Hash what the caller asks for: all of the body but our own annotations. Empty if it can't be written as JSON."""
    metadata = _mapping(body.get("metadata"))
    annotations = _mapping(metadata.get("annotations"))
    theirs = {name: value for name, value in annotations.items() if name not in (CREATE_ID, BODY_HASH)}
    plain = {**body, "metadata": {**metadata, "annotations": theirs}}
    try:
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return ""  # the client will say what is wrong with it
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def mint(prefix: str, digits: int) -> str:
    """Append 10 characters derived from ``digits`` to the prefix, which is cut so that the name fits in 63."""
    suffix = ""
    for _ in range(SUFFIX_LENGTH // 2):
        digits, place = divmod(digits, len(_PAIRS))
        suffix += _PAIRS[place]
    return prefix[: NAME_LENGTH - SUFFIX_LENGTH] + suffix


def _digits(seed: str | None, purpose: str, rng: random.Random) -> int:
    if seed is None:
        return rng.getrandbits(128)
    return int.from_bytes(hashlib.sha256(f"{purpose}\0{seed}".encode()).digest()[:16], "big")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
