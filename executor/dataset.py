"""The frozen data set of a scenario: what is to be built on the host, the command, and the reading of its answers.

The folder's name is the digest of the specification and the tokenizer path, so a data set is built once and found
again; its content is known by the SHA-256 of its files. A cache state that whole pages cannot reach is refused here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from experiments.cache_calibration import CacheSplit, check_cache_design, design_split
from experiments.errors import InputError
from experiments.scenario import Scenario
from experiments.serving_config import digest

PAGE_SIZE = 128
SPARE_PAGES = 6
PROGRAM = Path(__file__).with_name("host_dataset.py")


class DatasetSpec(BaseModel):
    """Everything that decides the bytes of a data set. `tokenizer` is a folder on the host that builds it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = Field(default=1, alias="schema")
    tokenizer: str
    client: Literal["aisbench", "bench_serving"] = "aisbench"
    task: Literal["copy", "ordinary"]
    body_tokens: int = Field(ge=1)
    encoded_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    requests: int = Field(ge=1)
    warm_up_requests: int = Field(default=0, ge=0)
    seed_requests: int = Field(default=0, ge=0)  # one per group; requests share a prefix within a group
    check_requests: int = Field(default=0, ge=0)
    prefix_tokens: int | None = Field(default=None, ge=1)  # encoded, the template's lead included
    per_request_min: float | None = Field(default=None, gt=0, lt=1)
    page_size: int = Field(default=PAGE_SIZE, ge=1)
    seed: int

    def document(self) -> dict[str, object]:
        """As the host program reads it."""
        return self.model_dump(mode="json", by_alias=True)


class DataPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    rows: int
    bytes: int


class DatasetManifest(BaseModel):
    """What was built: the promise, the parts, and what requests of one group share once encoded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: DatasetSpec
    parts: Mapping[str, DataPart]  # "measure", and "warm_up", "seed", "check" where asked for
    template: bool  # whether lengths were checked within the model's chat template
    shared_tokens: int
    cacheable_tokens: int

    @property
    def identity(self) -> str:
        """The identity of the measured data: its file's hash."""
        return self.parts["measure"].sha256


@dataclass(frozen=True, kw_only=True)
class DatasetBuild:
    """One process on the host. It may be run again after any interruption: the same bytes come out."""

    argv: tuple[str, ...]
    files_to_upload: Mapping[str, bytes]
    folder: str

    @property
    def manifest(self) -> str:
        return f"{self.folder}/manifest.json"


@dataclass(frozen=True, kw_only=True)
class BuildProgress:
    done: int
    total: int
    part: str


@dataclass(frozen=True, kw_only=True)
class BuildRefused:
    """The promise cannot be kept; the message says what to change in the scenario."""

    message: str


def spec_of(scenario: Scenario, tokenizer: str, page_size: int = PAGE_SIZE) -> DatasetSpec:
    """The data set that a scenario promises. Raises InputError where its cache state is out of reach.

    A warm scenario without `prefix_tokens` gets the shortest whole-page prefix with a few pages to spare.
    """
    cache = scenario.cache
    return DatasetSpec(
        tokenizer=tokenizer,
        client=scenario.load.client,
        task=scenario.input.task,
        body_tokens=scenario.input.body_tokens,
        encoded_tokens=scenario.input.encoded_tokens,
        output_tokens=scenario.output_tokens,
        requests=scenario.load.requests,
        warm_up_requests=scenario.load.warmup,
        seed_requests=cache.seed_requests,
        check_requests=cache.check_requests,
        prefix_tokens=None if cache.state == "zero" else _split(scenario, page_size).prefix_tokens,
        per_request_min=cache.per_request_min,
        page_size=page_size,
        seed=scenario.load.seed,
    )


def _split(scenario: Scenario, page_size: int) -> CacheSplit:
    total, share = scenario.input.encoded_tokens, scenario.cache.per_request_min or 0.0
    prefix = scenario.cache.prefix_tokens
    split = (
        design_split(total, share, page_size, SPARE_PAGES) or design_split(total, share, page_size)
        if prefix is None
        else CacheSplit(prefix_tokens=prefix, question_tokens=max(total - prefix, 1), page_size=page_size)
    )
    if split is None:
        detail = f"no prefix of whole pages of {page_size} reaches {share:.2%} of {total} tokens"
        raise InputError("scenario", 0, 0, f"cache: {detail}")
    check = check_cache_design(split, share)
    if not check.passed:
        raise InputError("scenario", 0, 0, f"cache: prefix_tokens {split.prefix_tokens}: {check.detail}")
    return split


def compile_dataset(
    spec: DatasetSpec,
    datasets_dir: str,
    python: tuple[str, ...] = ("python3",),
    program: tuple[str, ...] | None = None,
) -> DatasetBuild:
    """The build of a specification below `datasets_dir`, in a folder named by its digest.

    `program` is the pool's own, with the contract of ours; None sends ours and runs it with `python`.
    """
    document = spec.document()
    folder = f"{datasets_dir}/{digest(document)[:16]}"
    ours, specification = f"{folder}/{PROGRAM.name}", f"{folder}/spec.json"
    files = {specification: json.dumps(document, sort_keys=True, indent=1).encode()}
    if program is None:
        files[ours] = PROGRAM.read_bytes()
    return DatasetBuild(
        argv=(*(program or (*python, ours)), "--spec", specification, "--out", folder),
        files_to_upload=files,
        folder=folder,
    )


def parse_event(line: str) -> BuildProgress | DatasetManifest | BuildRefused | None:
    """One line of the build's output; None for a line that is not an event of ours."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    match event:
        case {"event": "progress", "done": int(done), "total": int(total), "part": str(part)}:
            return BuildProgress(done=done, total=total, part=part)
        case {"event": "refused" | "failed", "message": str(message)}:
            return BuildRefused(message=message)
        case {"event": "built", "total": _, **manifest}:
            return parse_manifest(json.dumps(manifest).encode())
        case _:
            return None


def parse_manifest(content: bytes) -> DatasetManifest | BuildRefused:
    try:
        return DatasetManifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return BuildRefused(message=f"manifest: {'.'.join(map(str, first['loc']))}: {first['msg']}")
