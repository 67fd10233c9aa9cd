"""YAML loaders whose work is bounded by what they read: no merge keys that multiply, no numbers as long as a book.

``SettingsLoader`` is for settings, ``KubernetesLoader`` for manifests: as kubectl does, it takes the last equal key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

import yaml

MERGED_MAX: Final = 10_000
"""Keys of one object once its merge keys (``<<``) are followed: each may double the one before."""
NUMBER_MAX: Final = 1_000
"""Characters of a number. YAML 1.1 reads ``1:30:00`` in base 60, in time that grows with the square of its length."""

if TYPE_CHECKING:
    _Safe = yaml.SafeLoader
else:
    _Safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BoundedLoader(_Safe):
    """Loads what ``SafeLoader`` loads, and raises ``yaml.YAMLError`` for what would take long."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Follow merge keys, unless that makes an object too large."""
        merges = any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value)
        super().flatten_mapping(node)
        if merges and len(node.value) > MERGED_MAX:
            raise yaml.constructor.ConstructorError(
                None, None, f"its merge keys make an object of more than {MERGED_MAX} keys", node.start_mark
            )

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """Read a number, unless it is too long."""
        if len(node.value) > NUMBER_MAX:
            raise yaml.constructor.ConstructorError(
                None, None, f"a number has more than {NUMBER_MAX} characters", node.start_mark
            )
        return _NUMBERS[node.tag](self, node)


class SettingsLoader(BoundedLoader):
    """Refuses a key that an object has twice: one of its values would be lost."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Follow merge keys, unless a key is there twice: before that, since a merged one is meant to be overridden."""
        seen = set[tuple[str, str]]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value[:80]} is there twice: keep one", key.start_mark
                )
            seen.add((key.tag, str(key.value)))
        super().flatten_mapping(node)


_NUMBERS: Final = {
    f"tag:yaml.org,2002:{name}": yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{name}"]
    for name in ("int", "float")
}
for _tag in _NUMBERS:
    BoundedLoader.add_constructor(_tag, BoundedLoader.construct_number)


# -- YAML as Kubernetes reads it ---------

_TAG: Final = "tag:yaml.org,2002:"


class KubernetesLoader(BoundedLoader):
    """Loads what the API server reads of the same text, by go-yaml v2: ``y`` is true, ``1e3`` a number.

    Times and numbers in base 60 are texts. Keys become texts, as JSON needs them: that of ``y: 1`` is "true".
    """

    bool_values: ClassVar = {**yaml.SafeLoader.bool_values, "y": True, "n": False}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Read an object. Raises ``yaml.YAMLError`` for a key that JSON can't have."""
        found = super().construct_mapping(node, deep=deep)
        if all(type(key) is str for key in found):
            return found
        return {self._key(key, node): value for key, value in found.items()}

    @staticmethod
    def _key(key: object, node: yaml.MappingNode) -> str:
        if isinstance(key, bool):
            return "true" if key else "false"
        if not isinstance(key, str | int | float):
            raise yaml.constructor.ConstructorError(None, None, f"{key!r} can't be a key", node.start_mark)
        return f"{key:g}" if isinstance(key, float) else str(key)

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """Read a number, unless it is too long. One without a fraction is an integer in JSON, as Go writes it."""
        value = super().construct_number(node)
        if ":" in node.value:
            return node.value
        return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e21 else value

    def construct_time(self, node: yaml.ScalarNode) -> str:
        """Return the text of a date or a time, also of one in month 13. Raises ``ValueError`` for any other text."""
        text: str = node.value
        if self.timestamp_regexp.match(text) is None:
            raise ValueError(f"cannot decode {text[:80]!r} as a !!timestamp")
        return text


KubernetesLoader.yaml_implicit_resolvers = {
    first: list(resolvers) for first, resolvers in BoundedLoader.yaml_implicit_resolvers.items() if first != "="
}
for _name, _pattern, _first in (
    ("bool", r"[yYnN]\Z", "yYnN"),
    ("int", r"[-+]?0[oO][0-7_]+\Z", "-+0"),
    ("float", r"[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?\Z", "-+.0123456789"),
):
    KubernetesLoader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), list(_first))
for _name in ("int", "float"):
    KubernetesLoader.add_constructor(_TAG + _name, KubernetesLoader.construct_number)
KubernetesLoader.add_constructor(f"{_TAG}timestamp", KubernetesLoader.construct_time)
