"""TLS as the API server itself would speak it: the files, the context of the listener, and leaves that follow another.

The authority is kept in a directory that only the proxy mounts, so that a proxy that is started again is trusted by
creators that read ``ca.crt`` long ago. Leaves are made anew at each start and at half of their life.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from .contexts import listener_context
from .files import PRIVATE, PUBLIC, CertificatesError, check_owner, link, make_folder, only_one, read, sweep, write

try:
    from .issuing import AUTHORITY_LIFE, NAMES, Authority, Leaf, check_name, new_authority, read_authority
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "cryptography":
        raise
    raise CertificatesError(
        "TLS mode needs the package cryptography: install backoff-ctrl[proxy], or serve plain HTTP"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

__all__ = ["NAMES", "CertificatesError", "Serving", "TlsFiles"]

LEAF_LIFE: Final = timedelta(days=1)
_LOOK_EVERY: Final = 600.0
"""Seconds between looks at the clock: it may have been set, or the machine may have slept."""
_AUTHORITY, _LEAF = "authority.pem", "leaf.pem"
_logger = logging.getLogger("backoff_ctrl")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the files lie.

    ``authority``: a directory that only the proxy mounts. ``account``: the creator's service-account directory.
    ``token_volume``: where the creator mounts the projected volume with its ``token`` and ``namespace``. ``names``: by
    which the creator calls the proxy, beside ``NAMES``.
    """

    authority: Path
    account: Path
    token_volume: Path
    names: tuple[str, ...] = ()


class Serving:
    """The certificates of one listener. ``context`` is its TLS context; new connections get the newest leaf."""

    def __init__(self, files: TlsFiles, now: datetime | None = None, life: timedelta = LEAF_LIFE) -> None:
        """Write all files, or repair them. Raises ``CertificatesError``. ``life``: of a leaf."""
        _check(files)
        self._files, self._life = files, life
        self._names = tuple(dict.fromkeys((*NAMES, *files.names)))
        self.context = listener_context()
        now = now or _clock()
        make_folder(files.authority, 0o700)
        check_owner(files.authority)
        make_folder(files.account, 0o755)
        with only_one(files.authority):
            sweep(files.authority)
            sweep(files.account)
            self._authority = self._kept_or_new(now)
            self.leaf = self._fresh(now)
            _write_account(files, self._authority)

    @property
    def due(self) -> datetime:
        """When the leaf is to be replaced: at half of its life."""
        return self.leaf.made + (self.leaf.ends - self.leaf.made) / 2

    def renew(self, now: datetime) -> None:
        """Replace the leaf; connections that are open go on. Raises ``CertificatesError``, and the old leaf stays."""
        with only_one(self._files.authority):
            self.leaf = self._fresh(now)

    async def keep_fresh(
        self,
        clock: Callable[[], datetime] | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Replace each leaf in time, until cancelled. What fails is logged, and tried again at the next look."""
        clock = clock or _clock
        while True:
            left = (self.due - clock()).total_seconds()
            if left > 0:
                await pause(min(left, _LOOK_EVERY))
                continue
            try:
                self.renew(clock())
            except CertificatesError as error:
                _logger.warning("the certificate of the proxy could not be renewed: %s", error)
                await pause(_LOOK_EVERY)

    def _kept_or_new(self, now: datetime) -> Authority:
        """Return the authority of this pod: the one that was kept, unless that can sign no more."""
        path = self._files.authority / _AUTHORITY
        content = read(path, PRIVATE)
        kept = read_authority(content) if content else None
        if kept is not None and kept.certificate.not_valid_after_utc - now > AUTHORITY_LIFE / 10:
            return kept
        if content:
            _logger.warning(
                "%s contained no usable authority: a new one was made, so creators that have already read ca.crt "
                "must be restarted",
                path,
            )
        made = new_authority(now)
        write(path, made.pem, PRIVATE)
        return made

    def _fresh(self, now: datetime) -> Leaf:
        """Have a leaf signed, and give it to the context. The file holds key and certificate: they can't be mixed."""
        leaf = self._authority.issue(self._names, now, self._life)
        path = self._files.authority / _LEAF
        write(path, leaf.pem, PRIVATE)
        try:
            self.context.load_cert_chain(path)
        except OSError as error:  # ssl.SSLError is one
            raise CertificatesError(f"{path} cannot be loaded: {error.strerror or error}; start again") from None
        return leaf


def _write_account(files: TlsFiles, authority: Authority) -> None:
    """Fill the creator's service-account directory: our authority, and links to what the real one holds."""
    write(files.account / "ca.crt", authority.trusted, PUBLIC)
    for name in ("token", "namespace"):
        link(files.account / name, files.token_volume / name)


def _check(files: TlsFiles) -> None:
    """Raise ``CertificatesError`` for directories and names that can't work together."""
    authority, account = files.authority.resolve(), files.account.resolve()
    if authority == account or account in authority.parents:
        raise CertificatesError(
            f"{files.authority} is where the creator can read it: keep the key in a volume that only the proxy mounts"
        )
    if not files.token_volume.is_absolute():
        raise CertificatesError(f"{files.token_volume} must be the whole path at which the creator mounts its token")
    if files.token_volume.resolve() == account:
        raise CertificatesError(
            f"{files.token_volume} is the creator's account directory itself: mount the projected token elsewhere"
        )
    for name in files.names:
        check_name(name)


def _clock() -> datetime:
    return datetime.now(UTC)
