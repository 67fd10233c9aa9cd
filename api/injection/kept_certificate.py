"""The webhook's certificates, served: what is kept in the cluster is loaded when it changes."""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING

from cryptography import x509

from backoff_ctrl.k8s.proxy.certificates import listener_context

if TYPE_CHECKING:
    from datetime import datetime

    from .keeping import Keeper


class KeptCertificate:
    """The certificate that a keeper keeps. ``context`` is the listener's; new connections get what was loaded last."""

    def __init__(self, keeper: Keeper) -> None:
        """Load nothing yet."""
        self.context = listener_context()
        self._keeper = keeper
        self._loaded = b""
        self.ends: datetime | None = None
        """When what is served ends; None: nothing is served yet."""

    async def renew(self) -> None:
        """Take the keeper's turn, and load what it keeps if that has changed. Raises ``KeepingError``, ``OSError``."""
        kept = await self._keeper.turn()
        pem = kept.key + kept.leaf
        if kept.leaf and pem != self._loaded:
            await asyncio.to_thread(self._load, pem)
            self._loaded = pem
            self.ends = x509.load_pem_x509_certificate(kept.leaf).not_valid_after_utc

    def _load(self, pem: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:  # mode 0600; ssl reads nothing but files
            file.write(pem)
            file.flush()
            listener_context().load_cert_chain(file.name)  # if it is damaged, the one before serves on
            self.context.load_cert_chain(file.name)
