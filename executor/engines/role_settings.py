"""Typed view of one role's settings, with the sizes that the server derives from them.

Absent settings are `None`; a derived size uses a default of the server only where its documents name one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from executor.engines.sglang_launch import configured_flags
from experiments.serving_config import Kind, Role, ServingConfig, Value

NPU_PAGE = 128
DEFAULT_DISPATCH_TOKENS = 128  # of SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK
DEFAULT_MAX_PREFILL_TOKENS = 16384
DEFAULT_NPU_CHUNK = 8192  # on a 64 GB die


@dataclass(frozen=True, kw_only=True)
class RoleSettings:
    """Flags (full names) and environment of one role."""

    role: Role
    flags: Mapping[str, Value]
    env: Mapping[str, Value]
    nnodes: int = 1

    @classmethod
    def of(cls, config: ServingConfig, role: Role, nnodes: int = 1) -> RoleSettings:
        return cls(role=role, flags=configured_flags(config, role), env=config.of(role, Kind.ENV), nnodes=nnodes)

    def integer(self, name: str) -> int | None:
        return as_integer(self.flags.get(name))

    def number(self, name: str) -> float | None:
        return as_number(self.flags.get(name))

    def text(self, name: str) -> str | None:
        value = self.flags.get(name)
        return None if value is None or isinstance(value, bool) else str(value)

    def is_on(self, name: str) -> bool:
        return self.flags.get(name) is True

    def env_is_on(self, name: str) -> bool:
        return str(self.env.get(name, "")).lower() in {"1", "true", "yes", "on"}

    @property
    def tp(self) -> int:
        return self.integer("tp-size") or 1

    @property
    def dp(self) -> int:
        return self.integer("attn-dp-size") or self.integer("dp-size") or 1

    @property
    def has_dp_attention(self) -> bool:
        return self.dp > 1 and (self.is_on("enable-dp-attention") or self.integer("attn-dp-size") is not None)

    @property
    def is_npu(self) -> bool:
        return self.text("device") == "npu" or self.text("attention-backend") == "ascend"

    @property
    def page(self) -> int | None:
        return self.integer("page-size") or (NPU_PAGE if self.is_npu else None)

    @property
    def chunk_asked(self) -> int | None:
        asked = self.integer("chunked-prefill-size")
        return DEFAULT_NPU_CHUNK if asked is None and self.is_npu else asked

    @property
    def chunk(self) -> int | None:
        """Effective tokens per prefill step of one DP rank; `None` if chunking is off or unknown."""
        asked = self.chunk_asked
        if asked is None or asked <= 0:
            return None
        return asked // self.dp if self.has_dp_attention else asked

    @property
    def running_cap(self) -> int | None:
        """Requests that one DP rank may run at once."""
        total = self.integer("max-running-requests")
        if total is None:
            return None
        return total // self.dp if self.has_dp_attention else total

    @property
    def draft_tokens(self) -> int:
        """Tokens that one request puts through a decode step: the draft to verify, or one."""
        if self.text("speculative-algorithm") is None:
            return 1
        steps = self.integer("speculative-num-steps")
        if self.integer("speculative-eagle-topk") == 1 and steps is not None:
            return steps + 1
        return self.integer("speculative-num-draft-tokens") or 1

    @property
    def has_radix_cache(self) -> bool:
        return not self.is_on("disable-radix-cache")

    @property
    def graph_sizes(self) -> tuple[int, ...]:
        """Decode batch sizes to capture, if they are listed."""
        listed = self.text("cuda-graph-bs") or self.text("cuda-graph-bs-decode")
        return integers(listed) if listed else ()

    @property
    def graph_max(self) -> int | None:
        if self.graph_sizes:
            return max(self.graph_sizes)
        return self.integer("cuda-graph-max-bs") or self.integer("cuda-graph-max-bs-decode")


def as_integer(value: Value) -> int | None:
    """An integer that may be written as text, as imported scripts and YAML do; `None` for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(str(value))
    except ValueError:
        return None


def as_number(value: Value) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(str(value))
    except ValueError:
        return None


def integers(text: str) -> tuple[int, ...]:
    """`"2 4 8"` or `"[2, 4, 8]"` as numbers; words that are none are left out."""
    words = text.replace("[", " ").replace("]", " ").replace(",", " ").split()
    return tuple(number for word in words if (number := as_integer(word)) is not None)


def page_ceil(tokens: int, page: int) -> int:
    return -(-tokens // page) * page
