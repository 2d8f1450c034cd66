"""`tuneloop init`: a workspace with a shipped goal and files that say what to fill in."""

from __future__ import annotations

from datetime import timedelta
from importlib.resources import files
from pathlib import Path

from executor.clock import SystemClock
from experiments.control import ControlState, Mode
from experiments.errors import InputError
from experiments.knob import Cost
from state.control import ControlFile

LEASE = timedelta(hours=12)

POOL_TEMPLATE = """\
# The machines that one trial holds. `ssh` is a name of your own ssh configuration.
name: my-pool
cards: {prefill: 8, decode: 8}
hosts:
  p0: {role: prefill, ssh: p0, address: p0, port: 30000, bootstrap_port: 8998}
  d0: {role: decode, ssh: d0, address: d0, port: 30000}
router: {on: p0, port: 30100}
client: {on: p0, model_path: /data/models/my-model}
workdir: /data/tuneloop
"""


def shipped_goals() -> tuple[str, ...]:
    """Names of the goals that come with the package."""
    return tuple(sorted(p.name for p in files("agent.demo").iterdir() if p.joinpath("goal.yaml").is_file()))


def copy_goal(folder: Path, goal: str) -> None:
    """The shipped goal and its baseline; existing files are refused, never overwritten."""
    if goal not in shipped_goals():
        raise InputError("--goal", 0, 0, f"{goal!r} is not shipped; there are {', '.join(shipped_goals())}")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("goal.yaml", "baseline.yaml"):
        write_new(folder / name, files("agent.demo").joinpath(goal, name).read_text(encoding="utf-8"))


def write_new(path: Path, text: str) -> None:
    if path.exists():
        raise InputError(str(path), 0, 0, "exists; take another folder, or remove it first")
    path.write_text(text, encoding="utf-8")


def write_control(folder: Path, *, by: str, reason: str, mode: Mode = Mode.RUN) -> None:
    """A control file that lends the machines for half a day."""
    until = SystemClock().now() + LEASE
    ControlFile(folder / "state.yaml").write(
        ControlState(mode=mode, authorized_until=until, allow=(Cost.HOT, Cost.RESTART), reason=reason, by=by)
    )


def make_workspace(folder: Path, goal: str) -> str:
    copy_goal(folder, goal)
    write_new(folder / "pool.yaml", POOL_TEMPLATE)
    write_control(folder, by="init", reason="new workspace: set the pool, then tuneloop resume", mode=Mode.PAUSE)
    return (
        f"{folder}: goal.yaml and baseline.yaml ({goal}), pool.yaml, state.yaml (paused)\n"
        f"next: fill in pool.yaml, then\n  tuneloop check {folder}\n  tuneloop resume {folder} && tuneloop run {folder}"
    )
