"""What the server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from qbe.service.service import SearchService

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Requests by route and status with their times, and what the service holds."""

    def __init__(self, service: SearchService) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "qbe_http_requests", "Requests answered.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "qbe_http_request_seconds",
            "Time until an answer was complete.",
            ("route",),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._registry.register(_Holdings(service))

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; ``route`` is a path of the interface, never one that a client made up."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _Holdings(Collector):
    def __init__(self, service: SearchService) -> None:
        self._service = service

    def collect(self) -> Iterator[GaugeMetricFamily]:
        about = self._service.about()
        yield GaugeMetricFamily("qbe_index_papers", "Papers of the index.", about["papers"])
        yield GaugeMetricFamily(
            "qbe_index_generation", "Commits since the index was built.", about["generation"]
        )
        waiting = GaugeMetricFamily("qbe_searches_waiting", "Searches not answered yet.", labels=("stage",))
        for stage, count in self._service.waiting.items():
            waiting.add_metric((stage,), count)
        yield waiting
