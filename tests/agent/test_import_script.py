"""Launch scripts become a baseline that the product itself reads, and nothing that is set twice goes unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.entrypoints.cli import app
from agent.entrypoints.import_script import import_scripts
from experiments.baseline import parse_baseline
from experiments.errors import InputError
from tests.executor.engines.field_samples import FIELD

SCRIPTS = sorted((FIELD / "launch").glob("*.sh.txt")) if FIELD.is_dir() else []
NO_SERVER = ("05_", "15_", "16_")

TWICE = """\
export HCCL_BUFFSIZE=800
export HCCL_BUFFSIZE=1024
python3 -m sglang.launch_server --model-path /data/model --disaggregation-mode decode --tp 16 \\
  --max-running-requests 416 --mem_fraction_static 0.8 --mem-fraction-static 0.79 --max-running-requests 416
"""
PREFILL = "python3 -m sglang.launch_server --disaggregation-mode prefill --tp-size 16 --port 8000\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_of_the_field_becomes_a_baseline_that_is_read_again(script: Path, tmp_path: Path) -> None:
    """A script with a server gives a file that parse_baseline accepts; one without is refused by name."""
    target = tmp_path / "baseline.yaml"
    if script.name.startswith(NO_SERVER):
        with pytest.raises(InputError, match="starts no SGLang server or router"):
            list(import_scripts([script], [], target))
        return
    lines = list(import_scripts([script], [], target))
    config = parse_baseline(target.read_bytes(), str(target))
    assert f"{target}: {len(config.settings)} settings" in lines[-1]


def test_what_is_set_twice_is_reported_with_its_line_and_the_later_wins(tmp_path: Path) -> None:
    """Overrides, repetitions and aliases are told apart, of flags and of variables."""
    script, target = write(tmp_path, "decode.sh", TWICE), tmp_path / "baseline.yaml"
    lines = list(import_scripts([script], [], target))
    assert f"{script}:2: env_overridden: HCCL_BUFFSIZE 800 of line 1 is set again: 1024" in lines
    assert f"{script}:4: flag_overridden: mem-fraction-static 0.8 of line 4 is given again: 0.79" in lines
    assert f"{script}:4: flag_repeated: max-running-requests 416 of line 4 is given again: 416" in lines
    assert f"{script}:3: alias: --tp is tp-size" in lines
    config = parse_baseline(target.read_bytes(), str(target))
    assert dict(config.settings) == {
        "decode.flag.max-running-requests": 416,
        "decode.flag.mem-fraction-static": 0.79,
        "decode.flag.tp-size": 16,
        "decode.env.HCCL_BUFFSIZE": 1024,
    }


def test_two_scripts_make_one_baseline_and_one_role_is_taken_alone(tmp_path: Path) -> None:
    """Prefill and decode have a script each; the same role from two scripts is refused."""
    prefill, decode = write(tmp_path, "p.sh", PREFILL), write(tmp_path, "d.sh", TWICE)
    list(import_scripts([prefill, decode], [], tmp_path / "both.yaml"))
    both = parse_baseline((tmp_path / "both.yaml").read_bytes(), "both.yaml")
    assert {key.split(".")[0] for key in both.settings} == {"prefill", "decode"}
    list(import_scripts([prefill, decode], ["decode"], tmp_path / "decode.yaml"))
    alone = parse_baseline((tmp_path / "decode.yaml").read_bytes(), "decode.yaml")
    assert {key.split(".")[0] for key in alone.settings} == {"decode"}
    with pytest.raises(InputError, match="starts prefill, as an earlier script does"):
        list(import_scripts([prefill, prefill], [], tmp_path / "twice.yaml"))


def test_places_and_secrets_stay_out_of_the_baseline(tmp_path: Path) -> None:
    """An address belongs to pool.yaml and a secret to the host; both are said, neither value is shown."""
    text = "export STORE_URL=tcp://10.1.2.3:24670\nexport HF_TOKEN=hf_abcdefgh\n" + PREFILL
    script, target = write(tmp_path, "p.sh", text), tmp_path / "baseline.yaml"
    lines = list(import_scripts([script], [], target))
    assert any("prefill.env.STORE_URL holds an address" in line for line in lines)
    assert any("prefill.env.HF_TOKEN looks like a secret" in line for line in lines)
    assert not any("10.1.2.3" in line or "hf_abcdefgh" in line for line in [*lines, target.read_text()])


def test_the_command_refuses_to_overwrite_and_unknown_roles(tmp_path: Path) -> None:
    """A baseline that is there stays as it is."""
    script, target = write(tmp_path, "p.sh", PREFILL), write(tmp_path, "baseline.yaml", "mine\n")
    refused = CliRunner().invoke(app, ["import-script", str(script), "--out", str(target)])
    assert isinstance(refused.exception, InputError)
    assert target.read_text() == "mine\n"
    with pytest.raises(InputError, match="there are prefill, decode, mixed, router"):
        list(import_scripts([script], ["client"], tmp_path / "other.yaml"))
