"""What an operator that goes on covers no longer: namespaces and kinds that the chart's values have dropped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from backoff_ctrl.k8s.kube.answers.fields import items, mapping, mapping_in, mappings, text

if TYPE_CHECKING:
    from backoff_ctrl.k8s.workloads.admitting.kinds import AdmissibleKind

NAME_LABEL: Final = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Covered:
    """What waits for an operator: in these ``namespaces`` (empty: in all), beside the kinds that are built in.

    ``described`` are the resources of kinds that ``--kinds`` describes.
    """

    namespaces: frozenset[str]
    described: frozenset[str]

    def has(self, namespace: str) -> bool:
        return not self.namespaces or namespace in self.namespaces


@dataclass(frozen=True, slots=True)
class Dropped:
    """What the operator that runs covers (``before``), and the one that comes does not (``after``)."""

    before: Covered
    after: Covered

    def __bool__(self) -> bool:
        return self._loses_namespaces() or bool(self._kinds())

    def __str__(self) -> str:
        said = []
        if self._loses_namespaces():
            named = self.before.namespaces - self.after.namespaces
            said.append(f"namespaces {', '.join(sorted(named))}" if named else "all other namespaces")
        if kinds := self._kinds():
            said.append(f"kinds {', '.join(sorted(kinds))}")
        return " and ".join(said) or "nothing"

    def namespace(self, name: str) -> bool:
        """Return whether Jobs and Tasks of a namespace are let go."""
        return self.before.has(name) and not self.after.has(name)

    def job(self, resource: str, namespace: str) -> bool:
        """Return whether an object that waits is let go."""
        return self.namespace(namespace) or (self.before.has(namespace) and resource in self._kinds())

    def narrowed(self, webhooks: Any) -> list[dict[str, Any]]:
        """Return webhooks that suspend no object any more that is let go."""
        made = []
        for each in mappings(webhooks):
            hook = {**each, "rules": [rule for rule in mappings(each.get("rules")) if not self._is_dropped(rule)]}
            if self._loses_namespaces():
                selector = mapping(each.get("namespaceSelector"))
                kept = {"key": NAME_LABEL, "operator": "In", "values": sorted(self.after.namespaces)}
                expressions = items(selector.get("matchExpressions"))
                if kept not in expressions:
                    hook["namespaceSelector"] = {**selector, "matchExpressions": [*expressions, kept]}
            made.append(hook)
        return made

    def _loses_namespaces(self) -> bool:
        after = self.after.namespaces
        return bool(after) and not (self.before.namespaces and self.before.namespaces <= after)

    def _kinds(self) -> frozenset[str]:
        return self.before.described - self.after.described

    def _is_dropped(self, rule: Mapping[str, Any]) -> bool:
        groups, plurals = items(rule.get("apiGroups")), items(rule.get("resources"))
        named = {f"{plural}.{group}" for group in groups for plural in plurals}
        return bool(named) and named <= self._kinds()


def dropped(
    deployment: Mapping[str, Any],
    kinds: Iterable[AdmissibleKind],
    namespaces: Collection[str],
    described: Collection[str],
) -> Dropped:
    """Return what is dropped by an operator for these namespaces (empty: all) and with these described kinds.

    ``deployment`` and ``kinds`` are those of the operator that runs.
    """
    from backoff_ctrl.k8s.workloads.admitting.kinds import KINDS  # noqa: PLC0415

    known = frozenset(each.resource for each in kinds if each not in KINDS)
    before = Covered(frozenset(_namespaces_of(deployment)), known)
    return Dropped(before, Covered(frozenset(namespaces), frozenset(described)))


def _namespaces_of(deployment: Mapping[str, Any]) -> Sequence[str]:
    """Return the namespaces that a Deployment's operator works for, by its arguments; empty: all."""
    from .command import command  # noqa: PLC0415 - loads what other commands do not need

    lenient: dict[str, Any] = {"resilient_parsing": True, "ignore_unknown_options": True, "allow_extra_args": True}
    spec = mapping_in(mapping_in(deployment.get("spec"), "template"), "spec")
    found: list[str] = []
    for container in mappings(spec.get("containers")):
        word, *args = [*map(text, items(container.get("args"))), ""]
        if word == command.name:
            with command.make_context(word, args[:-1], **lenient) as context:  # another version may have written them
                found += context.params["namespaces"]
    return found


NARROW_OPTIONS: Final = (
    click.option(
        "--narrow",
        is_flag=True,
        help="The operator goes on: let go only what --keep-namespace and --keep-kind do not name.",
    ),
    click.option(
        "--keep-namespace",
        "keep_namespaces",
        multiple=True,
        metavar="NAME",
        help="With --narrow: a namespace that it goes on to work for; default: all. May be repeated.",
    ),
    click.option(
        "--keep-kind",
        "keep_kinds",
        multiple=True,
        metavar="PLURAL.GROUP",
        help="With --narrow: a kind of --kinds that it goes on to let in. May be repeated.",
    ),
)
