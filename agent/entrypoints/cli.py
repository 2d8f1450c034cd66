"""The command line. Every command imports what it needs when it runs, so that `tuneloop --help` answers at once.

A wrong file or argument is one line on stderr and exit code 2. Nothing here decides anything about a trial.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="tuneloop",
    help="Tune LLM serving overnight: one-change experiment cards, run and judged by code.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Workspace = Annotated[Path, typer.Argument(help="The workspace folder of the study.", show_default=True)]
HERE = Path()


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
    goal: Annotated[str, typer.Option(help="The shipped goal to start from.")] = "16k-zero-cache",
) -> None:
    """Make a workspace: goal.yaml, baseline.yaml, pool.yaml and state.yaml to fill in."""
    from agent.entrypoints.make_workspace import make_workspace

    typer.echo(make_workspace(folder, goal))


@app.command()
def check(
    folder: Workspace = HERE,
    offline: Annotated[bool, typer.Option("--offline", help="Read the files only; contact no host.")] = False,
) -> None:
    """Read every file of the workspace, and ask every host what it is."""
    from agent.entrypoints.check import check_workspace

    for line in check_workspace(folder, contact=not offline):
        typer.echo(line)


@app.command("import-script")
def import_script(
    files: Annotated[list[Path], typer.Argument(help="Launch scripts (bash): one for all roles, or one each.")],
    role: Annotated[list[str] | None, typer.Option(help="Take this role only; may be repeated.")] = None,
    out: Annotated[Path, typer.Option(help="The baseline to write.")] = Path("baseline.yaml"),
) -> None:
    """Make a baseline from launch scripts, and say every override and every flag that is set twice."""
    from agent.entrypoints.import_script import import_scripts

    for line in import_scripts(files, role or [], out):
        typer.echo(line)


@app.command()
def run(folder: Workspace = HERE) -> None:
    """Go on with the study until it ends or has to wait. Interrupt it at any time: nothing is lost or sent twice."""
    from agent.entrypoints.run import run_study

    raise typer.Exit(run_study(folder))


@app.command()
def serve(
    paths: Annotated[list[Path], typer.Argument(help="A service.yaml, or the workspace folders to drive.")],
) -> None:
    """Drive many studies, night after night, until told to leave. Starting is recovering."""
    from agent.entrypoints.serve import serve as run_service

    raise typer.Exit(run_service(paths))


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="The folder of the demo.")] = Path("demo"),
    goal: Annotated[str, typer.Option(help="The shipped goal to run.")] = "16k-zero-cache",
) -> None:
    """Run a whole study on a SIMULATED pool on this machine."""
    from agent.entrypoints.demo import run_demo

    raise typer.Exit(run_demo(folder, goal))


@app.command()
def status(folder: Workspace = HERE) -> None:
    """What runs, what comes next, why it waits, and whether the machines may be taken."""
    gc.disable()  # the process is over before a collection would pay; this is a tenth of its time
    from agent.entrypoints.status import describe_status

    typer.echo(describe_status(folder, colour=sys.stdout.isatty()))


@app.command()
def dashboard(
    folders: Annotated[list[Path], typer.Argument(help="The workspace folders to show.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8765,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name:port that browsers use; may be repeated.")
    ] = None,
) -> None:
    """Show studies in a browser: what runs, why, what came out. Approve and pause from there."""
    from agent.dashboard.server import Place
    from agent.entrypoints.dashboard import run_dashboard

    run_dashboard(folders, Place(host=host, port=port, names=tuple(allow_host or ())), typer.echo)


@app.command()
def pause(
    folder: Workspace = HERE, reason: Annotated[str, typer.Option()] = "", by: Annotated[str, typer.Option()] = ""
) -> None:
    """Finish what runs, start nothing."""
    _direct(folder, "pause", reason, by)


@app.command()
def resume(
    folder: Workspace = HERE, reason: Annotated[str, typer.Option()] = "", by: Annotated[str, typer.Option()] = ""
) -> None:
    """Go on."""
    _direct(folder, "run", reason, by)


@app.command()
def drain(
    folder: Workspace = HERE, reason: Annotated[str, typer.Option()] = "", by: Annotated[str, typer.Option()] = ""
) -> None:
    """Finish what runs, start nothing, give the machines back, and let the service leave."""
    _direct(folder, "drain", reason, by)


@app.command()
def stop(
    folder: Workspace = HERE, reason: Annotated[str, typer.Option()] = "", by: Annotated[str, typer.Option()] = ""
) -> None:
    """Cancel the running stage safely, and start nothing."""
    _direct(folder, "stop", reason, by)


def _direct(folder: Path, mode: str, reason: str, by: str) -> None:
    from agent.entrypoints.operate import set_mode

    typer.echo(set_mode(folder, mode, reason=reason, by=by))


@app.command()
def approve(
    card: Annotated[str, typer.Argument(help="The card's digest, or its first 8 or more digits.")],
    folder: Annotated[Path, typer.Option("--workspace", "-w", help="The workspace folder.")] = HERE,
    by: Annotated[str, typer.Option()] = "",
) -> None:
    """Approve one card beyond the cost classes that need no further word."""
    from agent.entrypoints.operate import approve_card

    typer.echo(approve_card(folder, card, by=by))


@app.command()
def resolve(
    trial: Annotated[str, typer.Argument(help="The trial whose end is unknown.")],
    reason: Annotated[str, typer.Option(help="How you know.")],
    finished: Annotated[
        bool, typer.Option("--finished", help="Its load ran to its end; its data is on the host.")
    ] = False,
    never_ran: Annotated[bool, typer.Option("--never-ran", help="Nothing of it was ever sent.")] = False,
    dead: Annotated[bool, typer.Option("--dead", help="It was sent, it is dead, and its data is not whole.")] = False,
    folder: Annotated[Path, typer.Option("--workspace", "-w", help="The workspace folder.")] = HERE,
    by: Annotated[str, typer.Option()] = "",
) -> None:
    """Settle a trial whose end is unknown, so that work may go on."""
    from agent.entrypoints.operate import resolve_trial

    chosen = [name for name, is_set in (("finished", finished), ("never_ran", never_ran), ("dead", dead)) if is_set]
    typer.echo(resolve_trial(folder, trial, chosen, reason=reason, by=by))


@app.command()
def reopen(
    folder: Workspace = HERE,
    reason: Annotated[str, typer.Option(help="Why; it goes into the ledger.")] = "",
    by: Annotated[str, typer.Option()] = "",
) -> None:
    """Let an ended study go on with its budget of trials and hours anew."""
    from agent.entrypoints.operate import reopen_study

    typer.echo(reopen_study(folder, reason=reason, by=by))


@app.command()
def audit(
    folder: Workspace = HERE,
    offline: Annotated[bool, typer.Option("--offline", help="Contact no host.")] = False,
) -> None:
    """Hold ledger, journal, artifacts and hosts against one another. Exit code 1 if anything is violated."""
    from agent.entrypoints.audit import audit_workspace, report_of

    found = audit_workspace(folder, contact=not offline)
    for line in report_of(found):
        typer.echo(line)
    raise typer.Exit(0 if found.is_clean else 1)


@app.command()
def ledger(
    folder: Workspace = HERE,
    lang: Annotated[str, typer.Option(help="en or zh.")] = "en",
) -> None:
    """Write the ledger pages from the stored entries."""
    from agent.entrypoints.operate import write_ledger

    typer.echo(write_ledger(folder, lang))


@app.command()
def choose(
    prefer: Annotated[str, typer.Option(help="The figure that matters, such as ttft_mean.")],
    folder: Workspace = HERE,
    requests: Annotated[int | None, typer.Option("--requests", "-n", help="N; without it the formal one.")] = None,
) -> None:
    """Which configuration to take for the sake of one figure. Answered from the records; nothing is run."""
    from agent.entrypoints.export import describe_choice

    typer.echo(describe_choice(folder, prefer, requests))


@app.command()
def export(
    out: Annotated[Path, typer.Argument(help="A new folder; with --bundle, a new .tar.gz file.")],
    folder: Annotated[Path, typer.Option("--workspace", "-w", help="The workspace folder.")] = HERE,
    card: Annotated[
        str | None, typer.Option(help="A card's number, name or digest, or start; else the kept one.")
    ] = None,
    bundle: Annotated[
        bool, typer.Option("--bundle", help="The ledger and a manifest of raw files, for review.")
    ] = False,
) -> None:
    """Write the kept configuration as launch scripts and YAML, or the ledger as a bundle."""
    from agent.entrypoints.export import export_bundle, export_configuration

    for line in [export_bundle(folder, out)] if bundle else export_configuration(folder, out, card):
        typer.echo(line)


@app.command()
def show(
    card: Annotated[str, typer.Argument(help="A card's number (c03), name or digest; or a trial id.")],
    folder: Annotated[Path, typer.Option("--workspace", "-w", help="The workspace folder.")] = HERE,
) -> None:
    """Print the page of one card, or the record of one trial."""
    from agent.entrypoints.status import show_item

    typer.echo(show_item(folder, card))


@app.command()
def replay(
    folder: Annotated[Path, typer.Argument(help="The folder of TUNELOOP_LLM_RECORD_DIR, or one file of it.")],
) -> None:
    """Replay recorded conversations with the language model. Nothing is sent. Exit code 1 if any cannot be replayed."""
    from agent.entrypoints.replay import replay_conversations

    found = replay_conversations(folder)
    for line in found.lines:
        typer.echo(line)
    raise typer.Exit(1 if found.broken else 0)


@app.command()
def dataset(folder: Workspace = HERE) -> None:
    """Build the scenario's frozen data on the client's host, with the model's own tokenizer. Verified if it exists."""
    from agent.entrypoints.dataset import build_dataset

    typer.echo(build_dataset(folder))


@app.command()
def split(
    question: Annotated[int, typer.Argument(help="Question tokens; without --prefix, tokens of the whole input.")],
    prefix: Annotated[int | None, typer.Option(help="Tokens of the shared prefix.")] = None,
    counted: Annotated[tuple[int, int] | None, typer.Option(help="Cached and input tokens of a run of it.")] = None,
    wanted: Annotated[float, typer.Option(help="Share that each request has to reach.")] = 0.90,
    page: Annotated[int, typer.Option(help="Page size of the prefix cache.")] = 128,
) -> None:
    """How a shared prefix has to be cut for a warm cache: whole pages only, seen before any run."""
    from agent.entrypoints.dataset import describe_split

    typer.echo(describe_split(prefix=prefix, question=question, counted=counted, wanted=wanted, page=page))


def main() -> None:
    """The console script: our errors become one line, with exit code 2 for wrong input and 1 for all else."""
    from experiments.errors import InputError, TuningError

    try:
        app()
    except InputError as error:
        _fail(str(error), 2)
    except TuningError as error:
        _fail(str(error), 1)


def _fail(message: str, code: int) -> None:
    typer.echo(f"tuneloop: {message}", err=True)
    sys.exit(code)
