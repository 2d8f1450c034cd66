"""All rules between the sizes of a configuration, checked before any process starts.

Sources: the server's own assertions and the documented Ascend limits. A rule that needs a figure that neither
the configuration nor the goal states keeps silent rather than guess.
"""

from __future__ import annotations

from collections.abc import Mapping

from executor.engines import decode_rules, flag_rules, parallel_rules, prefill_rules, speculation_rules
from executor.engines.release import Release
from executor.engines.role_settings import RoleSettings
from executor.engines.violation import Severity, Violation, Workload
from experiments.serving_config import Role, ServingConfig

_SERVERS = (Role.PREFILL, Role.DECODE, Role.MIXED)


def check_sizes(
    config: ServingConfig,
    release: Release | None = None,
    workload: Workload | None = None,
    nnodes: Mapping[Role, int] | None = None,
) -> tuple[Violation, ...]:
    """Every violation, invalid ones first. `release` None: rules that depend on the version keep silent."""
    roles = [role for role in _SERVERS if any(key.startswith(f"{role}.") for key in config.settings)]
    views = {role: RoleSettings.of(config, role, (nnodes or {}).get(role, 1)) for role in roles}
    found: list[Violation] = []
    for view in views.values():
        found += parallel_rules.check(view, workload or Workload())
        found += prefill_rules.check(view, release, workload or Workload())
        found += decode_rules.check(view)
        found += speculation_rules.check(view, release)
        found += flag_rules.check(view, release)
    if Role.PREFILL in views and Role.DECODE in views:
        found += speculation_rules.check_pair(views[Role.PREFILL], views[Role.DECODE])
        found += flag_rules.check_pair(views[Role.PREFILL], views[Role.DECODE])
    order = list(Severity)
    return tuple(sorted(found, key=lambda violation: order.index(violation.severity)))
