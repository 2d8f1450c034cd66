"""The check stage asks the installed engine on its host, over SSH, before anything is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from executor.pool import Build, Pool
from executor.stage_result import Done, Faulted
from executor.stages.preparation import check
from experiments.errors import InputError
from experiments.serving_config import Path as SettingPath
from experiments.serving_config import ServingConfig, Value
from experiments.trial import NOT_OBSERVED, Reason
from tests.executor.engines.test_host_check import POLICY, install
from tests.executor.stage_bench import BASELINE, Bench, numbers

CAP = "prefill.flag.prefill-max-requests"

# A parser with a flag that only warns, as retired flags of real releases do.
SERVER_ARGS = """
import argparse

class DeprecatedAction(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, **kwargs):
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)
    def __call__(self, *_):
        print("deprecated")

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        for name in ("model-path", "host", "port", "disaggregation-mode", "disaggregation-bootstrap-port",
                     "chunked-prefill-size", "page-size", "prefill-max-requests", "max-running-requests"):
            parser.add_argument("--" + name)
        parser.add_argument("--prefill-round-robin-balance", action=DeprecatedAction)
"""


def changed(name: str, value: Value, parent: ServingConfig = BASELINE) -> ServingConfig:
    return parent.with_value(SettingPath.parse(name), value)


def with_engine(pool: Pool, folder: Path, files: Mapping[str, str], **engine: object) -> Pool:
    """The pool with an engine of our own: a Python that can import it, and no programs in place of ours."""
    install(folder, {"srt/server_args.py": SERVER_ARGS, **files})
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    programs = pool.programs.model_copy(update={"argument_check": None, "admission_check": None})
    settings = pool.engine.model_copy(update={"python": str(python), **engine})
    return pool.model_copy(update={"programs": programs, "engine": settings})


SMALL = ServingConfig(
    settings={
        CAP: 1,
        "prefill.flag.chunked-prefill-size": 8192,
        "prefill.flag.page-size": 128,
        "decode.flag.page-size": 128,
    }
)


def notes(result: object) -> list[str]:
    assert isinstance(result, Done), result
    return list(result.payload["engine"])


def test_the_arguments_are_accepted_and_the_answer_is_kept_for_the_study(bench: Bench) -> None:
    """One question per server; the next trial with the same servers asks none."""
    first = notes(check(bench.trial(BASELINE), {}))
    assert [note.split(";")[0] for note in first] == [
        "prefill: the installed parser (0.5.22) accepts the arguments",
        "decode: the installed parser (0.5.22) accepts the arguments",
    ]
    asked = bench.questions()
    assert (notes(check(bench.trial(BASELINE), {})), asked, bench.questions()) == (first, 2, 2)


def test_a_removed_flag_is_an_error_before_launch(bench: Bench) -> None:
    """The parser's own words, the release, and the configuration is to blame."""
    result = check(bench.trial(changed("prefill.flag.prefill-round-robin-balance", True)), {})
    assert isinstance(result, Faulted)
    assert (result.reason, result.configuration_caused) == (Reason.CONTRACT_MISMATCH, True)
    assert "(0.5.22) says: unrecognized arguments: --prefill-round-robin-balance" in result.detail


def test_a_reachable_mechanism_is_noted_with_its_batch_counts(bench: Bench) -> None:
    """Cap 1 → 2 with 20 of 320 requests on each of 16 ranks: 60 batches become 41."""
    said = notes(check(bench.trial(changed(CAP, 2), parent=BASELINE), {}))
    assert any("mechanism reachable: 60 → 41 prefill batches per rank" in note for note in said)


def test_an_unreachable_mechanism_ends_the_trial_before_anything_runs(bench: Bench) -> None:
    """Cap 2 → 3 forms the same batches: a negative without a launch, and no fault."""
    two = changed(CAP, 2)
    result = check(bench.trial(changed(CAP, 3, two), parent=two), {})
    assert isinstance(result, Faulted)
    assert (result.reason, result.configuration_caused) == (Reason.NO_SIGNIFICANT_GAIN, True)
    assert "mechanism not reachable in this build: 41 → 41" in result.detail


def test_the_same_batches_prove_nothing_where_more_than_admission_changes(bench: Bench) -> None:
    """The memory fraction is no admission knob: no question, no early end."""
    said = notes(check(bench.trial(changed("prefill.flag.mem-fraction-static", 0.6), parent=BASELINE), {}))
    assert not any("mechanism" in note for note in said)


def test_the_installed_engine_itself_is_asked_where_the_pool_has_no_program(bench: Bench, tmp_path: Path) -> None:
    """Our programs are sent to the host and run by the engine's Python: 960 → 645 from its admission code."""
    pool = with_engine(bench.pool, tmp_path, {"srt/managers/schedule_policy.py": POLICY.format(gate=False)})
    real = replace(bench, pool=pool, study=f"study-{next(numbers)}")
    said = notes(check(real.trial(changed(CAP, 2, SMALL), parent=SMALL), {}))
    assert "prefill: the installed parser (0.5.99) accepts the arguments" in said
    assert any("mechanism reachable: 960 → 645" in note for note in said)


def test_the_gate_of_an_older_build_is_found_out_before_launch(bench: Bench, tmp_path: Path) -> None:
    """The default max-prefill-tokens keeps the second request out: 960 → 960."""
    pool = with_engine(bench.pool, tmp_path, {"srt/managers/schedule_policy.py": POLICY.format(gate=True)})
    old = replace(bench, pool=pool, study=f"study-{next(numbers)}")
    result = check(old.trial(changed(CAP, 2, SMALL), parent=SMALL), {})
    assert isinstance(result, Faulted)
    assert "mechanism not reachable in this build: 960 → 960" in result.detail


def test_an_ignored_flag_is_an_error_before_launch(bench: Bench, tmp_path: Path) -> None:
    """A flag whose action only warns would be a card that changes nothing."""
    pool = with_engine(bench.pool, tmp_path, {})
    real = replace(bench, pool=pool, study=f"study-{next(numbers)}")
    result = check(real.trial(changed("prefill.flag.prefill-round-robin-balance", True, SMALL)), {})
    assert isinstance(result, Faulted)
    assert result.detail == "prefill: the installed engine (0.5.99) ignores --prefill-round-robin-balance"


def test_a_pool_without_an_engine_python_goes_on_with_a_note(bench: Bench) -> None:
    """What cannot be asked is NOT_OBSERVED with its reason, and stops nothing."""
    programs = bench.pool.programs.model_copy(update={"argument_check": None, "admission_check": None})
    bare = replace(bench, pool=bench.pool.model_copy(update={"programs": programs}), study=f"study-{next(numbers)}")
    said = notes(check(bare.trial(BASELINE), {}))
    assert len(said) == 2
    assert all(f"arguments {NOT_OBSERVED} by the installed engine: ModuleNotFoundError" in note for note in said)


def test_a_build_is_known_by_name_and_has_to_be_what_it_claims(bench: Bench, tmp_path: Path) -> None:
    """An unknown name is refused with the known ones; another source than the pool file says is refused too."""
    pool = with_engine(bench.pool, tmp_path, {})
    claimed = Build(server=pool.programs.server, python=pool.engine.python, source="commit:0123456789abcdef")
    pool = pool.model_copy(update={"builds": {"fix-17": claimed}})
    real = replace(bench, pool=pool, study=f"study-{next(numbers)}")
    with pytest.raises(InputError, match="build 'fix-18' is not under builds; there are: fix-17"):
        check(real.trial(changed("prefill.build.source", "fix-18", SMALL)), {})
    result = check(real.trial(changed("prefill.build.source", "fix-17", SMALL)), {})
    assert isinstance(result, Faulted)
    assert result.detail.startswith("prefill: the build is to be commit:0123456789abcdef, installed is")


def test_an_expert_layout_is_known_by_the_digest_of_its_file(bench: Bench) -> None:
    """A file that is not there is refused before launch; one outside of the work directory is NOT_OBSERVED."""
    folder = Path(bench.pool.workdir_of("p0"))
    (folder / "scene-16k.json").write_text("{}")
    name = "prefill.layout.init-expert-location"
    known = check(bench.trial(changed(name, f"{folder}/scene-16k.json")), {})
    assert isinstance(known, Done)
    assert "prefill: init-expert-location scene-16k.json sha256 44136fa355b3678a" in known.payload["sources"]
    elsewhere = check(bench.trial(changed(name, "/opt/layouts/other.json")), {})
    assert isinstance(elsewhere, Done)
    assert f"prefill: init-expert-location other.json {NOT_OBSERVED}" in elsewhere.payload["sources"]
    gone = check(bench.trial(changed(name, f"{folder}/gone.json")), {})
    assert isinstance(gone, Faulted)
    assert gone.detail == "prefill: the init-expert-location file gone.json is not on its host"


def test_a_recorder_of_expert_loads_is_off_in_every_trial(bench: Bench) -> None:
    """Its cost would be measured with the configuration."""
    result = check(bench.trial(changed("prefill.flag.expert-distribution-recorder-mode", "stat")), {})
    assert isinstance(result, Faulted)
    assert "a formal run records nothing" in result.detail
