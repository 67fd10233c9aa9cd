"""``backoff-ctrl footprint``: show what a manifest will be charged, per quota resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.kube.answers.fields import FieldError, metadata_of
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.manifests import ManifestError, load_manifests, read_source
from backoff_ctrl.k8s.kube.charges.parts import Footprint, footprint_of
from backoff_ctrl.k8s.status.amounts import aligned, quantity_text, quantity_texts

from .output import DOCUMENT, output_options, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.engine.facts.demand import Demand
    from backoff_ctrl.k8s.kube.charges.parts import Part


@click.command("footprint")
@click.argument("file", required=False, metavar="[FILE]")
@click.option("-f", "--file", "option", metavar="FILE", help="The manifests, as YAML or JSON; - reads stdin.")
@output_options(*DOCUMENT)
def command(file: str | None, option: str | None, output: str | None) -> None:
    """Show what a manifest will be charged, under every resource name that a quota could limit.

    Kinds that make other objects (Job, Deployment, JobSet, RayJob, SparkApplication, PyTorchJob, ...) include all of
    them and are marked as estimated; each part is shown with its count and what makes it. A file may contain
    several manifests: each gets its own block, and --json prints a list instead of one object.

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
    if output:
        documents = [_document(found, manifest) for found, manifest in zip(footprints, manifests, strict=True)]
        click.echo(written(documents[0] if len(documents) == 1 else documents, output))
    else:
        pages = [_page(found, manifest) for found, manifest in zip(footprints, manifests, strict=True)]
        click.echo("\n\n".join(pages))


def _footprint(manifest: Mapping[str, Any], source: str, index: int, number: int) -> Footprint:
    """Compute one footprint. Errors name the manifest if there are several."""
    try:
        return footprint_of(manifest)
    except FieldError as error:
        where = "stdin" if source == "-" else source
        raise BadInput(f"{where}, manifest {index + 1}: {error}" if number > 1 else f"{where}: {error}") from None


def _document(found: Footprint, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document for ``--json``. ``create`` is what the create itself is charged, without the parts."""
    document = {"kind": found.kind, "estimated": found.estimated, **_charges(found.demand)}
    if found.parts:
        document["create"] = _charges(footprint(manifest))
        document["parts"] = [_part(part) for part in found.parts]
    return document


def _part(part: Part) -> dict[str, Any]:
    """Return one part for ``--json``: amounts of one object; a count that only the cluster knows is null."""
    return {
        "kind": part.kind,
        "count": part.count,
        "made_by": part.made_by,
        "template": part.template or None,
        "suspended": part.suspended,
        **_charges(part.demand),
    }


def _charges(demand: Demand) -> dict[str, Any]:
    return {"amounts": quantity_texts(demand.amounts), "scopes": sorted(demand.scopes)}


def _page(found: Footprint, manifest: Mapping[str, Any]) -> str:
    metadata = metadata_of(manifest)
    name = metadata.get("name") or metadata.get("generateName")
    title = f"{found.kind} {name}" if name else found.kind
    lines = [printable(title)]  # a manifest must not control the terminal
    if found.parts:
        lines[0] += "  (estimated: includes the pods that it will make)"
    elif found.estimated:
        lines[0] += "  (estimated: what it will make is unknown)"
    lines += _lines(found.demand, "  ") or ["  not charged by any quota"]
    for part in found.parts:
        lines += [f"  part: {_heading(part)}", *_lines(part.demand, "    ")]
    return "\n".join(lines)


def _heading(part: Part) -> str:
    """Return what the part is: its number, kind and maker."""
    number = "an unknown number of" if part.count is None else f"{part.count} x"
    source = f" from {printable(part.template)}" if part.template else ""
    each = ", each" if part.count != 1 else ""
    return f"{number} {part.kind} made by {part.made_by}{source}{', when resumed' if part.suspended else ''}{each}"


def _lines(demand: Demand, indent: str) -> list[str]:
    """Return the amounts in columns and the scopes, if any."""
    lines = []
    if demand.amounts:
        lines.append(aligned([f"{indent}{key}", quantity_text(key, n)] for key, n in demand.amounts.items()))
    if demand.scopes:
        lines.append(f"{indent}scopes: {', '.join(sorted(demand.scopes))}")
    return lines
