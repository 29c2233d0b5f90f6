"""What a server counts for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Counts:
    """The numbers of one server, apart from those of any other in the process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "tagfill_requests", "Requests for predictions by status.", ["status"], registry=self._registry
        )
        self.images = Counter("tagfill_images", "Images that were looked at.", registry=self._registry)
        self.seconds = Histogram(
            "tagfill_request_seconds", "Seconds from a request to its answer.", registry=self._registry
        )
        self.batches = Histogram(
            "tagfill_batch_images", "Images of a batch.", buckets=(1, 2, 4, 8, 16, 32, 64), registry=self._registry
        )
        self.waiting = Gauge("tagfill_waiting_images", "Images that wait for the model.", registry=self._registry)

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self._registry)
