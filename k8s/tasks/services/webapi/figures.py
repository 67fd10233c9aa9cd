"""The samples of the web manager for the metrics of its ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from backoff_ctrl.k8s.gate.subscribers import Subscriber

from .service import Service, WebCounts


class WebFigures(Subscriber):
    """A subscriber that only gives samples."""

    def __init__(self, counts: WebCounts, services: Mapping[str, Service]) -> None:
        self._counts = counts
        self._services = services

    def figures(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Return samples: name without prefix, labels, value. Any thread may ask."""
        for plugin, service in list(self._services.items()):
            origins = list(service.origins)
            yield "webapi_jobs", (plugin,), service.followed
            yield "webapi_read_lag_seconds", (plugin,), max(each.refresher.counts.lag for each in origins)
            yield "webapi_read_seconds_total", (plugin,), sum(each.refresher.counts.seconds for each in origins)
            yield "webapi_calls_in_flight", (plugin,), sum(each.pacer.window().in_flight for each in origins)
            yield "webapi_window_size", (plugin,), service.origins.own.pacer.window().size
            yield "webapi_overloads_total", (plugin,), sum(each.pacer.overloads for each in origins)
        for call, count in list(self._counts.calls.items()):
            yield "webapi_calls_total", call, count
        for failed, count in list(self._counts.failures.items()):
            yield "webapi_failures_total", failed, count
        for event, count in list(self._counts.events.items()):
            yield "webapi_plugin_events_total", event, count
