"""Compare footprints with the recorded charges of a real Kubernetes: every resource name, exactly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner

from backoff_ctrl.api.commands.footprint import command
from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.parts import footprint_of
from backoff_ctrl.k8s.kube.charges.quotas import read_quota
from backoff_ctrl.k8s.kube.charges.resources import resource_of
from tests.kit.charged import RECORD, Case, cases, cluster_objects, recorded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SAID: Final = [case for case in cases() if not case.theme.startswith("unsaid")]
UNSAID: Final = [case for case in cases() if case.theme.startswith("unsaid")]
NAMES: Final = {
    "devices of a class that has an extended resource": {"requests.example.com/device"},
    "the overhead of a runtime class is in no manifest that does not repeat it": {
        "cpu",
        "limits.memory",
        "memory",
        "requests.cpu",
        "requests.memory",
    },
}
"""The resources that differ if a manifest leaves something to the server, by case."""


def nano(case: Case) -> dict[str, int]:
    """The server's charge in nano-units."""
    return {name: parse_quantity(text) for name, text in recorded()[case.key].amounts.items()}


def held_by(resource: str, scopes: frozenset[str]) -> tuple[str, ...]:
    """Names of the scoped quotas that must charge an object with these facts, by the engine's own selectors."""
    found = [read_quota(quota) for quota in cluster_objects("scoped_quotas")]
    names = [quota["metadata"]["name"] for quota in cluster_objects("scoped_quotas")]
    pairs = zip(names, found, strict=True)
    return tuple(sorted(name for name, quota in pairs if resource in quota.spec and quota.selector.applies(scopes)))


def ids(of: Iterable[Case]) -> list[str]:
    """Test ids: the keys of the cases."""
    return [case.key for case in of]


def test_the_record_covers_these_manifests_on_a_real_server() -> None:
    """The record names the server version and has every manifest once, at least 100 in all."""
    assert json.loads(RECORD.read_text())["recorded"]["server"].startswith("v1.36.")
    assert sorted(recorded()) == sorted(ids(cases()))
    assert len(recorded()) >= 100


@pytest.mark.parametrize("case", SAID, ids=ids(SAID))
def test_a_footprint_is_what_the_server_charged(case: Case) -> None:
    """The amounts are equal under every name, and the scope facts select exactly the quotas that charged the object."""
    found = footprint(case.manifest)
    charged = recorded()[case.key]
    assert dict(found.amounts) == nano(case)
    assert held_by(resource_of(case.manifest), found.scopes) == charged.held_by


@pytest.mark.parametrize("case", UNSAID, ids=ids(UNSAID))
def test_a_footprint_lacks_only_what_the_server_alone_knows(case: Case) -> None:
    """Only the expected resources differ, and there the server's amounts are larger."""
    found, charged = dict(footprint(case.manifest).amounts), nano(case)
    differing = {name for name in found.keys() | charged.keys() if found.get(name) != charged.get(name)}
    assert differing == NAMES[case.shows]
    assert all(found.get(name, 0) < charged[name] for name in differing)


def test_the_command_prints_what_the_server_charged(tmp_path: Path) -> None:
    """``backoff-ctrl footprint --json`` prints the recorded amounts for all manifests that make no pods later."""
    plain = [case for case in SAID if not footprint_of(case.manifest).estimated]
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [case.manifest for case in plain]}))
    result = CliRunner().invoke(command, ["-f", str(file), "--json"])
    assert result.exit_code == 0, result.output
    printed: list[dict[str, Any]] = json.loads(result.output)
    assert len(printed) == len(plain) >= 100
    for case, document in zip(plain, printed, strict=True):
        amounts = {name: parse_quantity(text) for name, text in document["amounts"].items()}
        assert amounts == nano(case), case.key
        scopes = frozenset(document["scopes"])
        assert held_by(resource_of(case.manifest), scopes) == recorded()[case.key].held_by, case.key


def test_the_estimate_of_a_pod_maker_includes_its_own_charge() -> None:
    """The estimate is at least the charge of the create itself, and marked as estimated."""
    makers = [case for case in SAID if case.theme == "makers"]
    assert makers
    for case in makers:
        found = footprint_of(case.manifest)
        assert found.estimated, case.key
        assert all(found.demand.amounts[name] >= amount for name, amount in nano(case).items()), case.key
