"""Every stored answer of a real server about itself is read, whatever its release."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from executor.engines import server_info
from executor.engines.attestation import attest
from experiments.serving_config import Role, ServingConfig
from tests.executor.engines.field_samples import FIELD, REAL

ROLES = {"prefill": Role.PREFILL, "decode": Role.DECODE}


def bodies() -> Iterator[tuple[str, dict[str, object]]]:
    """Answers of the endpoint itself, and those that bench clients stored inside their records."""
    for path in sorted((*FIELD.glob("server_info/*.json"), REAL / "real_server_info.json")):
        if path.is_file():
            yield path.name, json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((*FIELD.glob("bench_jsonl/*.json*"), *REAL.glob("*.jsonl"))):
        for place, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            body = json.loads(line).get("server_info") if line.startswith('{"') else None
            if isinstance(body, dict):
                yield f"{path.name}:{place + 1}", body


STORED = dict(bodies())


@pytest.mark.parametrize("name", STORED)
def test_a_server_attests_what_it_reports(name: str) -> None:
    """A configuration made of a server's own words matches that server; nothing is adjusted or unverified."""
    body = STORED[name]
    role = ROLES.get(str(body.get("disaggregation_mode")), Role.MIXED)
    settings = {
        f"{role}.flag.{key.replace('_', '-')}": body[key]
        for key in (
            *("tp_size", "dp_size", "enable_dp_attention", "max_running_requests", "mem_fraction_static"),
            *("page_size", "max_prefill_tokens", "schedule_policy", "load_balance_method", "disable_radix_cache"),
        )
        if body.get(key) is not None
    }
    found = attest(body, ServingConfig.model_validate({"settings": settings}), role)
    assert (found.mismatches, found.adjusted, found.unverified) == ((), (), ())
    assert found.simulated is False


@pytest.mark.parametrize("name", STORED)
def test_figures_of_every_release_are_read_or_missing(name: str) -> None:
    """Where a release reports a figure it is positive; where it does not, it is `None`."""
    body = STORED[name]
    for figure in (server_info.effective_running_cap(body), server_info.token_capacity(body)):
        assert figure is None or figure > 0
    assert server_info.identity(body) is not None


def test_one_changed_setting_is_the_one_mismatch() -> None:
    """Exactly the setting that differs is named, on every stored server that reports it."""
    for name, body in STORED.items():
        if body.get("max_prefill_tokens") is None:
            continue
        role = ROLES.get(str(body.get("disaggregation_mode")), Role.MIXED)
        config = ServingConfig(settings={f"{role}.flag.max-prefill-tokens": 1234567})
        assert [entry.name for entry in attest(body, config, role).mismatches] == ["max-prefill-tokens"], name
