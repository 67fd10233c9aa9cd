"""Who may see what. On loopback everybody sees everything; from other machines a Kubernetes token names the caller.

The API server decides: a TokenReview says whose token it is, a SubjectAccessReview whether that account may list the
quotas of all namespaces, else of the requested one. Its answers are cached for ten seconds.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from backoff_ctrl.k8s.kube.cluster.rights import Right
from backoff_ctrl.k8s.kube.cluster.subjects import KEPT, Subject, Subjects, UnansweredError
from backoff_ctrl.k8s.status.asked import ProblemError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from backoff_ctrl.k8s.kube.cluster.asking import Reach

TOKEN_MAX: Final = 8192
COOKIE: Final = "backoff_ctrl_token"
_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_DELEGATE: Final = "bind the account that serve runs as to the ClusterRole system:auth-delegator"
ANYTHING: Final = Right("list", "resourcequotas")
HOLDERS: Final = Right("list", "pods")
EDITING: Final = Right("update", "resourcequotas")
"""The right that an action on a namespace needs."""


class Loopback:
    """Everybody on this machine sees everything."""

    asks_for_token = False

    def name(self, token: str) -> str:  # noqa: ARG002 - part of the interface
        """Return "": all users of this machine come from the same address."""
        return ""

    def may(self, token: str, namespace: str | None, right: Right = ANYTHING) -> None:
        """Allow everything: a client that reaches this machine's loopback can ask the cluster as this user, too."""


class Tokens:
    """A Kubernetes token names the caller, and the API server decides what that account may see.

    Its methods may block: call them in a thread.
    """

    asks_for_token = True

    def __init__(self, reach: Reach, clock: Callable[[], float] = time.monotonic) -> None:
        """Ask the API server through ``reach``; ``clock`` returns seconds."""
        self._subjects = Subjects(reach, _DELEGATE, clock)

    def name(self, token: str) -> str:
        """Return the caller's name. Raises ``ProblemError`` for an unknown token."""
        return self._user(token).name

    def may(self, token: str, namespace: str | None, right: Right = ANYTHING) -> None:
        """Raise ``ProblemError`` if the account may do this neither everywhere nor in the namespace."""
        user = self._user(token)
        try:
            if self._subjects.may(user, "", right) or (namespace and self._subjects.may(user, namespace, right)):
                return
        except UnansweredError as error:
            raise ProblemError(503, str(error)) from None
        if namespace:
            raise ProblemError(403, f"{user.name} may not {right} in namespace {namespace}", "#/query/namespace")
        raise ProblemError(
            403,
            f"choose a namespace with ?namespace=: {user.name} may not {right} of all namespaces",
            "#/query/namespace",
        )

    def _user(self, token: str) -> Subject:
        if not token or len(token) > TOKEN_MAX or not (token.isascii() and token.isprintable()):
            raise ProblemError(401, "send a Kubernetes token: Authorization: Bearer TOKEN", "#/headers/Authorization")
        digest = hashlib.sha256(token.encode()).hexdigest()

        def ask() -> Subject | None:
            status = self._subjects.review(_TOKENS, "TokenReview", "authentication.k8s.io/v1", {"token": token})
            user = status.get("user")
            return Subject.of(user) if status.get("authenticated") is True and isinstance(user, dict) else None

        try:
            user = self._subjects.answers.get(("user", digest), ask)
        except UnansweredError as error:
            raise ProblemError(503, str(error)) from None
        if user is None:
            raise ProblemError(401, "the cluster does not know this token: get a fresh one", "#/headers/Authorization")
        return user


Access: TypeAlias = Loopback | Tokens


async def while_permitted(
    stream: AsyncGenerator[Any], permit: Callable[[], Awaitable[None]], clock: Callable[[], float]
) -> AsyncGenerator[Any]:
    """Yield a stream until ``permit`` raises ``ProblemError``: rights may be revoked while somebody listens.

    It is called as often as a cached answer expires. A caller that connects again gets the reason.
    """
    asked = clock()
    async with aclosing(stream):
        async for piece in stream:
            if clock() - asked >= KEPT:
                try:
                    await permit()
                except ProblemError:
                    return
                asked = clock()
            yield piece


def token_of(headers: Mapping[str, str], cookies: Mapping[str, str]) -> str:
    """Return the token of a request: of its header, else of its cookie; empty without any."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else cookies.get(COOKIE, "")
