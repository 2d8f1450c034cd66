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
PROGRAM_NAME = "host_dataset.py"


class DatasetSpec(BaseModel):
    """Everything that decides the bytes of a data set, besides the tokenizer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client: Literal["aisbench", "bench_serving"]
    task: Literal["copy", "ordinary"]
    requests: int = Field(ge=1)
    body_tokens: int = Field(ge=1)
    encoded_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    seed: int
    groups: int = Field(default=0, ge=0)  # requests share a prefix within a group; 0: none share any
    prefix_tokens: int = Field(default=0, ge=0)  # encoded, the template's lead included
    page_size: int = Field(default=PAGE_SIZE, ge=1)
    min_share: float = Field(default=0.0, ge=0, lt=1)
    seed_requests: int = Field(default=0, ge=0)
    check_requests: int = Field(default=0, ge=0)
    warmup_requests: int = Field(default=0, ge=0)


class DataFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    rows: int
    bytes: int


class DatasetManifest(BaseModel):
    """What was built: the promise, the files, and what requests of one group share once encoded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: DatasetSpec
    files: Mapping[str, DataFile]  # "formal", and "seeds", "checks", "warmup" where asked for
    template: bool  # whether lengths were checked within the model's chat template
    shared_tokens: int
    cacheable_tokens: int

    @property
    def identity(self) -> str:
        """The identity of the measured data: the formal file's hash."""
        return self.files["formal"].sha256


@dataclass(frozen=True, kw_only=True)
class DatasetBuild:
    """One process on the host. It may be run again after any interruption: the same bytes come out."""

    argv: tuple[str, ...]
    files_to_upload: Mapping[str, bytes]
    folder: str

    def file(self, kind: Literal["formal", "seeds", "checks", "warmup"]) -> str:
        return f"{self.folder}/{kind}.jsonl"

    @property
    def manifest(self) -> str:
        return f"{self.folder}/manifest.json"


@dataclass(frozen=True, kw_only=True)
class BuildProgress:
    done: int
    total: int
    file: str


@dataclass(frozen=True, kw_only=True)
class BuildRefused:
    """The promise cannot be kept; the message says what to change in the scenario."""

    message: str


def spec_of(scenario: Scenario, page_size: int = PAGE_SIZE) -> DatasetSpec:
    """The data set that a scenario promises. Raises InputError where its cache state is out of reach.

    A warm scenario without `prefix_tokens` gets the shortest whole-page prefix with a few pages to spare.
    """
    cache = scenario.cache
    split = None if cache.state == "zero" else _split(scenario, page_size)
    return DatasetSpec(
        client=scenario.load.client,
        task=scenario.input.task,
        requests=scenario.load.requests,
        body_tokens=scenario.input.body_tokens,
        encoded_tokens=scenario.input.encoded_tokens,
        output_tokens=scenario.output_tokens,
        seed=scenario.load.seed,
        groups=0 if split is None else cache.seed_requests,
        prefix_tokens=0 if split is None else split.prefix_tokens,
        page_size=page_size,
        min_share=cache.per_request_min or 0.0,
        seed_requests=cache.seed_requests,
        check_requests=cache.check_requests,
        warmup_requests=scenario.load.warmup,
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
    spec: DatasetSpec, *, tokenizer_path: str, datasets_dir: str, python: tuple[str, ...] = ("python3",)
) -> DatasetBuild:
    """The build of a specification below `datasets_dir`, in a folder named by its digest."""
    content = spec.model_dump(mode="json")
    folder = f"{datasets_dir}/{digest({'spec': content, 'tokenizer': tokenizer_path})[:16]}"
    program, specification = f"{folder}/{PROGRAM_NAME}", f"{folder}/spec.json"
    options = ("--spec", specification, "--tokenizer", tokenizer_path, "--folder", folder)
    return DatasetBuild(
        argv=(*python, program, *options),
        files_to_upload={
            program: PROGRAM.read_bytes(),
            specification: json.dumps(content, sort_keys=True).encode(),
        },
        folder=folder,
    )


def parse_event(line: str) -> BuildProgress | DatasetManifest | BuildRefused | None:
    """One line of the build's output; None for a line that is not an event of ours."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    match event:
        case {"event": "progress", "done": int(done), "total": int(total), "file": str(file)}:
            return BuildProgress(done=done, total=total, file=file)
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
