"""What a server counts and times, for Prometheus. The names are vLLM's, with the prefix `llmlesson_`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from llmlesson.server.worker import Job, Worker

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120)
TOKENS = tuple(2**n for n in range(14))
NOW = (
    ("num_requests_running", "Requests that share the steps now."),
    ("num_requests_waiting", "Requests in the queue."),
    ("kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1."),
)
SO_FAR = (
    ("prefix_cache_queries", "Tokens of prompts that were looked up in the cache."),
    ("prefix_cache_hits", "How many of them were found there."),
    ("num_preemptions", "How often a request lost its place in the cache to an older one."),
)


class Metrics:
    """One registry for each server: two servers in one process don't share their counts."""

    def __init__(self, worker: Worker) -> None:
        self._registry = CollectorRegistry()
        self._labels = {"model_name": worker.backend.model}
        self._prompt = self._new(Counter, "prompt_tokens", "Tokens of prompts, by requests that have ended.")
        self._generation = self._new(Counter, "generation_tokens", "Tokens of answers, by requests that have ended.")
        self._ended = self._new(Counter, "request_success", "Requests that have ended.", ("finished_reason",))
        self._first = self._new(Histogram, "time_to_first_token_seconds", "From arrival to the first token.")
        self._gap = self._new(Histogram, "inter_token_latency_seconds", "Between two tokens of an answer.")
        self._whole = self._new(Histogram, "e2e_request_latency_seconds", "From arrival to the last token.")
        self._queue = self._new(Histogram, "request_queue_time_seconds", "In the queue, until a step reads of it.")
        self._prefill = self._new(Histogram, "request_prefill_time_seconds", "From the queue's end to the first token.")
        self._decode = self._new(Histogram, "request_decode_time_seconds", "From the first token to the last.")
        self._mean_gap = self._new(
            Histogram, "request_time_per_output_token_seconds", "Mean gap between tokens: one sample a request."
        )
        self._prompt_length = self._new(Histogram, "request_prompt_tokens", "Tokens of a prompt.", buckets=TOKENS)
        self._length = self._new(Histogram, "request_generation_tokens", "Tokens of an answer.", buckets=TOKENS)
        self._registry.register(_Backend(worker))

    def ended(self, job: Job, reason: str) -> None:
        """Count a request that has finished, was left by its client ("abort"), or failed ("error")."""
        self._ended.labels(**self._labels, finished_reason=reason).inc()
        self._prompt.labels(**self._labels).inc(len(job.request.ids))
        self._generation.labels(**self._labels).inc(len(job.tokens_at))
        if job.started is not None:
            self._queue.labels(**self._labels).observe(job.started - job.arrived)
        if job.tokens_at and job.started is not None:
            first, last, count = job.tokens_at[0], job.tokens_at[-1], len(job.tokens_at)
            self._prefill.labels(**self._labels).observe(first - job.started)
            self._first.labels(**self._labels).observe(job.tokens_at[0] - job.arrived)
            for before, after in pairwise(job.tokens_at):
                self._gap.labels(**self._labels).observe(after - before)
            if reason not in ("abort", "error"):
                self._whole.labels(**self._labels).observe(last - job.arrived)
                self._decode.labels(**self._labels).observe(last - first)
                self._prompt_length.labels(**self._labels).observe(len(job.request.ids))
                self._length.labels(**self._labels).observe(count)
                if count > 1:
                    self._mean_gap.labels(**self._labels).observe((last - first) / (count - 1))

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _new(
        self, kind: Any, name: str, says: str, more: tuple[str, ...] = (), buckets: tuple[float, ...] = SECONDS
    ) -> Any:
        options = {"buckets": buckets} if kind is Histogram else {}
        return kind(f"llmlesson_{name}", says, ("model_name", *more), registry=self._registry, **options)


class _Backend(Collector):
    """What only the backend knows, read each time that somebody asks."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        backend = self._worker.backend
        now = zip(NOW, backend.load(), strict=True)
        so_far = zip(SO_FAR, backend.counts(), strict=True)
        for kind, values in ((GaugeMetricFamily, now), (CounterMetricFamily, so_far)):
            for (name, says), value in values:
                family = kind(f"llmlesson_{name}", says, labels=["model_name"])
                family.add_metric([backend.model], value)
                yield family
