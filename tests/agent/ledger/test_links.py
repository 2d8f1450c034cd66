"""A reviewer comes from the index to the raw file behind any number in two clicks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest

from agent.ledger.trial_section import artifact_href
from experiments.ledger import LedgerEntry, TrialFinished
from tests.agent.ledger.html_page import read_html

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')


def links_of(page: Path) -> list[str]:
    text = page.read_text()
    return read_html(text).links if page.suffix == ".html" else _LINK.findall(text)


def anchors_of(page: Path) -> set[str]:
    text = page.read_text()
    return set(read_html(text).ids if page.suffix == ".html" else _ANCHOR.findall(text))


def target_of(page: Path, link: str) -> tuple[Path, str]:
    path, _, anchor = link.partition("#")
    return ((page.parent / unquote(path)).resolve() if path else page.resolve()), anchor


@pytest.mark.parametrize("suffix", ["md", "html"])
def test_every_link_between_pages_arrives(suffix: str, ledger: Path) -> None:
    """Page and anchor exist for each link of each page, in both formats."""
    pages = [*ledger.rglob(f"*.{suffix}")]
    anchors = {page.resolve(): anchors_of(page) for page in pages}
    broken = []
    for page in pages:
        for link in links_of(page):
            target, anchor = target_of(page, link)
            if target.suffix in (".md", ".html") and (
                target not in anchors or (anchor and anchor not in anchors[target])
            ):
                broken.append((page.name, link))
    assert broken == []


@pytest.mark.parametrize("suffix", ["md", "html"])
def test_each_trial_with_numbers_is_two_clicks_from_its_raw_files(
    suffix: str, night: Sequence[LedgerEntry], ledger: Path
) -> None:
    """Index → card page → artifact, for every artifact of every trial."""
    index = ledger / f"index.{suffix}"
    first = {target_of(index, link)[0] for link in links_of(index)}
    second = {
        target_of(page, link)[0]
        for page in first
        if page.suffix == f".{suffix}" and page.is_file()
        for link in links_of(page)
    }
    artifacts = (ledger.parent / "artifacts").resolve()
    wanted = {
        artifacts / entry.record.trial_id / artifact.name
        for entry in night
        if isinstance(entry, TrialFinished)
        for artifact in entry.record.artifacts
    }
    assert len(wanted) > 30
    assert set() == wanted - second


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/passwd",
        "a/../../b",
        "..",
        ".hidden",
        "a\x00b",
        "a//b",
        "x" * 400,
        "javascript:alert(1)",
        "a)b",
        "",
    ],
)
def test_an_artifact_name_that_could_lead_elsewhere_is_no_link(name: str) -> None:
    """Such a name stands as text; a link is made of harmless parts only."""
    assert artifact_href("../../artifacts", "t0001", name) is None


@pytest.mark.parametrize("trial_id", ["../x", "a/b", "", ".", "javascript:x"])
def test_a_trial_id_that_could_lead_elsewhere_is_no_link(trial_id: str) -> None:
    """The folder of a trial is one plain name."""
    assert artifact_href("../../artifacts", trial_id, "details.jsonl") is None


def test_nested_artifacts_are_linked() -> None:
    """The client's own folders keep their names."""
    assert (
        artifact_href("../../artifacts", "t1", "raw/out/2026_1/a+b.jsonl")
        == "../../artifacts/t1/raw/out/2026_1/a%2Bb.jsonl"
    )
