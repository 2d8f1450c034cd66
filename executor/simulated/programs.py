"""The programs of a simulated pool as argv prefixes, for a pool file: the real program's own arguments follow."""

from __future__ import annotations

import sys

SERVER = [sys.executable, "-m", "executor.simulated.server"]
ROUTER = [sys.executable, "-m", "executor.simulated.router"]
BENCH_SERVING = [sys.executable, "-m", "executor.simulated.bench_serving"]
AISBENCH = [sys.executable, "-m", "executor.simulated.aisbench"]
DATASET = [sys.executable, "-m", "executor.simulated.dataset"]
ARGUMENT_CHECK = [sys.executable, "-m", "executor.simulated.engine_checks", "arguments"]
ADMISSION_CHECK = [sys.executable, "-m", "executor.simulated.engine_checks", "admission"]
