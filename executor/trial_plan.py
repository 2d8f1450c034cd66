"""One trial as the executor sees it: what runs where, under which names. Pure; two compilations are equal.

The names decide identity on the hosts: a job id is chosen here, before anything is sent, and never again.
"""

from __future__ import annotations

from dataclasses import dataclass

from executor.engines.violation import Workload
from executor.pool import Pool
from experiments.goal import Quality, WindowFloor
from experiments.scenario import Scenario
from experiments.serving_config import Role, ServingConfig, digest
from experiments.trial import Tier, TrialLoad


@dataclass(frozen=True, kw_only=True)
class TrialPlan:
    """Everything that a trial needs to know, and nothing that could change under it."""

    study_id: str
    trial_id: str
    tier: Tier
    config: ServingConfig
    scenario: Scenario
    load: TrialLoad
    floor: WindowFloor
    native_rule: str
    parent: ServingConfig | None = None  # what a card changes; None: the incumbent itself
    allowed_failures: int = 0
    evaluation: Quality | None = None  # instead of a load: a command that looks at the outputs
    usual_retokenized_ratio: float | None = None  # of this workload's earlier valid runs; None: there is no history

    @property
    def roles(self) -> tuple[Role, ...]:
        """The server roles, in the order in which they start."""
        return (Role.MIXED,) if self.scenario.deployment == "mixed" else (Role.PREFILL, Role.DECODE)

    @property
    def has_router(self) -> bool:
        return self.scenario.deployment == "pd"


def service_key(plan: TrialPlan, pool: Pool, role: Role, layout: str | None = None) -> str:
    """Identity of what one server must be: its settings, its place and its programs. 12 hex digits.

    Client settings are not in it, so a change of C or r finds the running server again. `layout` is the digest of the
    expert layout that stands behind a name.
    """
    place = {name: host.model_dump(mode="json") for name, host in pool.hosts_of(role).items()}
    parts = {
        "settings": plan.config.fingerprint(role),
        "build": plan.config.get_build(role),
        "place": place,
        "program": list(pool.build_named(plan.config.get_build(role)).server),
        "model": pool.client.model_path,
        **({} if layout is None else {"layout": layout}),
    }
    return digest(parts)[:12]


def server_job_prefix(plan: TrialPlan, role: Role, key: str) -> str:
    """Job ids of servers are `<study>.<role>.<key>.<n>`; n counts launches, so that a dead id is never reused."""
    return f"{plan.study_id}.{role}.{key}."


def role_of_server_job(job_id: str) -> str | None:
    """The role in a server's job id, or None for any other job."""
    parts = job_id.split(".")
    return parts[1] if len(parts) == 4 and parts[3].isdigit() else None


def measure_job(plan: TrialPlan) -> str:
    return f"{plan.trial_id}.measure"


def trial_directory(plan: TrialPlan, workdir: str) -> str:
    return f"{workdir}/trials/{plan.trial_id}"


def workload_of(scenario: Scenario) -> Workload:
    """What one request of the scenario brings, for the engine's size rules."""
    cached = int((scenario.cache.per_request_min or 0.0) * scenario.input.encoded_tokens)
    return Workload(
        prompt_tokens=scenario.input.encoded_tokens, output_tokens=scenario.output_tokens, cached_tokens=cached
    )
