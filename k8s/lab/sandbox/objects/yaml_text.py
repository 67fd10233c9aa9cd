"""YAML as Kubernetes reads it: by go-yaml v2, whose plain scalars are not PyYAML's. Parsing runs no code."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

_TAG: Final = "tag:yaml.org,2002:"
_BOOLEANS: Final = {
    spelled: truth
    for truth, words in ((True, ("y", "yes", "true", "on")), (False, ("n", "no", "false", "off")))
    for word in words
    for spelled in (word, word.capitalize(), word.upper())
}
_PLAIN: Final = (
    ("bool", rf"(?:{'|'.join(_BOOLEANS)})\Z", "yYnNtTfFoO"),
    ("null", r"(?:~|null|Null|NULL|)\Z", ("~", "n", "N", "")),
    ("merge", r"<<\Z", "<"),
    ("int", r"[-+]?(?:0[bB][01_]+|0[oO][0-7_]+|0[xX][0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)\Z", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?\Z", "-+.0123456789"),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z", "-+."),
)


class KubernetesLoader(yaml.SafeLoader):
    """``y`` is true, ``1e3`` a number, ``1:30`` a text and so is a date; keys become texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's
        first: [(_TAG + name, re.compile(pattern)) for name, pattern, firsts in _PLAIN if first in firsts]
        for first in {each for *_, firsts in _PLAIN for each in firsts}
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found = super().construct_mapping(node, deep=deep)
        return {self._key(key): value for key, value in found.items()}

    @staticmethod
    def _key(key: object) -> str:
        if isinstance(key, bool):
            return "true" if key else "false"
        if not isinstance(key, str | int | float):
            raise yaml.YAMLError(f"unsupported map key: {key!r}")
        return f"{key:g}" if isinstance(key, float) else str(key)

    def read_boolean(self, node: yaml.ScalarNode) -> bool:
        if node.value not in _BOOLEANS:
            raise yaml.YAMLError(f"cannot decode {node.value!r} as a !!bool")
        return _BOOLEANS[node.value]

    def read_integer(self, node: yaml.ScalarNode) -> int:
        text = node.value.replace("_", "").lower()
        sign, digits = -1 if text.startswith("-") else 1, text.lstrip("+-")
        return sign * (int(digits, 8) if re.fullmatch("0[0-7]*", digits) else int(digits, 0))

    def read_float(self, node: yaml.ScalarNode) -> float:
        text = node.value.replace("_", "").lower()
        number = float(text.replace(".inf", "inf").replace(".nan", "nan"))
        return int(number) if number.is_integer() and abs(number) < 1e21 else number


KubernetesLoader.add_constructor(_TAG + "bool", KubernetesLoader.read_boolean)
KubernetesLoader.add_constructor(_TAG + "int", KubernetesLoader.read_integer)
KubernetesLoader.add_constructor(_TAG + "float", KubernetesLoader.read_float)


class BodyLoader(KubernetesLoader):
    """Accepts no aliases: a few lines of them can expand to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)
