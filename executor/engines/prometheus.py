"""Figures from a server's `/metrics` text. A counter that fell is a restart, never a negative rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

PREFIX = "sglang:"


@dataclass(frozen=True, kw_only=True)
class MetricPoint:
    """One sample line."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """One answer of the endpoint. `unread` counts lines that are no valid samples."""

    points: tuple[MetricPoint, ...]
    unread: int = 0

    def values(self, name: str, **labels: str) -> tuple[float, ...]:
        """The values of every series of this name that carries these labels; `sglang:` may be left out."""
        wanted = name if name.startswith(PREFIX) else PREFIX + name
        pairs = labels.items()
        return tuple(
            point.value for point in self.points if point.name == wanted and pairs <= dict(point.labels).items()
        )

    def total(self, name: str, **labels: str) -> float | None:
        """The sum over all matching series; `None` if there is none."""
        values = self.values(name, **labels)
        return sum(values) if values else None

    def histogram_mean(self, name: str, **labels: str) -> float | None:
        """Sum over count. Quantiles are not offered: the last bucket is open."""
        total, count = self.total(f"{name}_sum", **labels), self.total(f"{name}_count", **labels)
        return None if total is None or not count else total / count

    def histogram_quantile(self, name: str, share: float, **labels: str) -> float | None:
        """The upper bound of the bucket that holds this share; `None` if that bucket is open or empty."""
        wanted = f"{name if name.startswith(PREFIX) else PREFIX + name}_bucket"
        buckets = sorted(self._buckets(wanted, labels).items())
        if not buckets or buckets[-1][1] <= 0:
            return None
        needed = share * buckets[-1][1]
        bound = next(bound for bound, count in buckets if count >= needed)
        return None if bound == float("inf") else bound

    def _buckets(self, name: str, labels: dict[str, str]) -> dict[float, float]:
        counts: dict[float, float] = {}
        for point in self.points:
            own = dict(point.labels)
            if point.name == name and "le" in own and labels.items() <= own.items():
                bound = float(own["le"])
                counts[bound] = counts.get(bound, 0.0) + point.value
        return counts


def parse_metrics(text: str) -> Scrape:
    """All samples. Text that the exposition parser refuses is read line by line, the bad lines counted."""
    try:
        return Scrape(points=tuple(_points(text_string_to_metric_families(text))))
    except ValueError:
        return _parse_by_line(text)


def counter_increase(before: Scrape, after: Scrape, name: str, **labels: str) -> float | None:
    """How much a counter grew between two scrapes; `None` if it is missing or fell (the server restarted)."""
    old, new = before.total(name, **labels), after.total(name, **labels)
    return None if old is None or new is None or new < old else new - old


def _parse_by_line(text: str) -> Scrape:
    points: list[MetricPoint] = []
    unread = 0
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        try:
            points += _points(text_string_to_metric_families(line + "\n"))
        except ValueError:
            unread += 1
    return Scrape(points=tuple(points), unread=unread)


def _points(families: Iterable[Metric]) -> Iterator[MetricPoint]:
    for family in families:
        for sample in family.samples:
            yield MetricPoint(name=sample.name, labels=tuple(sorted(sample.labels.items())), value=float(sample.value))
