"""What the two engines of a run are configured to: the effective arguments, in the model's own terms.

Built from what a server reports about itself, never from what was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from executor.simulated.model.admission import AdmissionRule


class Routing(StrEnum):
    """How a request finds its data-parallel rank."""

    ROUND_ROBIN = "round_robin"
    RANDOM = "random"  # follow_bootstrap_room: the room number is random, the rank is room mod dp
    LEAST_LOADED = "least_loaded"
    LONGEST_PREFIX = "longest_prefix"  # a rank that caches most of the prompt; they take turns where several do


@dataclass(frozen=True, kw_only=True)
class PrefillSetup:
    """A prefill engine (or the prefill half of a mixed one), per rank where a rank is meant."""

    dp: int
    dies: int  # devices that share the expert work
    rule: AdmissionRule
    radix: bool
    pool_tokens: int
    max_running: int
    routing: Routing
    imbalance: float = 1.0
    slowdown: float = 1.0
    delay_passes: int = 0  # of a mixed engine: decode passes that a prefill waits for other ranks to have work


@dataclass(frozen=True, kw_only=True)
class DecodeSetup:
    """A decode engine (or the decode half of a mixed one), per rank where a rank is meant."""

    dp: int
    max_running: int
    slots: int  # requests with reserved memory, running ones included
    pool_tokens: int
    reserved_tokens: int
    graph_sizes: tuple[int, ...]
    width: int  # tokens verified per request and step; 1 without speculation
    routing: Routing
    imbalance: float = 1.0
    slowdown: float = 1.0
    acceptance_scale: float = 1.0  # of the probability that a further draft token is accepted
