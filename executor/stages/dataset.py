"""The scenario's frozen dataset on the host that sends the load: made once per digest, then only verified.

The program that makes it runs on the host, because it takes the model's own tokenizer; it gets a specification as JSON
and leaves a manifest with the hash of every part. Parts: `measure`, `warm_up`, and for a warm cache `seed` and `check`.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Any

from executor.dataset import BuildRefused, DatasetBuild, compile_dataset, parse_event, spec_of
from executor.job_wait import wait_for_job
from executor.remote_host import HostRefused, JobSpec, JobStatus, RemoteHost
from executor.stage_result import Done, Faulted, StageResult
from executor.stages.client_job import end_earlier_attempts
from executor.trial_context import TrialContext
from experiments.serving_config import Role
from experiments.trial import Reason

MANIFEST_CAP_BYTES = 1 << 20
LOG_CAP_BYTES = 1 << 20
REFUSED = 2  # exit code of the program: the scenario's promise cannot be kept


def dataset_build(context: TrialContext) -> DatasetBuild:
    """The one build of this scenario on this pool. Raises InputError where its cache state is out of reach."""
    pool = context.pool
    name = context.host_name(Role.CLIENT)
    return compile_dataset(
        spec_of(context.plan.scenario, pool.client.tokenizer_path or pool.client.model_path),
        f"{pool.workdir_of(name)}/datasets",
        python=(pool.engine_python_of(name),),
        program=pool.programs.dataset,
    )


def ensure_dataset(context: TrialContext) -> StageResult:
    """Find the dataset by its digest or have it made, and hold every part against the manifest."""
    name, host = context.host_of(Role.CLIENT)
    build = dataset_build(context)
    key = posixpath.basename(build.folder)
    manifest = _read_manifest(host, build)
    if manifest is None:
        failed = _make(context, name, host, build)
        if failed is not None:
            return failed
        manifest = _read_manifest(host, build)
    if manifest is None:
        return Faulted(reason=Reason.ENVIRONMENT, detail=f"dataset {key}: the program left no manifest")
    wrong = _changed_parts(host, manifest)
    if wrong:
        detail = f"dataset {key}: {', '.join(wrong)} differ from the manifest; remove {build.folder} to make it again"
        return Faulted(reason=Reason.WORKLOAD_VIOLATED, detail=detail)
    parts = {part: str(entry["path"]) for part, entry in manifest["parts"].items()}
    hashes = {part: str(entry["sha256"]) for part, entry in manifest["parts"].items()}
    return Done(payload={"parts": parts, "sha256": hashes, "dataset": key}, note=f"dataset {key}")


def _make(context: TrialContext, name: str, host: RemoteHost, build: DatasetBuild) -> Faulted | None:
    key = posixpath.basename(build.folder)
    jobs = f"{context.plan.trial_id}.dataset."
    job_id = f"{jobs}{context.attempt}"
    end_earlier_attempts(context, name, host, jobs)
    if host.poll(job_id).status is JobStatus.ABSENT:
        host.make_directory(build.folder)
        for path, content in build.files_to_upload.items():
            host.put_file(path, content)
        env = context.pool.hosts[name].env
        job = JobSpec(job_id=job_id, argv=build.argv, env=env, cwd=build.folder, ttl_s=context.timeout_s)
        host.launch(job, context.lease_on(name))
    end = wait_for_job(context, host, job_id, context.timeout_s)
    code = None if end.state is None else end.state.exit_code
    if code == 0:
        return None
    refused = _refusal(host, job_id) if code == REFUSED else None
    if refused is not None:
        return Faulted(reason=Reason.CONTRACT_MISMATCH, detail=f"dataset {key}: {refused}")
    detail = f"dataset {key}: the program ended with {code} {end.detail}".rstrip()
    return Faulted(reason=Reason.ENVIRONMENT, detail=detail, repairable=True)


def _refusal(host: RemoteHost, job_id: str) -> str | None:
    """Why the program says that the promised data cannot be built."""
    try:
        lines = host.read_log(job_id, 0, LOG_CAP_BYTES).data.decode(errors="replace").splitlines()
    except HostRefused:
        return None
    events = (parse_event(line) for line in reversed(lines) if line.startswith("{"))
    return next((event.message for event in events if isinstance(event, BuildRefused)), None)


def _read_manifest(host: RemoteHost, build: DatasetBuild) -> dict[str, Any] | None:
    try:
        return dict(json.loads(host.fetch(build.manifest, MANIFEST_CAP_BYTES)))
    except HostRefused as error:
        if error.code == "not_found":
            return None
        raise


def _changed_parts(host: RemoteHost, manifest: Mapping[str, Any]) -> list[str]:
    wrong = []
    for part, entry in manifest["parts"].items():
        found = host.file_digest(str(entry["path"]))
        if found is None or found.sha256 != entry["sha256"]:
            wrong.append(part)
    return wrong
