"""The small goal of the fault tests: the shipped scenario with few requests, so that a trial takes about a second."""

from __future__ import annotations

from importlib.resources import files

GOAL = """\
name: {name}
scenario:
  model: DeepSeek-V4-Flash-W8A8
  deployment: pd
  input: {{body_tokens: 16384, encoded_tokens: 16388, task: copy}}
  output_tokens: 1024
  cache: {cache}
  load: {{client: {client}, requests: 16, concurrency: 8, rate: 6.0, warmup: 2, seed: 42}}
objective: {{metric: output_tok_s_per_card, window: whole, direction: maximize}}
window_floor: {{requests: 4, seconds: 1}}
constraints: [failed_requests == 0]
screening: {{requests: 16}}
noise: {{repeats: {repeats}}}
budget: {{trials: {trials}, hours: 10}}
baseline: {{file: baseline.yaml}}
knobs:
  - {{role: prefill, flag: prefill-max-requests, values: [1, 2, 3, 4], cost: restart}}
  - {{role: decode, flag: num-reserved-decode-tokens, values: [128, 256, 512], cost: restart, default: 512}}
  - {{role: client, param: concurrency, values: [4, 8, 12], cost: hot}}
"""
ZERO = "{state: zero}"
WARM = "{state: warm, per_request_min: 0.90, seed_requests: 2, check_requests: 2}"


def goal_text(
    name: str = "faults", *, trials: int = 6, repeats: int = 3, client: str = "aisbench", cache: str = ZERO
) -> str:
    return GOAL.format(name=name, trials=trials, repeats=repeats, client=client, cache=cache)


def baseline_text() -> str:
    return files("agent.demo").joinpath("16k-zero-cache", "baseline.yaml").read_text(encoding="utf-8")
