"""The warm prefix cache: seed requests fill it, separate check requests prove it, one by one, before the load."""

from __future__ import annotations

import json

import httpx

from executor.client_command import dataset_path
from executor.service import front_door
from executor.stage_result import Done, Faulted, StageResult
from executor.trial_context import TrialContext
from experiments.serving_config import Role
from experiments.trial import Reason, Stage

ROW_CAP_BYTES = 256 << 20
REQUEST_TIMEOUT_S = 600.0


def warm_cache(context: TrialContext) -> StageResult:
    """Send every seed, then every check; each check's cached share has to reach the scenario's minimum."""
    wanted = context.plan.scenario.cache.per_request_min or 0.0
    for done, prompt in enumerate(_prompts(context, "seed"), start=1):
        context.say("seeding the prefix cache", done=done, total=context.plan.scenario.cache.seed_requests)
        if _generate(context, prompt) is None:
            return Faulted(reason=Reason.CLIENT, detail="a seed request failed", repairable=True)
    checks: list[list[int]] = []
    for done, prompt in enumerate(_prompts(context, "check"), start=1):
        context.say("checking the prefix cache", done=done, total=context.plan.scenario.cache.check_requests)
        counts = _generate(context, prompt)
        if counts is None:
            return Faulted(reason=Reason.CLIENT, detail="a check request failed", repairable=True)
        checks.append(list(counts))
    short = [c / n for c, n in checks if c / n < wanted]
    if short and not any(cached for cached, _ in checks) and not _tells_cached_tokens(context):
        detail = "no check request shows any cached tokens; servers tell them only with enable-cache-report: set it"
        return Faulted(reason=Reason.EVIDENCE_INCOMPLETE, detail=detail)
    if short:
        detail = (
            f"{len(short)} of {len(checks)} check requests reach less than {wanted:.0%}, the least {min(short):.4%}"
        )
        return Faulted(reason=Reason.WORKLOAD_VIOLATED, detail=detail)
    return Done(payload={"checks": checks}, note=f"{len(checks)} check requests proved ≥ {wanted:.0%} each")


def _tells_cached_tokens(context: TrialContext) -> bool:
    """Whether every server was told to report what a request took from the cache."""
    settings = context.plan.config.settings
    return all(settings.get(f"{role}.flag.enable-cache-report") is True for role in context.plan.roles)


def _prompts(context: TrialContext, part: str) -> list[str]:
    """The prompts of a part of the dataset; none where the scenario asks for none."""
    if part not in context.payloads[Stage.PREPARE]["parts"]:
        return []
    _, host = context.host_of(Role.CLIENT)
    text = host.fetch(dataset_path(context, part), ROW_CAP_BYTES).decode()
    return [str(json.loads(line)["question"]) for line in text.splitlines() if line.strip()]


def _generate(context: TrialContext, prompt: str) -> tuple[int, int] | None:
    """(cached, prompt) tokens of one request as the chat endpoint counts them; None if it failed.

    Never asked twice: a check that was answered unheard would find itself in the cache the second time.
    """
    name, _, port = front_door(context)
    body = {
        "model": "",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 1,
        "temperature": 0.0,
    }
    try:
        with context.hosts[name].http(port, REQUEST_TIMEOUT_S) as http:
            answer = http.post("/v1/chat/completions", json=body)
        usage = answer.json()["usage"]
        details = usage.get("prompt_tokens_details") or {}
        return int(details.get("cached_tokens") or 0), int(usage["prompt_tokens"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None
