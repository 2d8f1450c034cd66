"""One small, valid goal as text, and a way to break it in one place."""

from __future__ import annotations

GOAL = """\
name: flash-16k
scenario:
  model: DeepSeek-V4-Flash-W8A8
  deployment: pd
  input: {body_tokens: 16384, encoded_tokens: 16388, task: copy}
  output_tokens: 1024
  cache: {state: zero}
  load: {client: aisbench, requests: 640, concurrency: 128, rate: 6.0}
objective: {metric: output_tok_s_per_card, window: native, direction: maximize, target: "> 230"}
constraints: [tpot_mean < 20 ms, failed_requests == 0]
report: [ttft_mean]
screening: {requests: 320}
budget: {trials: 40, hours: 10}
baseline: {file: baseline.yaml}
knobs:
  - {role: prefill, flag: prefill-max-requests, values: [1, 2, 3], cost: restart}
  - {role: client, param: concurrency, range: [32, 160], cost: hot}
"""


def changed(old: str, new: str, text: str = GOAL) -> str:
    """The text with its only `old` replaced; a test that breaks nothing fails here."""
    assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the text"
    return text.replace(old, new)
