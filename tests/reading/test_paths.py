"""Paths to an API server: whatever a word of one is, it is one segment, or there is no path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yarl
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.paths import PathError, group_path, path_to

ROOT = Path(__file__).parents[2]


@given(st.text(max_size=300), st.text(max_size=20), st.text(max_size=20))
def test_words_stay_in_their_place(name: str, namespace: str, plural: str) -> None:
    """Also once a client has resolved dots, and the server has decoded the path before it splits it."""
    try:
        path = path_to("/api/v1", plural, namespace=namespace, name=name)
    except PathError:
        return
    assert yarl.URL(f"http://server{path}").path.split("/") == ["", "api", "v1", "namespaces", namespace, plural, name]


@pytest.mark.parametrize("word", ["", ".", "..", "a/b", "/", "%2e%2e", "a%2fb", "x" * 254, "../../../../healthz"])
def test_what_is_no_segment_makes_no_path(word: str) -> None:
    for plural, namespace, name in (("pods", word, "a"), ("pods", "team", word), (word, "team", "a")):
        with pytest.raises(PathError):
            path_to("/api/v1", plural, namespace=namespace, name=name)
    with pytest.raises(PathError):
        group_path(f"{word}/v1")


def test_paths_are_made_in_one_place() -> None:
    """A path that is put together elsewhere checks nothing: the sandbox alone has paths of its own."""
    made = re.compile(r"""f["'][^"'\n]*/?(api/v1|apis|namespaces)/\{""")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for room in ("k8s", "api")
        for path in sorted((ROOT / room).rglob("*.py"))
        if "sandbox" not in path.parts and "replay" not in path.parts
        for line in path.read_text().splitlines()
        if made.search(line)
    ]
    assert found == []
