"""The ways to spell a create in a request line, and what a real API server makes of each.

``tests/data/spellings.jsonl`` is its record: ``stored`` where an object was stored, ``tried`` for a dry run,
``refused`` for any other answer.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

RECORD: Final = Path(__file__).parents[1] / "data" / "spellings.jsonl"
PODS: Final = "/api/v1/namespaces/team/pods"
JOBS: Final = "/apis/batch/v1/namespaces/team/jobs"

TARGETS: Final = (
    PODS,
    JOBS,
    # Letters that need no escape, escaped.
    "/api/v1/namespaces/team/%70ods",
    "/api/v1/namespaces/team/pod%73",
    "/api/v1/%6eamespaces/team/pods",
    "/api/v1/%6Eamespaces/team/pods",
    "/api/v1/namespaces/t%65am/pods",
    "/%61pi/v1/namespaces/team/pods",
    "/api/%76%31/namespaces/team/pods",
    "/%61%70%69%73/batch/v1/namespaces/team/jobs",
    "/apis/b%61tch/v1/namespaces/team/jobs",
    "/apis/batch/v%31/namespaces/team/%6aobs",
    # Escaped slashes.
    "/api/v1/namespaces%2fteam/pods",
    "/api/v1/namespaces%2Fteam%2Fpods",
    "/api/v1/namespaces/team%2fpods",
    "/api%2fv1/namespaces/team/pods",
    "%2fapi/v1/namespaces/team/pods",
    "/%2fapi/v1/namespaces/team/pods",
    "/apis/batch%2fv1/namespaces/team/jobs",
    "/api/v1/namespaces/team/pods%2f",
    "/api/v1/namespaces/team/pods%2fweb",
    # Slashes too many.
    PODS + "/",
    PODS + "//",
    JOBS + "/",
    "//api/v1/namespaces/team/pods",
    "///api/v1/namespaces/team/pods",
    "/api//v1/namespaces/team/pods",
    "/api/v1//namespaces/team/pods",
    "/api/v1/namespaces//team/pods",
    "/api/v1/namespaces/team//pods",
    # Dots.
    "/api/v1/namespaces/team/./pods",
    "/api/v1/namespaces/v2/../team/pods",
    "/api/v1/namespaces/team/%2e/pods",
    "/api/v1/namespaces/v2/%2e%2e/team/pods",
    "/./api/v1/namespaces/team/pods",
    PODS + "/.",
    # Twice escaped, and wrongly.
    "/api/v1/namespaces/team/%2570ods",
    "/api/v1/namespaces%252fteam/pods",
    "/api/v1/namespaces/team/pods%",
    "/api/v1/namespaces/team/pods%zz",
    "/api/v1/namespaces/team/pods%00",
    "/api/v1/namespaces/team/pods%20",
    "/api/v1/namespaces/team/pods+",
    "/api/v1/namespaces/team/pods;x=1",
    # Upper case.
    "/API/v1/namespaces/team/pods",
    "/api/V1/namespaces/team/pods",
    "/api/v1/Namespaces/team/pods",
    "/api/v1/namespaces/TEAM/pods",
    "/api/v1/namespaces/team/PODS",
    "/apis/BATCH/v1/namespaces/team/jobs",
    # Other paths.
    "/api/v1/pods",
    "/api/v1/team/pods",
    "/api/v1/watch/namespaces/team/pods",
    "/api/v1/proxy/namespaces/team/pods",
    "/api/v1/namespaces/team/pod",
    "/api/v1/namespaces/team/pods/web",
    "/apis//v1/namespaces/team/pods",
    "http://server" + PODS,
    "https://server" + PODS + "?dryRun=All",
    # Queries that try it only, or seem to.
    PODS + "?",
    PODS + "/?dryRun=All",
    PODS + "?dryRun=All",
    PODS + "?dryRun=All&dryRun=All",
    PODS + "?a=b&dryRun=All&c",
    PODS + "?dry%52un=%41ll",
    PODS + "?dryRun=All&x=%zz",
    PODS + "?x=1;y=2&dryRun=All",
    PODS + "?&&dryRun=All&&",
    PODS + "?dryRun=All;",
    PODS + "?dryRun=All;x=1",
    PODS + "?x=1;dryRun=All",
    PODS + "?;dryRun=All",
    PODS + "?dryRun=%zz",
    PODS + "?dryRun=All%",
    PODS + "?dryRun=All%3b",
    PODS + "?dryRun%3dAll",
    PODS + "?dryRun=",
    PODS + "?dryRun",
    PODS + "?dryRun&dryRun=All",
    PODS + "?dryRun=all",
    PODS + "?dryRun=All+",
    PODS + "?dryRun=All&dryRun=x",
    PODS + "?dryRun=x&dryRun=%zz",
    PODS + "?dryRun=true",
    PODS + "?dryRun=None",
    PODS + "?dryrun=All",
    PODS + "?DryRun=All",
    PODS + "?%20dryRun=All",
    PODS + "?+dryRun=All",
    PODS + "?dryRun%00=All",
    PODS + "??dryRun=All",
    PODS + "?x=?dryRun=All",
    PODS + "#?dryRun=All",
    PODS + "?dryRun=All#x",
    PODS + "%3fdryRun=All",
)


@dataclass(frozen=True, slots=True)
class Spelling:
    """A target of a POST, and what came of it."""

    target: str
    outcome: str
    status: int

    def written(self) -> str:
        """Return it as it stands in the record."""
        return json.dumps(asdict(self))


def recorded() -> list[Spelling]:
    """Return what is on record."""
    _, *lines = RECORD.read_text("utf-8").splitlines()
    return [Spelling(**json.loads(line)) for line in lines]
