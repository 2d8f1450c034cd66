"""The simulated router forwards to both halves and knows what the real one knows."""

from __future__ import annotations

from executor.simulated.http_json import call
from tests.executor.simulated.lab import DECODE, Lab, wait_until

CANARY = {"text": "hello there", "sampling_params": {"max_new_tokens": 4}}


def test_a_canary_passes_through_both_servers(lab: Lab) -> None:
    """One request is computed by prefill, decoded by decode, and logged by both."""
    prefill, decode, router = lab.pool()
    status, answer = call(f"{router.url}/generate", "POST", CANARY)
    assert (status, answer["meta_info"]["completion_tokens"]) == (200, 4)
    assert "Prefill batch" in prefill.log
    assert '"POST /generate HTTP/1.1" 200' in decode.log


def test_sixteen_seeds_reach_sixteen_ranks(lab: Lab) -> None:
    """Rooms count up, so as many requests as ranks fill every rank's cache; checks then hit."""
    prefill, _, router = lab.pool()
    body = {"text": "<|seg:shared:4096|> <|seg:own:100|>", "sampling_params": {"max_new_tokens": 1}}
    for _ in range(16):
        call(f"{router.url}/generate", "POST", body)
    caches = prefill.get("/_simulated/state")["caches"]
    assert [rows[0][1:] for rows in caches] == [["shared", 4096]] * 16
    check = body | {"text": "<|seg:shared:4096|> <|seg:other:100|>"}
    assert call(f"{router.url}/generate", "POST", check)[1]["meta_info"]["cached_tokens"] == 4096


def test_readiness_workers_and_flush(lab: Lab) -> None:
    """The router lists its workers, is ready with them, flushes both, and has no /server_info."""
    prefill, decode, router = lab.pool()
    assert router.get("/readiness") == {"status": "ready", "healthy_workers": 2, "total_workers": 2}
    workers = {worker["worker_type"]: worker["url"] for worker in router.get("/workers")["workers"]}
    assert workers == {"prefill": prefill.url, "decode": decode.url}
    assert call(f"{router.url}/flush_cache", "POST")[1]["workers_flushed"] == 2
    assert [call(f"{router.url}{path}")[0] for path in ("/server_info", "/model_info")] == [404, 404]
    assert router.get("/v1/models")["data"][0]["id"] == "/models/DeepSeek-V4-Flash-W8A8"


def test_a_router_without_all_workers_is_not_ready(lab: Lab) -> None:
    """Readiness waits for every worker's health."""
    decode = lab.serve(DECODE)
    routing = ["--pd-disaggregation", "--prefill", "http://127.0.0.1:9", "8998", "--decode", decode.url]
    router = wait_until(lab.start("router", routing), "/health")
    assert call(f"{router.url}/readiness")[0] == 503


def test_a_dead_decode_is_a_bad_gateway_that_readiness_does_not_see(lab: Lab) -> None:
    """After the decode server died a request is answered 502, while /readiness still says ready."""
    _, decode, router = lab.pool()
    decode.process.kill()
    decode.process.wait()
    status, answer = call(f"{router.url}/generate", "POST", CANARY)
    assert (status, answer["error"]["code"]) == (502, "decode_server_error")
    assert call(f"{router.url}/readiness")[0] == 200
