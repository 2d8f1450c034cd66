"""The main job as its user sees it: one command, a whole study over SSH on a simulated pool, and a ledger."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.entrypoints.operate import read_study
from agent.workspace import Workspace
from experiments.study import Study
from experiments.trial import Reason, Route, Sent, Tier

COLUMNS = {
    "card", "parent", "change", "change_role", "change_knob", "change_from", "change_to", "tier", "route", "reason",
    "window", "n_requests", "duration_s", "output_tok_s_per_card", "tpot_mean_ms", "ttft_mean_s", "e2e_mean_s",
    "failed", "simulated",
}  # fmt: skip


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo's folder and what it printed. One run serves every claim of this module."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    command = [str(Path(sys.executable).with_name("tuneloop")), "demo", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


@pytest.fixture(scope="module")
def study(demo: tuple[Path, str]) -> Study:
    return read_study(Workspace(demo[0]))


@pytest.mark.slow
@pytest.mark.timeout(420)
class TestDemo:
    def test_it_finds_that_prefill_admits_one_request_per_batch(self, study: Study) -> None:
        """The first kept change is the batch cap 1 → 2, cited from the queues and the lone tails."""
        kept = study.cards[study.kept[0].card_digest].draft

        assert (kept.change.name, kept.change.from_value, kept.change.to_value) == ("prefill-max-requests", 1, 2)
        assert {ref.id for ref in kept.evidence} >= {"prefill.waiting.share_positive", "prefill.lone_tail_share"}

    def test_it_screens_short_and_confirms_at_the_formal_load(self, study: Study) -> None:
        """N320 is compared with N320, N640 with N640, and nothing is kept on one run."""
        digest = study.kept[0].card_digest
        screened = study.card_trials(digest, Tier.SCREENING)
        confirmed = study.card_trials(digest, Tier.CONFIRMATION)

        assert {t.started.load.requests for t in screened} == {320}
        assert {t.started.load.requests for t in confirmed} == {640}
        assert len(confirmed) >= 2
        comparison = study.closed[digest].classification.comparison
        assert comparison is not None
        assert len(comparison.incumbent_trials) >= 2
        assert comparison.low > 0

    def test_other_candidates_end_as_valid_negatives(self, study: Study) -> None:
        """At least four others were tried and closed with their reasons."""
        others = [c for d, c in study.closed.items() if d != study.kept[0].card_digest]

        assert len(others) >= 4
        assert sum(c.classification.route is Route.VALID_NEGATIVE for c in others) >= 4

    def test_the_failed_summary_was_repaired_and_the_load_never_sent_again(
        self, demo: tuple[Path, str], study: Study
    ) -> None:
        """The clients' own counter of runs on the host says one start per measured trial."""
        records = [t.record for t in study.trials.values() if t.record is not None]
        repaired = [f for record in records for f in record.faults if f.repaired]
        runs = [json.loads(line)["run"] for line in (demo[0] / "pool" / "runs.jsonl").read_text().splitlines()]

        assert [(f.reason, f.sent) for f in repaired] == [(Reason.POST_PROCESSING, Sent.FINISHED)]
        assert all(record.measurement is not None for record in records if any(f.repaired for f in record.faults))
        for trial_id in study.trials:
            assert runs.count(trial_id) <= 1

    def test_the_last_lines_name_the_answer_and_that_it_is_simulated(self, demo: tuple[Path, str]) -> None:
        """Kept configuration, numbers, ledger path, and the word."""
        tail = demo[1].splitlines()[-7:]

        assert tail[0].startswith("kept configuration  c01-prefill-max-requests-2")
        assert any("tok/s/card" in line for line in tail)
        assert any(line.startswith("ledger ") for line in tail)
        assert tail[-1].startswith("SIMULATED POOL")

    def test_the_csv_has_every_column_and_no_number_in_a_fault(self, demo: tuple[Path, str]) -> None:
        """A fault's row says NOT_OBSERVED wherever a number would stand, and each row says simulated."""
        text = (demo[0] / "ledger" / "experiments.csv").read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text)))

        assert set(rows[0]) >= COLUMNS
        assert {row["simulated"] for row in rows} == {"true"}
        for row in rows:
            if row["route"] == "orchestration_fault" or row["reason"] == "infeasible":
                assert row["output_tok_s_per_card"] == "NOT_OBSERVED"

    def test_the_kept_configuration_can_be_started_from(self, demo: tuple[Path, str]) -> None:
        """kept/*.yaml is a baseline file that parses, with the kept value in it."""
        from experiments.goal import parse_baseline
        from experiments.serving_config import Path as SettingPath

        files = sorted((demo[0] / "kept").glob("*.yaml"))
        config = parse_baseline(files[0].read_bytes(), files[0].name)

        assert config.get(SettingPath.parse("prefill.flag.prefill-max-requests")) == 2

    def test_every_artifact_has_the_hash_that_the_ledger_says(self, demo: tuple[Path, str], study: Study) -> None:
        """A reviewer can check the raw file behind any number."""
        import hashlib

        seen = 0
        for trial_id, trial in study.trials.items():
            for artifact in trial.record.artifacts if trial.record else ():
                data = (demo[0] / "artifacts" / trial_id / artifact.name).read_bytes()
                assert hashlib.sha256(data).hexdigest() == artifact.sha256
                seen += 1
        assert seen > 50

    def test_no_server_is_left(self, demo: tuple[Path, str]) -> None:
        """When the study ends the machines are free."""
        left = subprocess.run(
            ["pgrep", "-f", str(demo[0] / "pool")], capture_output=True, text=True, check=False
        ).stdout.split()

        assert left == []
