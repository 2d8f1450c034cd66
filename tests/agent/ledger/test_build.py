"""The ledger folder: which files, which bytes, and that nothing else is touched."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.ledger.build import build_ledger
from agent.ledger.files import write_text
from experiments.ledger import ENTRY, LedgerEntry
from tests.factories import Night, a_night, an_opening

CARDS = [
    "c01-prefill-max-requests-2",
    "c02-concurrency-90",
    "c03-max-running-requests-160",
    "c04-mem-fraction-static-0-95",
    "c05-sglang-enable-compact-1",
    "c06-expert-location-scene-16k",
    "c07-prefill-max-requests-3",
    "start",
]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_folder_holds_every_promised_file(ledger: Path) -> None:
    """An index, the two tables, two plots, and a page per card in both formats."""
    expected = {"index.md", "index.html", "experiments.csv", "experiments.json"}
    expected |= {"plots/progress.svg", "plots/trade-off.svg"}
    expected |= {f"cards/{name}.{suffix}" for name in CARDS for suffix in ("md", "html")}
    assert expected == set(digests(ledger))


def test_the_same_entries_give_the_same_bytes(night: Sequence[LedgerEntry], ledger: Path, tmp_path: Path) -> None:
    """Entries that went through the store build the same folder elsewhere, byte for byte."""
    stored = [ENTRY.validate_json(ENTRY.dump_json(entry)) for entry in night]
    build_ledger(stored, tmp_path / "ledger", artifacts=tmp_path / "artifacts", kept=tmp_path / "kept")
    assert digests(ledger) == digests(tmp_path / "ledger")


def test_another_process_gives_the_same_bytes(ledger: Path, chinese_ledger: Path, tmp_path: Path) -> None:
    """Neither the hash seed nor the time zone nor the locale of a process shows in the files."""
    script = (
        "import sys; from pathlib import Path; from agent.ledger.build import build_ledger\n"
        "from tests.factories import a_night\n"
        "root = Path(sys.argv[1]); night = a_night()\n"
        "build_ledger(night, root / 'ledger', artifacts=root / 'artifacts', kept=root / 'kept')\n"
        "build_ledger(night, root / 'zh', lang='zh', artifacts=root / 'artifacts')\n"
    )
    elsewhere = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Shanghai", "LC_ALL": "C", "PYTHONPATH": os.getcwd()}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, env=elsewhere, timeout=100)
    assert digests(ledger) == digests(tmp_path / "ledger")
    assert digests(chinese_ledger) == digests(tmp_path / "zh")


def test_a_second_build_writes_nothing(night: Sequence[LedgerEntry], tmp_path: Path) -> None:
    """Files whose bytes did not change are not written again."""
    first = build_ledger(night, tmp_path, artifacts=None)
    second = build_ledger(night, tmp_path, artifacts=None)
    assert (len(digests(tmp_path)), 0) == (first.written, second.written)


def test_strangers_in_the_folder_are_left_alone(night: Sequence[LedgerEntry], tmp_path: Path) -> None:
    """A reviewer's own notes beside the pages survive a build."""
    (tmp_path / "cards").mkdir()
    for name in ("notes.md", "cards/notes.md", "cards/c99-old.md"):
        (tmp_path / name).write_text("mine")
    build_ledger(night, tmp_path, artifacts=None)
    assert [(tmp_path / n).read_text() for n in ("notes.md", "cards/notes.md", "cards/c99-old.md")] == ["mine"] * 3


def test_no_temporary_file_stays(ledger: Path) -> None:
    """Every file is replaced whole; nothing half-written is left behind."""
    assert list(ledger.rglob(".*")) == []


def test_a_symlink_in_the_place_of_a_page_is_replaced_not_followed(tmp_path: Path) -> None:
    """The file that a planted link points to keeps its content."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    page = tmp_path / "index.md"
    page.symlink_to(victim)
    write_text(page, "page")
    assert (victim.read_text(), page.read_text(), page.is_symlink()) == ("mine", "page", False)


def test_a_study_that_has_just_begun_has_a_ledger(tmp_path: Path) -> None:
    """One entry is enough: everything that is not there yet is said to be absent."""
    build_ledger([an_opening()], tmp_path, artifacts=None)
    index = (tmp_path / "index.md").read_text()
    assert "Nothing was kept: the starting configuration stands." in index
    assert "NOT\\_OBSERVED" in index or "NOT_OBSERVED" in index


@pytest.mark.parametrize("count", [2, 3, 8, 40])
def test_every_prefix_of_a_study_has_a_ledger(count: int, night: Sequence[LedgerEntry], tmp_path: Path) -> None:
    """A ledger may be built at any moment of a night, also while a trial runs."""
    files = build_ledger(night[:count], tmp_path, artifacts=None)
    assert files.index.read_text().startswith("# Experiment ledger")


def test_a_real_pool_carries_no_banner(tmp_path: Path) -> None:
    """The word SIMULATED stands on every page of a simulated study and on none of a real one."""
    build_ledger(a_night(simulated=False), tmp_path, artifacts=None)
    pages = [*tmp_path.glob("*.md"), *tmp_path.glob("cards/*.md"), *tmp_path.glob("**/*.html")]
    assert [page.name for page in pages if "simulated" in page.read_text().lower()] == []


def test_every_page_of_a_simulated_study_says_so(ledger: Path) -> None:
    """No page of a simulated study can be mistaken for a measurement, on screen or in print."""
    pages = [*ledger.glob("**/*.md"), *ledger.glob("**/*.html")]
    silent = [page.name for page in pages if "SIMULATED POOL — no number on this page" not in page.read_text()]
    assert silent == []


def test_an_unknown_language_is_refused(night: Sequence[LedgerEntry], tmp_path: Path) -> None:
    """A language that the ledger does not have is an error, not silent English."""
    with pytest.raises(ValueError, match="no such language"):
        build_ledger(night, tmp_path, lang="fr", artifacts=None)


def test_a_night_without_a_keep_says_why_it_stopped(tmp_path: Path) -> None:
    """Where nothing was kept, the answer is the start's own numbers and the reason for the end."""
    ideas = tuple(idea for idea in Night().ideas if idea.configuration_caused)
    build_ledger(Night(ideas=ideas).run(settle_held=True), tmp_path, artifacts=None)
    answer = (tmp_path / "index.md").read_text().split("## Answer")[1].split("##")[0]
    assert "Nothing was kept" in answer
    assert "native window, N=640, 1 runs" in answer
    assert "no candidate. every knob value was tried" in answer
