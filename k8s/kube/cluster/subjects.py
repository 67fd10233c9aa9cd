"""Asks the API server what another account may do: a SubjectAccessReview for each right of each account.

Its answers are cached for ten seconds: who applies a thousand objects is asked about once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from backoff_ctrl.k8s.kube.recent import Recent

from .asking import Reach, ReachError
from .rights import Right

KEPT: Final = 10.0
"""Seconds that an answer of the API server is cached."""
KEPT_MAX: Final = 4096
_RIGHTS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class UnansweredError(Exception):
    """The API server did not say; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An account, as the API server describes it in a TokenReview and in an AdmissionReview."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    """What else its authenticator says of it, such as the scopes of its token."""

    @classmethod
    def of(cls, user: Mapping[str, Any]) -> Self:
        """Return the subject that a UserInfo of ``authentication.k8s.io/v1`` describes."""
        extra = user.get("extra") or {}
        return cls(
            str(user.get("username") or ""),
            str(user.get("uid") or ""),
            tuple(user.get("groups") or ()),
            tuple(sorted((key, tuple(values or ())) for key, values in extra.items())),
        )

    def asking(self, right: Right, namespace: str) -> dict[str, Any]:
        """Return the spec of the question whether it has a right in a namespace; empty: in all of them."""
        return {
            "user": self.name,
            "uid": self.uid,
            "groups": list(self.groups),
            "extra": {key: list(values) for key, values in self.extra},
            "resourceAttributes": right.attributes(namespace),
        }


class Subjects:
    """The rights of accounts. Its methods block: call them in a thread."""

    def __init__(self, reach: Reach, remedy: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``remedy``: what to do if our own account may not ask. ``clock`` returns seconds."""
        self._reach = reach
        self._remedy = remedy
        self.answers = Recent(KEPT, KEPT_MAX, clock)

    def may(self, subject: Subject, namespace: str, right: Right) -> bool:
        """Return whether an account has a right in a namespace; empty: in all. Raises ``UnansweredError``."""

        spec = subject.asking(right, namespace)
        # Strangers may ask, too: what is cached of a question must not grow with it.
        key = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).digest()

        def ask() -> bool:
            said = self.review(_RIGHTS, "SubjectAccessReview", "authorization.k8s.io/v1", spec)
            return said.get("allowed") is True

        return self.answers.get(("right", key), ask)

    def review(self, path: str, kind: str, version: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the status of a review that the API server answers. Raises ``UnansweredError``."""
        try:
            status, answer = self._reach.ask("POST", path, {"apiVersion": version, "kind": kind, "spec": spec})
        except ReachError as error:
            raise UnansweredError(f"the API server does not say who may do this: {error}") from None
        found = answer.get("status")
        if status not in (200, 201) or not isinstance(found, dict):
            raise UnansweredError(f"the API server does not say who may do this ({status} to a {kind}): {self._remedy}")
        return found
