"""Draws the name of an object on the client before the first send, so that no create is ever stored twice.

The API server draws the random part of a ``generateName`` only when it stores the object, so after a lost answer
no object can be recognised as ours. The gate draws it earlier, with a longer suffix (10 characters of 27 make
2 x 10^14 names), and adds an annotation that identifies the create that made the object. With an idempotency key a
second annotation holds a hash of the requested body: the server's defaults change what is stored.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.fields import annotations_of, mapping, mapping_in, metadata_of, text

CREATE_ID: Final = "backoff-ctrl.dev/create-id"
"""The annotation that identifies our object among objects of the same name."""
WAIT_LABEL: Final = "backoff-ctrl.dev/wait"
"""The label of an object, or of a namespace, whose Jobs are to wait for room; its value is ``true``."""
GANG_LABEL: Final = "backoff-ctrl.dev/gang"
"""The label of pods that others make for a gang; its value is the gang's ``label``."""
BODY_HASH: Final = "backoff-ctrl.dev/body-hash"
"""The annotation of a create with a key: the hash of the requested body."""
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

    def keeps(self, create_id: object) -> bool:
        """Return whether an id in a body is that of a trusted gate in front of this one."""
        gate, slash, digits = create_id.partition("/") if isinstance(create_id, str) else ("", "", "")
        return bool(slash and digits) and gate in self.trusted


UNSIGNED: Final = Signature()
"""A gate without a name, which trusts no other gate."""


@dataclass(frozen=True, slots=True)
class Named:
    """A create with its final name. ``name`` is empty if the body has no name: the server will refuse that."""

    given: Mapping[str, Any]  # the caller's body
    name: str
    create_id: str
    minted: bool  # we drew the name: no other client has a reason to use it
    keyed: bool  # derived from an idempotency key: an earlier process may have made it already
    body_hash: str  # of the requested body, where there is a key; empty: not known
    kept: bool  # the id is that of a trusted gate in front of this one: the body carries it already
    applied: bool = False  # a server-side apply: sending it again has no effect, so its object needs no id

    def made(self, annotations: object) -> bool:
        """Return whether an object with these annotations is the one that this create made, or would make."""
        found = text(mapping(annotations).get(CREATE_ID))
        # A gate that was renamed between two processes still knows its objects.
        return bool(found) and found.rpartition("/")[2] == self.create_id.rpartition("/")[2]

    def asked_otherwise(self, annotations: Mapping[str, Any]) -> bool:
        """Return whether the object of this create was requested with another body."""
        found = text(annotations.get(BODY_HASH))
        return bool(self.body_hash and found) and found != self.body_hash

    @property
    def body(self) -> dict[str, Any]:
        """The body to send. The caller's is not modified; the changed parts are copies."""
        metadata = dict(metadata_of(self.given))
        if self.minted:
            metadata["name"] = self.name
        if not self.kept:
            metadata["annotations"] = annotations = dict(mapping(metadata.get("annotations")))
            annotations.pop(BODY_HASH, None)  # copied, as the id was
            annotations[CREATE_ID] = self.create_id
            if self.body_hash:
                annotations[BODY_HASH] = self.body_hash
        return {**self.given, "metadata": metadata}


def name_create(  # noqa: PLR0913 - each is another fact about the create
    body: Mapping[str, Any],
    *,
    namespace: str,
    resource: str,
    key: str | None,
    rng: random.Random,
    signature: Signature = UNSIGNED,
    asked: Mapping[str, Any] | None = None,
    digits: int | None = None,
) -> Named:
    """Give the create a name and an id, both derived from ``key`` if there is one, else random.

    A create id that the body already carries is kept if it comes from a gate in front of this one that ``signature``
    trusts: that gate must recognise its object. ``asked`` is the body as its caller gave it, if that is another.
    ``digits``: 128 bits that were drawn for it before, so that it has the same id whenever it is named.
    """
    metadata = metadata_of(body)
    prefix, name = metadata.get("generateName"), metadata.get("name")
    name_digits = digits = rng.getrandbits(128) if digits is None else digits
    body_hash = ""
    if key is not None:
        seed = f"{namespace}\0{resource}\0{name or prefix or ''}\0{key}"
        digits, name_digits, body_hash = _digits("id", seed), _digits("name", seed), hash_of(asked or body)
    create_id, kept = identify(body, digits, signature)
    minted = not name and isinstance(prefix, str) and bool(prefix)
    if minted:
        name = mint(str(prefix), name_digits)
    return Named(body, text(name), create_id, minted, key is not None, body_hash, kept)


def identify(body: Mapping[str, Any], digits: int, signature: Signature) -> tuple[str, bool]:
    """Return the create id of a body, and whether it is kept: that of a trusted gate, else one of these digits."""
    if signature.trusted:
        given = annotations_of(body).get(CREATE_ID)
        if signature.keeps(given):
            return str(given), True
    return (f"{signature.name}/{digits:032x}" if signature.name else f"{digits:032x}"), False


def hash_of(body: Mapping[str, Any]) -> str:
    """Hash the body without our own annotations. Empty if it can't be written as JSON."""
    metadata = metadata_of(body)
    annotations = mapping_in(metadata, "annotations").items()
    theirs = {name: value for name, value in annotations if name not in (CREATE_ID, BODY_HASH)}
    plain = {**body, "metadata": {**metadata, "annotations": theirs}}
    try:
        written = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return ""  # the client will say what is wrong with it
    return hashlib.sha256(written.encode()).hexdigest()[:32]


def mint(prefix: str, digits: int) -> str:
    """Append 10 characters derived from ``digits`` to the prefix, which is cut so that the name fits in 63."""
    suffix = ""
    for _ in range(SUFFIX_LENGTH // 2):
        digits, place = divmod(digits, len(_PAIRS))
        suffix += _PAIRS[place]
    return prefix[: NAME_LENGTH - SUFFIX_LENGTH] + suffix


def _digits(purpose: str, seed: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{purpose}\0{seed}".encode()).digest()[:16], "big")


# -- whose object it is ---------


class Found(StrEnum):
    """What a look-up found under the name."""

    OURS = "made by this create, or by an earlier one with its key"
    OTHERWISE = "made with this key, for another body"
    GOING = "being deleted"
    FOREIGN = "made by another client"
    APPLICABLE = "there, and an apply may change it, even that of another client"


def whose(answer: Answer, named: Named) -> Found | None:
    """Return what a look-up found; None: its answer shows no object."""
    found = answer.json() if answer.ok else None
    if found is None:
        return None
    if named.applied:
        return Found.APPLICABLE
    annotations = annotations_of(found)
    if metadata_of(found).get("deletionTimestamp"):
        return Found.GOING
    if not named.made(annotations):
        return Found.FOREIGN
    return Found.OTHERWISE if named.asked_otherwise(annotations) else Found.OURS
