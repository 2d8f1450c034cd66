"""Ask the installed engine, before anything starts: does its own parser take these arguments, and what does its own
admission code make of the change.

An answer says that a mechanism can be reached, never that it is faster. Each question is a job named by what is asked,
so a study asks it once and reads the answer again ever after.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from executor.engines.host_check import (
    ADMISSION_PROGRAM,
    ARGUMENT_PROGRAM,
    AdmissionVerdict,
    ArgumentVerdict,
    compile_admission_question,
    judge_admission,
    judge_arguments,
)
from executor.job_wait import wait_for_job
from executor.pool import Argv, Build
from executor.remote_host import HostRefused, JobSpec, JobStatus, RemoteHost
from executor.service import Placed, compile_job
from executor.trial_context import LEASE_TTL_S, TrialContext
from executor.trial_plan import workload_of
from experiments.serving_config import Kind, Role, diff, digest
from experiments.serving_config import Path as SettingPath
from experiments.trial import NOT_OBSERVED

ANSWER_CAP_BYTES = 1 << 20
# These do nothing but decide how many requests one prefill batch takes: the same batches mean that nothing changes.
PURE_ADMISSION_KNOBS = frozenset({"prefill-max-requests", "max-prefill-tokens"})
ADMISSION_KNOBS = PURE_ADMISSION_KNOBS | frozenset(
    {"prefill-max-requests", "chunked-prefill-size", "max-prefill-tokens", "page-size", "disable-radix-cache"}
)


@dataclass(frozen=True, kw_only=True)
class EngineAnswers:
    """`refusals`: the engine would not start so. `unreachable`: it would start, and the change does nothing in it.

    `notes` is what it said otherwise, for the record; `sources` what each role's installation is, beyond its number.
    """

    refusals: tuple[str, ...]
    unreachable: str | None
    notes: tuple[str, ...]
    sources: tuple[str, ...]


def ask_engine(context: TrialContext) -> EngineAnswers:
    """Both questions for every server of the trial. What could not be asked is a note with its reason."""
    verdicts = {role: _ask_arguments(context, role) for role in context.plan.roles}
    refusals = [said for role, verdict in verdicts.items() if (said := _refusal(context, role, verdict))]
    notes = [f"{role}: {_note(verdict)}" for role, verdict in verdicts.items()]
    admission = [] if refusals else list(_ask_admission(context))
    notes += [f"{role}: {verdict.message}" for role, verdict in admission]
    sources = [f"{role}: {v.release}, {v.source}" for role, v in verdicts.items() if v.source is not None]
    layouts, missing = _identify_layouts(context)
    refusals, sources = [*refusals, *missing], [*sources, *layouts]
    return EngineAnswers(
        refusals=tuple(refusals),
        unreachable=_unreachable(context, admission),
        notes=tuple(notes),
        sources=tuple(sources),
    )


def _identify_layouts(context: TrialContext) -> tuple[list[str], list[str]]:
    """What each expert layout file really holds, by its digest; and the files that are not there."""
    found, missing = [], []
    for role in context.plan.roles:
        _, host = context.host_of(role)
        for name, path in context.plan.config.of(role, Kind.LAYOUT).items():
            if not isinstance(path, str) or not path.startswith("/"):
                continue  # a word of the engine itself, or the placement written out
            try:
                file = host.file_digest(path)
            except HostRefused:  # outside of the work directory: not ours to read
                found.append(f"{role}: {name} {posixpath.basename(path)} {NOT_OBSERVED}")
                continue
            if file is None:
                missing.append(f"{role}: the {name} file {posixpath.basename(path)} is not on its host")
            else:
                found.append(f"{role}: {name} {posixpath.basename(path)} sha256 {file.sha256[:16]}")
    return found, missing


def _unreachable(context: TrialContext, admission: Sequence[tuple[Role, AdmissionVerdict]]) -> str | None:
    """Why running this trial can teach nothing: all that it changes is admission, and admission stays the same."""
    changed = {SettingPath.parse(key).name for key in _changed_keys(context)}
    if not changed or not changed <= PURE_ADMISSION_KNOBS:
        return None
    if not admission or any(v.before != v.after or v.before is None for _, v in admission):
        return None
    return "; ".join(f"{role}: {verdict.message}" for role, verdict in admission)


def _changed_keys(context: TrialContext) -> set[str]:
    """Settings in which the trial differs from what its card changes; none for the incumbent itself."""
    parent = context.plan.parent
    return set() if parent is None else {str(change.path) for change in diff(parent, context.plan.config)}


def _ask_arguments(context: TrialContext, role: Role) -> ArgumentVerdict:
    """The installed parser on the very words that the server would be started with."""
    name, host = context.host_of(role)
    server = Placed(role=role, host=name, job_id="asked", port=context.pool.hosts[name].port, reused=False)
    command = compile_job(context.pool, context.plan.config, server, ())
    words = command.argv[len(_build(context, role).server) :]
    return judge_arguments(_ask(context, role, host, ARGUMENT_PROGRAM, words) or "")


def _build(context: TrialContext, role: Role) -> Build:
    return context.pool.build_named(context.plan.config.get_build(role))


def _refusal(context: TrialContext, role: Role, verdict: ArgumentVerdict) -> str | None:
    """Why this server must not be started: removed or ignored arguments, or another build than the card's."""
    release = verdict.release or "of unknown release"
    if verdict.accepted is False:
        return f"{role}: the installed parser ({release}) says: {verdict.message}"
    if verdict.ignored:
        return f"{role}: the installed engine ({release}) ignores {', '.join(verdict.ignored)}"
    wanted = _build(context, role).source
    if wanted is not None and verdict.source != wanted:
        return f"{role}: the build is to be {wanted}, installed is {verdict.source or NOT_OBSERVED}"
    return None


def _note(verdict: ArgumentVerdict) -> str:
    if verdict.accepted is None:
        reason = verdict.message or "the installed parser gave no answer"
        return f"arguments {NOT_OBSERVED} by the installed engine: {reason}"
    said = "accepts" if verdict.accepted else "refuses"
    return f"the installed parser ({verdict.release}) {said} the arguments; {verdict.message}".removesuffix("; ")


def _ask_admission(context: TrialContext) -> Iterator[tuple[Role, AdmissionVerdict]]:
    """Only where the trial changes something that admission looks at."""
    plan = context.plan
    parent, changed = plan.parent, _changed_keys(context)
    for role in plan.roles:
        asked = role is not Role.DECODE and any(f"{role}.flag.{knob}" in changed for knob in ADMISSION_KNOBS)
        if parent is None or not asked:
            continue
        question = compile_admission_question(parent, plan.config, role, workload_of(plan.scenario), plan.load.requests)
        if question is not None:
            _, host = context.host_of(role)
            yield role, judge_admission(_ask(context, role, host, ADMISSION_PROGRAM, (question,)) or "")


def _ask(context: TrialContext, role: Role, host: RemoteHost, program: str, words: tuple[str, ...]) -> str | None:
    """What the program printed on the role's host, now or earlier in this study; None if nothing can be read."""
    name = context.host_name(role)
    source = files("executor.engines.on_host").joinpath(program).read_bytes()
    workdir = context.pool.workdir_of(name)
    path = f"{workdir}/programs/{digest(source.decode())[:12]}/{program}"
    argv = (*_program(context, role, program, path), *words)
    job_id = f"{context.plan.study_id}.ask-{digest(argv)[:12]}.{context.attempt}"
    if host.poll(job_id).status is JobStatus.ABSENT:
        _launch(context, role, job_id, argv, {path: source})
    wait_for_job(context, host, job_id, context.timeout_s)
    try:
        return host.read_log(job_id, 0, ANSWER_CAP_BYTES).data.decode(errors="replace")
    except HostRefused:
        return None


def _program(context: TrialContext, role: Role, program: str, path: str) -> Argv:
    """The pool's own program with the contract of ours, or ours run by the build's Python."""
    programs = context.pool.programs
    own = programs.argument_check if program == ARGUMENT_PROGRAM else programs.admission_check
    return own or (context.pool.engine_python_of(context.host_name(role), _build(context, role)), path)


def _launch(context: TrialContext, role: Role, job_id: str, argv: Argv, uploads: Mapping[str, bytes]) -> None:
    """Reserve comes later, so the question takes the host for as long as its start takes."""
    name, host = context.host_of(role)
    lease = host.acquire(context.plan.study_id, LEASE_TTL_S)
    try:
        for path, content in uploads.items():
            host.make_directory(posixpath.dirname(path))
            host.put_file(path, content)
        env = {**context.pool.hosts[name].env, **_build(context, role).env}
        cwd = context.pool.workdir_of(name)
        host.launch(JobSpec(job_id=job_id, argv=argv, env=env, cwd=cwd, ttl_s=context.timeout_s), lease)
    finally:
        host.release(lease)
