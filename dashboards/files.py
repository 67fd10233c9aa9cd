"""What is written, by file name: dashboards as JSON, recording rules and alerts as Prometheus' rule files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from .alerts import ALERTS
from .boards import written
from .gate import GATES
from .namespace import NAMESPACE
from .overview import OVERVIEW
from .recording import RECORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .alerts import Alert

BOARDS: Final = (OVERVIEW, NAMESPACE, GATES)
RUNBOOKS: Final = "docs/operations.md"
_HEAD: Final = "# Written by `python -m dashboards` from dashboards/{source}: change that, then run it again.\n"


def files(*, grafana: str = "", runbooks: str = "") -> Mapping[str, str]:
    """Return the text of each file. ``grafana`` and ``runbooks`` are addresses for the links of alerts."""
    records = [{"record": record.name, "expr": record.expr} for record in RECORDS]
    alerts = [_alert(alert, grafana, runbooks or RUNBOOKS) for alert in ALERTS]
    return {
        **{f"{board.uid}.json": written(board) for board in BOARDS},
        "rules.yaml": _rule_file("recording.py", "backoff-ctrl.rules", records),
        "alerts.yaml": _rule_file("alerts.py", "backoff-ctrl.alerts", alerts),
    }


def _alert(alert: Alert, grafana: str, runbooks: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{runbooks}#{alert.anchor}",
            "dashboard_url": grafana + alert.dashboard(),
        },
    }


def _rule_file(source: str, group: str, rules: list[dict[str, Any]]) -> str:
    document = {"groups": [{"name": group, "rules": rules}]}
    return _HEAD.format(source=source) + yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True)
