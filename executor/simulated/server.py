"""`python -m executor.simulated.server <sglang.launch_server argv>`: a process that looks like one SGLang server.

It computes nothing. Clients of the simulated pool read its effective arguments and caches, run the load in virtual time
and hand the outcome back (`/_simulated/account`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType

from executor.simulated.arguments import parse
from executor.simulated.calibrations import calibration_for
from executor.simulated.faults import BEHAVIOURS, Injector
from executor.simulated.http_json import Server
from executor.simulated.resolution import Effective, LaunchRefused, resolve
from executor.simulated.server_http import handler_for
from executor.simulated.server_log import rank_prefix, stamp
from executor.simulated.server_state import ServerState

VERSION_VARIABLE = "TUNELOOP_SIM_SGLANG_VERSION"
DEFAULT_VERSION = "0.5.22"
START_VARIABLE = "TUNELOOP_SIM_START_S"  # real seconds between launch and readiness


def main(argv: list[str]) -> int:
    version = os.environ.get(VERSION_VARIABLE, DEFAULT_VERSION)
    options = parse(argv, version)
    injector = Injector("server", argv, _role(options["disaggregation_mode"]))
    if injector.take("server_exits_at_start"):
        _say("Scheduler hit an exception: Traceback (most recent call last):")
        _say("RuntimeError: NPU function error: aclrtSetDevice, error code is 507033")
        return _die("Received sigquit from a child process. It usually means the child failed.")
    calibration = calibration_for(str(options["model_path"]))
    try:
        effective = resolve(options, os.environ, calibration)
    except LaunchRefused as refusal:
        return _refuse(refusal)
    if injector.take("capture_fails"):
        return _refuse(LaunchRefused("Exception", "Capture cuda graph failed: ACL stream synchronize failed, 507035"))
    wrong = injector.take("wrong_effective_arg")
    if wrong:
        effective.arguments[str(wrong.get("argument", "prefill_max_requests"))] = wrong.get("value", 1)
    state = ServerState(effective, calibration, version, argv, os.environ)
    state.behaviours = {name: fault for name in BEHAVIOURS if (fault := injector.take(name))}
    return _serve(state, injector)


def _role(mode: str) -> str:
    return "mixed" if mode == "null" else mode


def _serve(state: ServerState, injector: Injector) -> int:
    arguments = state.effective.arguments
    port = int(arguments["port"])
    if injector.take("port_moves"):
        port = 0
    _announce(state)
    try:
        server = Server((str(arguments["host"]), port), handler_for(state))
    except OSError as error:
        state.log(f"ERROR:    [Errno {error.errno}] error while attempting to bind on address: address already in use")
        return 1
    _on_sigterm(state, server)
    threading.Thread(target=_become_ready, args=(state, injector, server.server_port), daemon=True).start()
    server.serve_forever(poll_interval=0.05)
    return 0


def _announce(state: ServerState) -> None:
    """The start-up lines up to the bound port."""
    effective = state.effective
    state.log("simulated: this is the simulated pool of tuneloop, no model is loaded and no device is used")
    for notice in effective.notices:
        state.log(notice)
    shown = {key: value for key, value in effective.arguments.items() if key != "config"}
    state.log(f"server_args={shown!r}")
    if effective.mode == "prefill":
        state.log(
            f"CommonKVBootstrapServer started successfully on {effective.arguments['host']}:"
            f"{effective.arguments['disaggregation_bootstrap_port']}"
        )
    for text in _rank_lines(state):
        for rank in range(effective.dp):
            state.log(text, rank_prefix(state.style, rank))


def _rank_lines(state: ServerState) -> list[str]:
    """What every rank prints while it loads, phase by phase."""
    effective, memory = state.effective, state.calibration.memory
    arguments = effective.arguments
    free_gb = memory.device_gb * (1 - float(arguments["mem_fraction_static"]))
    lines = [
        f"Load weight begin. avail mem={memory.device_gb:.2f} GB",
        f"Load weight end. elapsed={state.startup_time['load_weight']:.2f} s, type=DeepseekV4ForCausalLM, "
        f"avail mem={memory.device_gb - memory.weights_gb:.2f} GB, mem usage={memory.weights_gb:.2f} GB.",
        f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {effective.pool_tokens}",
        f"Memory pool end. avail mem={free_gb:.2f} GB",
    ]
    if effective.graph_sizes:
        sizes = list(effective.graph_sizes)
        lines += [f"Capture npu graph begin. bs={sizes}", f"Capture npu graph end. bs={sizes}"]
    lines.append(
        f"max_total_num_tokens={effective.pool_tokens}, chunked_prefill_size={arguments['chunked_prefill_size']}, "
        f"max_prefill_tokens={arguments['max_prefill_tokens']}, max_running_requests={effective.running_per_rank}, "
        f"context_len={arguments['context_length'] or 163840}, available_gpu_mem={free_gb:.2f} GB"
    )
    return lines


def _become_ready(state: ServerState, injector: Injector, port: int) -> None:
    slow = injector.take("slow_start")
    time.sleep(float(slow.get("seconds", 2.0)) if slow else float(os.environ.get(START_VARIABLE, "0.05")))
    if injector.take("server_never_ready"):
        return
    flood = injector.take("log_flood")
    if flood:
        _flood(state, int(flood.get("megabytes", 20)))
    state.log(f"INFO:     Uvicorn running on http://{state.effective.arguments['host']}:{port} (Press CTRL+C to quit)")
    if state.effective.mode != "null":
        state.log("Start of pd disaggregation warmup ...")
        state.log("End of disaggregation warmup")
    state.phase = "ready"
    state.log("The server is fired up and ready to roll!")


def _flood(state: ServerState, megabytes: int) -> None:
    line = "WARNING: " + "a warning that repeats itself " * 34
    for _ in range(megabytes):
        state.log("\n".join([line] * 1000))


def _on_sigterm(state: ServerState, server: Server) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        state.phase = "stopping"
        state.log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)


def _say(text: str) -> None:
    print(f"{stamp(time.time())}] {text}", flush=True)


def _die(text: str) -> int:
    _say(text)
    return 1


def _refuse(refusal: LaunchRefused) -> int:
    """A launch that the configuration made impossible, in the words of the real server."""
    _say("Scheduler hit an exception: Traceback (most recent call last):")
    print(f"{refusal.kind}: {refusal.message}", flush=True)
    return _die("Received sigquit from a child process. It usually means the child failed.")


def effective_of(argv: list[str], version: str = DEFAULT_VERSION) -> Effective:
    """What a server started with `argv` would run with; no process is started."""
    options = parse(argv, version)
    return resolve(options, os.environ, calibration_for(str(options["model_path"])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
