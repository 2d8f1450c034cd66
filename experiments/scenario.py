"""The scenario of a goal: what is served and what load it gets. Everything here is fixed for a whole study.

Two results may be compared only when their `comparable_key` is equal. C and r are not in the key: they are
settings of the serving configuration, so a card may change one of them and the diff of the configurations
tells.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from experiments.schema import FieldError, Int, Line, Real, Strict
from experiments.serving_config import digest


class InputLength(Strict):
    """`encoded_tokens` counts what the model reads: the body within its chat template (16384 → 16388)."""

    body_tokens: Int = Field(ge=1)
    encoded_tokens: Int = Field(ge=1)
    task: Literal["copy", "ordinary"]

    @model_validator(mode="after")
    def _template_adds(self) -> InputLength:
        if self.encoded_tokens < self.body_tokens:
            raise FieldError(
                ("encoded_tokens",),
                f"{self.encoded_tokens} is less than body_tokens {self.body_tokens};"
                " the chat template only adds tokens",
            )
        return self


class CacheState(Strict):
    """`warm` is proved per request: cached / input tokens of each one is at least `per_request_min`."""

    state: Literal["zero", "warm"]
    per_request_min: Real | None = Field(default=None, gt=0, lt=1)
    seed_requests: Int = Field(default=0, ge=0)
    check_requests: Int = Field(default=0, ge=0)
    prefix_tokens: Int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _fits_state(self) -> CacheState:
        return self._warm() if self.state == "warm" else self._zero()

    def _warm(self) -> CacheState:
        if self.per_request_min is None:
            raise FieldError(
                ("state",), "a warm cache needs per_request_min, the share each request must reach, e.g. 0.90"
            )
        if self.seed_requests == 0:
            raise FieldError(("state",), "a warm cache needs seed_requests: the requests that fill it")
        return self

    def _zero(self) -> CacheState:
        for name in ("per_request_min", "seed_requests", "check_requests", "prefix_tokens"):
            if getattr(self, name):
                raise FieldError((name,), "has no meaning with state: zero; remove it, or write state: warm")
        return self


def _unlimited(value: object) -> object:
    return None if value == float("inf") else value


class Load(Strict):
    """N requests, at most C in flight, sent at r per second; `rate` None sends as fast as C allows."""

    client: Literal["aisbench", "bench_serving"]
    requests: Int = Field(ge=1, le=1_000_000)
    concurrency: Int = Field(ge=1, le=100_000)
    rate: Annotated[Real | None, BeforeValidator(_unlimited)] = Field(gt=0)
    warmup: Int = Field(default=8, ge=0, le=10_000)
    seed: Int = Field(default=42, ge=0)

    @model_validator(mode="after")
    def _reaches_concurrency(self) -> Load:
        if self.concurrency > self.requests:
            raise FieldError(
                ("concurrency",),
                f"{self.concurrency} can never be in flight with {self.requests} requests",
            )
        return self


class Scenario(Strict):
    """`dataset` is the SHA-256 or the path of the frozen data; None lets the study build it from the rest."""

    model: Line = Field(max_length=200)
    deployment: Literal["pd", "mixed"]
    input: InputLength
    output_tokens: Int = Field(ge=1)
    cache: CacheState
    load: Load
    dataset: Line | None = None

    @model_validator(mode="after")
    def _prefix_can_reach_share(self) -> Scenario:
        prefix, share = self.cache.prefix_tokens, self.cache.per_request_min
        if prefix is None or share is None:
            return self
        if prefix > self.input.encoded_tokens:
            raise FieldError(
                ("cache", "prefix_tokens"), f"is longer than the input of {self.input.encoded_tokens} tokens"
            )
        if prefix / self.input.encoded_tokens < share:
            raise FieldError(
                ("cache", "prefix_tokens"),
                f"{prefix} of {self.input.encoded_tokens} tokens is {prefix / self.input.encoded_tokens:.4%},"
                f" below per_request_min {share:.4%}",
            )
        return self

    def digest(self) -> str:
        return digest(self.model_dump(mode="json"))

    def comparable_key(self, load: Load) -> dict[str, object]:
        """What must be equal for two results to be comparable, by dotted name. `load` is the one of the tier.

        The window is not in it (a measurement has several), nor are C and r (see above).
        """
        parts: dict[str, object] = {"scenario": self.model_dump(mode="json", exclude={"load"})}
        parts["load"] = load.model_dump(mode="json", exclude={"concurrency", "rate"})
        return dict(_flat("", parts))


def _flat(prefix: str, tree: dict[str, object]) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in tree.items():
        path = f"{prefix}.{name}" if prefix else name
        found += _flat(path, value) if isinstance(value, dict) else [(path, value)]
    return found
