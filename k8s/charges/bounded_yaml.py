"""A YAML loader whose work is bounded by what it reads: no merge keys that multiply, no numbers as long as a book."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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


_NUMBERS: Final = {
    f"tag:yaml.org,2002:{name}": yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{name}"]
    for name in ("int", "float")
}
for _tag in _NUMBERS:
    BoundedLoader.add_constructor(_tag, BoundedLoader.construct_number)
