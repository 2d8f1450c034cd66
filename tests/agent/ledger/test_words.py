"""Both languages say everything: no sentence of the ledger lacks its Chinese, and none is left over."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

import agent.ledger
from agent.ledger.chinese import CHINESE
from agent.ledger.words import Words
from experiments.card import Source, Wall
from experiments.knob import Cost
from experiments.ledger import Finding, StopReason
from experiments.measurement import WindowKind
from experiments.metric import METRICS
from experiments.trial import Reason, Route, Sent, Stage, Tier

ENUMS: tuple[type[StrEnum], ...] = (
    *(Reason, Route, Sent, Stage, Tier, Wall, Source, StopReason, Finding, WindowKind, Cost),
)
MEMBERS = [member for enum in ENUMS for member in enum]
# Sentences that are chosen at run time rather than written in the call.
CHOSEN = {
    "not evaluated",
    "Maximise {metric} ({window} window{target}) subject to {limits}; per card = divided by {cards} cards.",
    "Minimise {metric} ({window} window{target}) subject to {limits}; per card = divided by {cards} cards.",
    *(metric.label for metric in METRICS.values()),
}


def sentences() -> Iterator[str]:
    """Every literal first argument of a call of `t(…)` in the package."""
    for path in Path(agent.ledger.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "t":
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value


def test_every_sentence_has_its_chinese() -> None:
    """A reader of Chinese meets no English sentence of ours."""
    assert (set(sentences()) | CHOSEN) - CHINESE.keys() == set()


@pytest.mark.parametrize("member", MEMBERS, ids=repr)
def test_every_stored_value_has_a_label_in_both_languages(member: StrEnum) -> None:
    """Routes, reasons, stages and the like read as words."""
    assert "_" not in Words("en").label(member)
    assert Words("zh").label(member)


def test_no_chinese_sentence_is_left_over() -> None:
    """A sentence that the pages no longer use is removed from the table."""
    labels = {Words("en").label(member) for enum in ENUMS for member in enum}
    assert CHINESE.keys() - set(sentences()) - CHOSEN - labels == set()


@pytest.mark.parametrize("sentence", sorted(CHINESE))
def test_both_languages_fill_in_the_same_values(sentence: str) -> None:
    """A value that one language shows, the other shows too."""
    assert fields_of(sentence) == fields_of(CHINESE[sentence])


def fields_of(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


def test_both_languages_show_the_same_numbers(ledger: Path, chinese_ledger: Path) -> None:
    """The data files are the same bytes whatever the language."""
    for name in ("experiments.csv", "experiments.json"):
        assert (ledger / name).read_bytes() == (chinese_ledger / name).read_bytes()


def test_the_chinese_index_names_the_answer(chinese_ledger: Path) -> None:
    """Banner, answer and faults are there in the users' own terms."""
    index = (chinese_ledger / "index.md").read_text()
    for words in ("模拟资源池", "保留 c01-prefill-max-requests-2", "置信区间", "合同不符", "短筛"):
        assert words in index


def test_the_chinese_page_says_its_language(chinese_ledger: Path) -> None:
    """Browsers choose the right glyphs and screen readers the right voice."""
    assert '<html lang="zh">' in (chinese_ledger / "index.html").read_text()
