"""Draws the name of an object on the client before the first send, so that no create is ever stored twice.

The API server draws the random part of a ``generateName`` only when it stores the object, so after a lost answer
nothing tells which object is ours. The gate draws it earlier, with a longer suffix (10 characters of 27 make
2 x 10^14 names), and adds an annotation that identifies the create that made the object.
"""

from __future__ import annotations

import hashlib
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

CREATE_ID: Final = "backoff-ctrl.dev/create-id"
"""The annotation that identifies our object among objects of the same name."""
ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own alphabet for random names: no vowels, no digits that look like letters."""
SUFFIX_LENGTH: Final = 10
_PAIRS: Final = [low + high for high in ALPHABET for low in ALPHABET]  # one division draws two characters
NAME_LENGTH: Final = 63  # a DNS label, which every kind accepts
NAMES: Final = random.Random()
"""The source of random names: seeded once per process from the operating system (asking it for each name costs more
than the rest of the naming), and not affected by the caller's ``random.seed``."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=NAMES.seed)  # so that two forks do not draw the same names


@dataclass(frozen=True, slots=True)
class Named:
    """A create with its final name. ``name`` is empty if the body names none: the server will refuse that."""

    body: dict[str, Any]
    name: str
    create_id: str
    minted: bool  # we drew the name: no other client has a reason to use it
    keyed: bool  # derived from an idempotency key: an earlier process may have made it already


def name_create(
    body: Mapping[str, Any], *, namespace: str, resource: str, key: str | None, rng: random.Random
) -> Named:
    """Give the create a name and an id, both derived from ``key`` if there is one, else random.

    The caller's body is not modified; the changed parts are copies. A create id that the body already carries is
    kept: it comes from another gate in front of this one, which must recognise its own object.
    """
    metadata = dict(_mapping(body.get("metadata")))
    annotations = dict(_mapping(metadata.get("annotations")))
    prefix = metadata.get("generateName")
    name = metadata.get("name")
    seed = None if key is None else f"{namespace}\0{resource}\0{name or prefix or ''}\0{key}"
    create_id = annotations.get(CREATE_ID)
    if not isinstance(create_id, str) or not create_id:
        create_id = f"{_digits(seed, 'id', rng):032x}"
    minted = False
    if not name and isinstance(prefix, str) and prefix:
        name, minted = mint(prefix, _digits(seed, "name", rng)), True
        metadata["name"] = name
    metadata["annotations"] = {**annotations, CREATE_ID: create_id}
    named = name if isinstance(name, str) else ""
    return Named({**body, "metadata": metadata}, named, create_id, minted, key is not None)


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
