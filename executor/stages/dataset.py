"""The scenario's frozen dataset on the host that sends the load: made once per digest, then only verified.

The program that makes it runs on the host, because it takes the model's own tokenizer; it gets a specification as JSON
and leaves a manifest with the hash of every part. Parts: `measure`, `warm_up`, and for a warm cache `seed` and `check`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from executor.job_wait import wait_for_job
from executor.remote_host import HostRefused, JobSpec, JobStatus, RemoteHost
from executor.stage_result import Done, Faulted, StageResult
from executor.trial_context import TrialContext
from experiments.serving_config import Role, digest
from experiments.trial import Reason

MANIFEST = "manifest.json"
MANIFEST_CAP_BYTES = 1 << 20
SPEC_SCHEMA = 1


def dataset_spec(context: TrialContext) -> dict[str, Any]:
    """Everything that decides a single byte of the data; its digest is the dataset's identity."""
    scenario, client = context.plan.scenario, context.pool.client
    return {
        "schema": SPEC_SCHEMA,
        "tokenizer": client.tokenizer_path or client.model_path,
        "task": scenario.input.task,
        "body_tokens": scenario.input.body_tokens,
        "encoded_tokens": scenario.input.encoded_tokens,
        "output_tokens": scenario.output_tokens,
        "requests": scenario.load.requests,
        "warm_up_requests": scenario.load.warmup,
        "seed_requests": scenario.cache.seed_requests,
        "check_requests": scenario.cache.check_requests,
        "prefix_tokens": scenario.cache.prefix_tokens,
        "per_request_min": scenario.cache.per_request_min,
        "seed": scenario.load.seed,
    }


def ensure_dataset(context: TrialContext) -> StageResult:
    """Find the dataset by its digest or have it made, and hold every part against the manifest."""
    name, host = context.host_of(Role.CLIENT)
    spec = dataset_spec(context)
    key = digest(spec)[:16]
    folder = f"{context.pool.workdir_of(name)}/datasets/{key}"
    manifest = _read_manifest(host, folder)
    if manifest is None:
        failed = _make(context, name, host, folder, spec, key)
        if failed is not None:
            return failed
        manifest = _read_manifest(host, folder)
    if manifest is None:
        return Faulted(reason=Reason.ENVIRONMENT, detail=f"dataset {key}: the program left no manifest")
    wrong = _changed_parts(host, manifest)
    if wrong:
        detail = f"dataset {key}: {', '.join(wrong)} differ from the manifest; remove {folder} to have it made again"
        return Faulted(reason=Reason.WORKLOAD_VIOLATED, detail=detail)
    parts = {part: str(entry["path"]) for part, entry in manifest["parts"].items()}
    hashes = {part: str(entry["sha256"]) for part, entry in manifest["parts"].items()}
    return Done(payload={"parts": parts, "sha256": hashes, "dataset": key}, note=f"dataset {key}")


def _make(
    context: TrialContext, name: str, host: RemoteHost, folder: str, spec: Mapping[str, Any], key: str
) -> Faulted | None:
    job_id = f"{context.plan.study_id}.dataset-{key}.{context.attempt}"
    spec_path = f"{folder}/spec.json"
    if host.poll(job_id).status is JobStatus.ABSENT:
        host.make_directory(folder)
        host.put_file(spec_path, json.dumps(spec, sort_keys=True, indent=1).encode())
        argv = (*context.pool.programs.dataset, "--spec", spec_path, "--out", folder)
        job = JobSpec(job_id=job_id, argv=argv, env=context.pool.hosts[name].env, cwd=folder, ttl_s=context.timeout_s)
        host.launch(job, context.lease_on(name))
    end = wait_for_job(context, host, job_id, context.timeout_s)
    if end.state is None or end.state.exit_code != 0:
        code = None if end.state is None else end.state.exit_code
        detail = f"dataset {key}: the program ended with {code} {end.detail}".rstrip()
        return Faulted(reason=Reason.ENVIRONMENT, detail=detail, repairable=True)
    return None


def _read_manifest(host: RemoteHost, folder: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads(host.fetch(f"{folder}/{MANIFEST}", MANIFEST_CAP_BYTES)))
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
