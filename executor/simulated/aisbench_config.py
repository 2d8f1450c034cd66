"""Reads the generated AISBench model and dataset configs. They are Python files; they are parsed, never executed."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from executor.simulated.model.workload import Request, Segment
from executor.simulated.tokens import segment_prompts, task_of, wrap_chat

CHAT_CLASSES = ("VLLMCustomAPIChat",)
KNOWN_CLASSES = (*CHAT_CLASSES, "VLLMCustomAPI")


class ConfigError(Exception):
    """A config that AISBench itself would refuse; the message is its own wording."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One entry of `models`."""

    abbr: str
    type: str
    path: str
    base_url: str
    concurrency: int
    rate: float | None
    max_out_len: int
    fields: dict[str, Any]

    @property
    def is_chat(self) -> bool:
        return self.type in CHAT_CLASSES


@dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    """One entry of a `*_datasets` list."""

    abbr: str
    path: Path
    columns: tuple[str, ...]
    fields: dict[str, Any]


def find_config(folder: Path, kind: str, stem: str) -> Path:
    """`CFG/<kind>/**/<stem>.py`, the first match in name order."""
    found = sorted((folder / kind).rglob(f"{stem}.py"))
    if not found:
        raise ConfigError(f"TMAN-CFG-003 cannot find {kind} config file {stem} in {folder}")
    return found[0]


def read_model(path: Path) -> ModelConfig:
    entry = _first_entry(path, lambda name: name == "models")
    if entry.get("type") not in KNOWN_CLASSES:
        raise ConfigError(
            f"'{entry.get('type')} is not in the ais_bench::model registry. Please check whether the value of "
            f"`{entry.get('type')}` is correct or it was registered as expected.'"
        )
    rate = float(entry.get("request_rate") or 0)
    url = str(entry.get("url") or "").rstrip("/") or f"http://{entry['host_ip']}:{entry['host_port']}"
    return ModelConfig(
        abbr=str(entry["abbr"]),
        type=str(entry["type"]),
        path=str(entry["path"]),
        base_url=url,
        concurrency=int(entry["batch_size"]),
        rate=rate if rate >= 0.001 else None,
        max_out_len=int(entry["max_out_len"]),
        fields=entry,
    )


def read_dataset(path: Path) -> DatasetConfig:
    entry = _first_entry(path, lambda name: name.endswith("datasets"))
    columns = entry.get("reader_cfg", {}).get("input_columns", [])
    return DatasetConfig(abbr=str(entry["abbr"]), path=Path(str(entry["path"])), columns=tuple(columns), fields=entry)


def _first_entry(path: Path, is_wanted: Any) -> dict[str, Any]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except SyntaxError as error:
        raise ConfigError(f"TMAN-CFG-001 invaild syntax in config content: {error}") from error
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and is_wanted(t.id) for t in node.targets):
            entries = _value(node.value)
            if isinstance(entries, list) and entries and isinstance(entries[0], dict):
                return entries[0]
    raise ConfigError(f"TMAN-CFG-002 {path} assigns no list of entries")


def _value(node: ast.expr) -> Any:
    """Literals, `dict(...)` calls and bare names (a class is known by its name)."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return name
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=pairs):
            return {pair.arg: _value(pair.value) for pair in pairs if pair.arg is not None}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case _:
            raise ConfigError(f"TMAN-CFG-001 invaild syntax in config content: line {node.lineno} is no literal")


def read_rows(dataset: DatasetConfig, limit: int | None) -> list[dict[str, Any]]:
    """The first `limit` rows of the dataset file."""
    rows: list[dict[str, Any]] = []
    with dataset.path.open(encoding="utf-8") as file:
        for line in file:
            if limit is not None and len(rows) >= limit:
                break
            if line.strip():
                rows.append(json.loads(line))
    return rows


def requests_of(
    rows: Sequence[dict[str, Any]],
    model: ModelConfig,
    dataset: DatasetConfig,
    overhead: int,
    shared_heads: frozenset[str],
) -> list[Request]:
    """The load's requests. Prompts are counted from their text, or taken from the dataset's side file."""
    texts = [str(row["question"]) for row in rows]
    side = read_side_file(dataset.path)
    listed = side.get("segments")
    if listed is not None:
        prompts = [tuple(Segment(str(key), int(tokens)) for key, tokens in row) for row in listed[: len(rows)]]
    else:
        prompts = segment_prompts(texts, shared_heads)
    if model.is_chat:
        prompts = [wrap_chat(prompt, overhead) for prompt in prompts]
    task = side.get("task")
    return [
        Request(
            index=index,
            prompt=prompt,
            output_tokens=_output_tokens(row, model, dataset),
            task=str(task or task_of(text)),
        )
        for index, (row, text, prompt) in enumerate(zip(rows, texts, prompts, strict=True))
    ]


def read_side_file(dataset: Path) -> dict[str, Any]:
    """`<dataset>.simulated.json`: optional `task`, and `segments`: per row a list of [key, tokens]."""
    path = dataset.with_name(dataset.name + ".simulated.json")
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return document


def _output_tokens(row: dict[str, Any], model: ModelConfig, dataset: DatasetConfig) -> int:
    if "max_out_len" in dataset.columns and "max_out_len" in row:
        return int(row["max_out_len"])
    return model.max_out_len
