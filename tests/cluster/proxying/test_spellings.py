"""Ways to spell a create, on a real API server: what is on record of them is still so."""

from __future__ import annotations

from tests.cluster.proxying.record_spellings import spelt
from tests.cluster.talking import Api
from tests.kit.spellings import recorded


async def test_the_server_still_reads_each_spelling_as_recorded(real_api: Api) -> None:
    """``tests/data/spellings.jsonl``, to which our own reading is held."""
    assert await spelt(real_api) == recorded()
