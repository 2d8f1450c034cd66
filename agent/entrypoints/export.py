"""`tuneloop export` and `choose`: what a study found, to be started by hand, reviewed elsewhere, or chosen among."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agent.bootstrap import read_pool
from agent.entrypoints.operate import cards_called, read_study, write_ledger
from agent.export import baseline_yaml
from agent.launch_script import launch_scripts
from agent.workspace import Workspace
from experiments.errors import InputError
from experiments.metric import METRICS
from experiments.serving_config import ServingConfig
from experiments.study import Study
from experiments.tradeoff import Choice, Option, choose, option_set
from experiments.trial import NOT_OBSERVED

START = "start"


def export_configuration(root: Path, out: Path, card: str | None) -> list[str]:
    """Write the launch scripts and the YAML of a configuration into a new folder. Says what was written."""
    workspace = Workspace(root.resolve())
    study, pool = read_study(workspace), read_pool(workspace)
    name, config = _chosen(study, card)
    heading = _heading(study, name, config)
    files = {
        **launch_scripts(config, pool, heading),
        "baseline.yaml": baseline_yaml(config, heading),
    }
    _write_new(out, files)
    simulated = "  (SIMULATED: nothing here was measured on hardware)" if study.opened.simulated else ""
    return [f"{name} of study {study.study_id}{simulated}", *(f"  {out / file}" for file in files)]


def _chosen(study: Study, card: str | None) -> tuple[str, ServingConfig]:
    """The incumbent, or the card that is asked for."""
    if card is None:
        return (study.kept[-1].name if study.kept else START), study.incumbent
    if card == START:
        return START, study.opened.starting
    found = cards_called(study, card)
    if len(found) != 1:
        known = ", ".join(c.name for c in study.cards.values()) or "none"
        raise InputError("export", 0, 0, f"{card!r} names {len(found)} cards; there are {START}, {known}")
    return found[0].name, found[0].config


def _heading(study: Study, name: str, config: ServingConfig) -> str:
    lines = [f"configuration {name} ({config.fingerprint()}) of study {study.study_id}"]
    kept = next((k for k in study.kept if k.config == config), None)
    if kept is not None:
        runs = ", ".join(kept.trial_ids)
        lines.append(f"kept after the runs {runs}; quality of its outputs: {kept.quality.replace('_', ' ')}")
    elif name == START:
        lines.append("the configuration that the study started from")
    else:
        lines.append("NOT kept: see its page in the ledger for the reason")
    if study.opened.simulated:
        lines.append("found on a SIMULATED pool: nothing here was measured on hardware")
    return "\n".join(lines)


def _write_new(folder: Path, files: Mapping[str, str]) -> None:
    """Into a folder that is new or empty: nothing is overwritten or mixed with what was exported before."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InputError(str(folder), 0, 0, "is not empty; name a new folder")
    for name, text in files.items():
        target = folder / name
        target.write_text(text, encoding="utf-8")
        if name.endswith(".sh"):
            target.chmod(0o700)  # it names hosts and folders


def export_bundle(root: Path, out: Path) -> str:
    """The ledger and the manifest of every raw file, as one archive for a reviewer. The same study, the same bytes."""
    workspace = Workspace(root.resolve())
    if out.exists():
        raise InputError(str(out), 0, 0, "exists; name a new file")
    study = read_study(workspace)
    write_ledger(root, "en")
    pages = sorted(p for p in workspace.ledger.rglob("*") if p.is_file())
    artifacts = [{"run": run, "name": a.name, "sha256": a.sha256, "bytes": a.size} for run, a in study.all_artifacts()]
    manifest = json.dumps(_manifest(study, artifacts), indent=2, sort_keys=True) + "\n"
    members = [(f"ledger/{p.relative_to(workspace.ledger).as_posix()}", p.read_bytes()) for p in pages]
    _write_archive(out, study.study_id, [*members, ("artifacts.json", manifest.encode())])
    return f"{out}: {len(pages)} ledger files and the manifest of {len(artifacts)} raw files"


def _manifest(study: Study, artifacts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {
        "schema_version": 1,
        "study_id": study.study_id,
        "as_of": study.last_at.isoformat(),
        "simulated": study.opened.simulated,
        "where": "artifacts/<run>/<name> in the workspace; tuneloop audit compares the hashes",
        "artifacts": artifacts,
    }


def _write_archive(out: Path, folder: str, members: Sequence[tuple[str, bytes]]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        out.open("xb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data in members:
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))


def describe_choice(root: Path, prefer: str, requests: int | None) -> str:
    """Which configuration to take for the sake of one figure, answered from the records; nothing is run."""
    study = read_study(Workspace(root.resolve()))
    found = option_set(study, requests)
    try:
        choice = choose(study, found, prefer)
    except ValueError as error:
        raise InputError("--prefer", 0, 0, str(error)) from None
    simulated = "  (SIMULATED pool)" if study.opened.simulated else ""
    head = f"study {study.study_id}{simulated}, N={found.requests}, {found.window} window"
    if found.requests != study.goal.scenario.load.requests:
        head += " (short runs, some of them chosen for being high: not confirmed)"
    if choice is None:
        return (
            f"{head}\nno configuration with a valid run at this load keeps every constraint with all figures observed"
        )
    return "\n".join((head, *_answer(choice, found.metrics), *_rest(found.options, choice)))


def _answer(choice: Choice, metrics: Sequence[str]) -> Iterator[str]:
    yield f"for {choice.metric}: {_line(choice.option, metrics)}"
    for change in choice.option.changes:
        yield f"  {change}"
    for option in choice.equal:
        yield f"  equal within the noise: {_line(option, metrics)}"


def _rest(options: Sequence[Option], choice: Choice) -> Iterator[str]:
    named = {choice.option.name, *(o.name for o in choice.equal)}
    for option in options:
        if option.name not in named:
            yield f"not chosen: {_line(option, tuple(option.values))} ({_why_not(option)})"


def _why_not(option: Option) -> str:
    if option.violated:
        return "; ".join(option.violated)
    if not option.is_candidate:
        return f"a figure is {NOT_OBSERVED}"
    return "dominated" if option.is_dominated else "worse in this figure"


def _line(option: Option, metrics: Sequence[str]) -> str:
    figures = ", ".join(f"{m} {_figure(m, option.values[m])}" for m in metrics)
    runs = len(option.trial_ids)
    kept = ", kept" if option.is_kept else ", not kept"
    return f"{option.name}{kept}, {runs} {'run' if runs == 1 else 'runs'}: {figures}"


def _figure(metric: str, value: float | None) -> str:
    return NOT_OBSERVED if value is None else f"{value:.2f} {METRICS[metric].unit.symbol}".rstrip()
