"""``backoff-ctrl footprint``: show what a manifest will be charged, per quota resource."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.answers.printing import printable
from backoff_ctrl.k8s.charges.footprint import Footprint, FootprintError, footprint_of
from backoff_ctrl.k8s.charges.manifests import ManifestError, load_manifests, read_source

from .amounts import aligned, quantity_text, quantity_texts

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command("footprint")
@click.argument("file", required=False, metavar="[FILE]")
@click.option("-f", "--file", "option", metavar="FILE", help="The manifests, as YAML or JSON; - reads stdin.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def command(file: str | None, option: str | None, as_json: bool) -> None:
    """Show what a manifest will be charged, under every resource name that a quota could limit.

    Kinds that make pods later (Job, Deployment, ...) include all their pods and are marked as estimated. A file
    may contain several manifests: each gets its own block, and --json prints a list instead of one object.

    \b
    backoff-ctrl footprint pod.yaml
    """
    if (file is None) == (option is None):
        raise click.UsageError("Name one file with manifests: footprint pod.yaml, or footprint -f pod.yaml.")
    source = file if option is None else option
    assert source is not None
    try:
        manifests = load_manifests(read_source(source), "stdin" if source == "-" else source)
    except ManifestError as error:
        raise BadInput(str(error)) from None
    footprints = [_footprint(manifest, source, index, len(manifests)) for index, manifest in enumerate(manifests)]
    if as_json:
        documents = [_document(found) for found in footprints]
        click.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        pages = [_page(found, manifest) for found, manifest in zip(footprints, manifests, strict=True)]
        click.echo("\n\n".join(pages))


def _footprint(manifest: Mapping[str, Any], source: str, index: int, number: int) -> Footprint:
    """Compute one footprint. Errors name the manifest if there are several."""
    try:
        return footprint_of(manifest)
    except FootprintError as error:
        where = "stdin" if source == "-" else source
        raise BadInput(f"{where}, manifest {index + 1}: {error}" if number > 1 else f"{where}: {error}") from None


def _document(found: Footprint) -> dict[str, Any]:
    """Return the document for ``--json``."""
    return {
        "kind": found.kind,
        "estimated": found.estimated,
        "amounts": quantity_texts(found.demand.amounts),
        "scopes": sorted(found.demand.scopes),
    }


def _page(found: Footprint, manifest: Mapping[str, Any]) -> str:
    """Return the text for people."""
    metadata = manifest.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else None
    title = f"{found.kind} {name}" if name else found.kind
    lines = [printable(title)]  # a manifest must not control the terminal
    if found.estimated:
        lines[0] += "  (estimated: includes the pods that it will make)"
    if found.demand.amounts:
        lines.append(aligned([f"  {key}", quantity_text(key, n)] for key, n in found.demand.amounts.items()))
    else:
        lines.append("  not charged by any quota")
    if found.demand.scopes:
        lines.append(f"  scopes: {', '.join(sorted(found.demand.scopes))}")
    return "\n".join(lines)
