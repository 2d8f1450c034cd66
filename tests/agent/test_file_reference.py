"""docs/files.md names every key of the files that people write, with its default as the code has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agent.service.service_file import ServiceFile
from agent.settings import PREFIX, Settings
from executor.pool import Pool
from experiments.goal import Goal
from experiments.objective import Bound, Constraint

PAGE = Path(__file__).resolve().parents[2] / "docs" / "files.md"
WRITTEN_AS_TEXT = (Bound, Constraint)  # `tpot_mean < 20 ms`
ROW = re.compile(r"\| `([^`]+)` \| (.*?) \| .*\|")


def rows(title: str) -> dict[str, str]:
    """Key and default of each row below a heading."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {title}", 1)[1].split("\n## ")[0]
    found = ROW.findall(section)
    assert len({key for key, _ in found}) == len(found), "a key twice"
    return dict(found)


def keys(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        part, many = _part(field)
        key = f"{before}{name}{many}"
        if part is not None:
            yield from keys(part, f"{key}.")
        else:
            yield key, _default(field)


def _part(field: FieldInfo) -> tuple[type[BaseModel] | None, str]:
    """The model that a field holds, once, in a list or under names of the user's."""
    found = next((t for t in _types(field.annotation) if isinstance(t, type) and issubclass(t, BaseModel)), None)
    origin = getattr(field.annotation, "__origin__", None)
    many = "[]" if found is not None and origin is tuple else ".*" if found is not None and origin is dict else ""
    return (None if found in WRITTEN_AS_TEXT else found), many


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in get_args(annotation):
        yield from _types(argument)


def _default(field: FieldInfo) -> str:
    match field.default:
        case _ if field.is_required():
            return "required"
        case None:
            return "–"
        case bool(value):
            return str(value).lower()
        case () | {}:
            return "none"
        case ("python3" | "ais_bench", *_) as command:
            return " ".join(command)
        case tuple(names):
            return f"[{', '.join(names)}]"
        case value:
            return str(value)


@pytest.mark.parametrize(
    ("title", "model"), [("`goal.yaml`", Goal), ("`pool.yaml`", Pool), ("`service.yaml`", ServiceFile)]
)
def test_every_key_of_a_file_has_its_row(title: str, model: type[BaseModel]) -> None:
    """None is missing, none is left over, and each default is the code's."""
    assert rows(title) == dict(keys(model))


def test_every_variable_has_its_row() -> None:
    """Those of the language model, and the two that name a shared database."""
    known = {f"{PREFIX}{name.upper()}": _default(field) for name, field in Settings.model_fields.items()}
    assert rows("The environment") == known | dict.fromkeys(
        ("TUNELOOP_DATABASE_URL", "TUNELOOP_DATABASE_URL_FILE"), "–"
    )
