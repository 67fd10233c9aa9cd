"""Grafana dashboards, alerts and recording rules as code: ``python -m dashboards`` writes the files beside this one."""
