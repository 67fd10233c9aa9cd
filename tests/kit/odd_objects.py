"""Jobs as a user may write them who means harm: odd in depth, digits, names and sizes, in any field that is his."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

JSON = dict[str, Any]
HERE: Final = "\x00here\x00"
"""Stands where raw JSON is put, which ``json`` would not write."""


def nested(rng: random.Random) -> str:
    """Return fields of ``managedFields``, of 1 to 9,000 levels."""
    levels = rng.choice((1, 50, 95, 97, 99, 101, 300, 1000, 2000, 9000))
    name = rng.choice(("f:a", 'k:{\\"a\\":\\"[[{\\"}', "f:]}", "v:" + "1" * 30))
    return f'{{"{name}":' * levels + "{}" + "}" * levels


def digits(rng: random.Random) -> str:
    return (
        rng.choice(("1", "-", ""))
        + "9" * rng.choice((1, 19, 400, 401, 4300, 4301, 5000))
        + rng.choice(("", "e9", ".5"))
    )


def text(rng: random.Random) -> str:
    piece = rng.choice(('"', "\\", "}]", "[{", '\\"', "\ud800", "\x01", "é", "<", "\u2028", "a", '{"items":['))
    return piece * rng.choice((1, 3, 100, 20_000))


_FIELDS: Final[tuple[tuple[str, Callable[[random.Random], str]], ...]] = (
    ("managedFields", nested),
    ("managedFields", digits),
    ("annotation", lambda rng: json.dumps(text(rng))),
    ("env", lambda rng: json.dumps(text(rng))),
    ("cpu", lambda rng: json.dumps(digits(rng))),
    ("parallelism", digits),
    ("name", lambda rng: json.dumps(rng.choice("a.-_/[{") * rng.choice((1, 63, 253, 300)))),
    ("label", lambda rng: json.dumps(rng.choice(("a", "[", "é", "")) * rng.choice((1, 63, 64)))),
    ("finalizer", lambda rng: json.dumps(rng.choice(("a/b", "[[", text(rng))))),
    ("unknown", nested),
    ("owner", lambda rng: json.dumps(rng.choice(("../../healthz", "%2e", "?a=#", "a/v1", text(rng))))),
    ("generateName", lambda rng: json.dumps(rng.choice("a.-/é") * rng.choice((1, 58, 63, 248, 253)))),
    ("annotation", lambda rng: ",".join(['"a"', *[f'"odd":{json.dumps(text(rng))}'] * rng.choice((1, 50))])),
)


def odd_job(rng: random.Random, number: int) -> bytes:
    """Return a suspended Job with one odd field, as its bytes."""
    field, make = rng.choice(_FIELDS)
    container: JSON = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}
    metadata: JSON = {"name": f"odd-{number}"}
    spec: JSON = {"suspend": True, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    match field:
        case "managedFields":
            entry = {"manager": "odd", "operation": "Update", "apiVersion": "batch/v1", "fieldsType": "FieldsV1"}
            metadata["managedFields"] = [{**entry, "fieldsV1": HERE}]
        case "annotation":
            metadata["annotations"] = {"odd": HERE, "backoff-ctrl.dev/waits-for": HERE}
        case "label":
            metadata["labels"] = {"odd": HERE}
        case "owner":
            words = dict.fromkeys(("apiVersion", "kind", "name", "uid"), HERE)
            metadata["ownerReferences"] = [{**words, "controller": True}]
        case "generateName":
            del metadata["name"]
            metadata["generateName"] = HERE
        case "finalizer":
            metadata["finalizers"] = [HERE]
        case "name":
            metadata["name"] = HERE
        case "env":
            container["env"] = [{"name": "ODD", "value": HERE}]
        case "cpu":
            container["resources"]["requests"]["cpu"] = HERE
        case _:
            spec[field] = HERE
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    return json.dumps(body).replace(json.dumps(HERE), make(rng)).encode("utf-8", "surrogatepass")
