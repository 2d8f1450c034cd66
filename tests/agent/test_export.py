"""What a study found, taken along: scripts start the very commands of its trials, a bundle is reproducible."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from agent.entrypoints.export import describe_choice, export_bundle, export_configuration
from agent.entrypoints.make_workspace import make_workspace
from agent.launch_script import launch_scripts
from agent.workspace import Workspace
from executor.pool import parse_pool
from experiments.errors import InputError
from experiments.ledger import StudyOpened
from experiments.serving_config import Kind, Role
from experiments.serving_config import Path as SettingPath
from state.database import open_database
from tests.factories import a_config, a_night

POOL = """\
name: p8-d8
cards: {prefill: 8, decode: 8}
hosts:
  p0: {role: prefill, ssh: p0, address: 10.0.0.1, env: {NOTE: "it's $HOME; `id`"}}
  d0: {role: decode, ssh: d0, address: 10.0.0.2, port: 30001}
router: {on: p0, port: 30100}
client: {on: p0, model_path: /models/m}
workdir: /data/tuneloop
"""


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose ledger is a whole night."""
    root = tmp_path_factory.mktemp("export") / "night"
    make_workspace(root, "16k-zero-cache")
    entries = a_night(settle_held=True)
    assert isinstance(entries[0], StudyOpened)
    study_id = entries[0].study_id
    with open_database(Workspace(root).database) as database:
        database.ledger().append(study_id, entries, after=0)
    Workspace(root).study_file.write_text(f"{study_id} own\n")
    return root


def words_of(script: str, tmp_path: Path) -> tuple[list[str], str]:
    """What bash makes of a script: the words that it would start, and one variable."""
    probe = script.replace("\nexec ", "\nprintf '%s\\0' ").replace("cd /data/tuneloop", "cd /")
    file = tmp_path / "probe.sh"
    file.write_text(probe + "printf '\\1%s' \"${NOTE:-}\"\n")
    printed = subprocess.run(["bash", str(file)], capture_output=True, text=True, check=True, env={}).stdout
    words, _, variable = printed.partition("\1")
    return words.split("\0")[:-1], variable


def test_a_script_starts_the_words_of_the_card_and_nothing_is_left_to_the_shell(tmp_path: Path) -> None:
    """Quotes, dollars and backticks of a value arrive as they are."""
    hostile = "a b'c\"d$(touch /tmp/x)`id`; rm -rf /"
    config = a_config().with_value(SettingPath(Role.PREFILL, Kind.FLAG, "served-model-name"), hostile)
    scripts = launch_scripts(config, parse_pool(POOL, "pool.yaml"), "a heading\nof two lines")

    words, variable = words_of(scripts["1-prefill.sh"], tmp_path)

    assert list(scripts) == ["1-prefill.sh", "2-decode.sh", "3-router.sh"]
    assert words[words.index("--served-model-name") + 1] == hostile
    assert words[words.index("--host") + 1] == "10.0.0.1"
    assert variable == "it's $HOME; `id`"


def test_the_router_is_told_of_both_servers() -> None:
    """Prefill with its bootstrap port, decode with its own port."""
    router = launch_scripts(a_config(), parse_pool(POOL, "pool.yaml"), "")["3-router.sh"]
    assert "--prefill http://10.0.0.1:30000 8998" in router
    assert "--decode http://10.0.0.2:30001" in router


def test_the_kept_configuration_is_exported_with_what_stands_behind_it(night: Path, tmp_path: Path) -> None:
    """Scripts and YAML name study, card and runs, and say that the pool was simulated."""
    out = tmp_path / "kept"
    lines = export_configuration(night, out, None)
    names = sorted(file.name for file in out.iterdir())
    assert names == ["1-prefill.sh", "2-decode.sh", "3-router.sh", "baseline.yaml"]
    for name in names:
        text = (out / name).read_text()
        assert "SIMULATED" in text
        assert "kept after the runs" in text
    assert "SIMULATED" in lines[0]


def test_a_refuted_card_says_so(night: Path, tmp_path: Path) -> None:
    """What was not kept can be exported, and says that it was not."""
    export_configuration(night, tmp_path / "c03", "c03")
    assert "NOT kept" in (tmp_path / "c03" / "2-decode.sh").read_text()


def test_nothing_is_overwritten(night: Path, tmp_path: Path) -> None:
    """A folder with anything in it is refused."""
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(InputError, match="is not empty"):
        export_configuration(night, tmp_path, None)
    assert (tmp_path / "mine").read_text() == "precious"


def test_an_unknown_card_names_those_that_exist(night: Path, tmp_path: Path) -> None:
    """One line that lists what may be asked for."""
    with pytest.raises(InputError, match="names 0 cards; there are start, c01"):
        export_configuration(night, tmp_path / "x", "c99")


def test_two_bundles_of_one_study_are_the_same_bytes(night: Path, tmp_path: Path) -> None:
    """A reviewer can compare them; the manifest has the hash of every raw file."""
    export_bundle(night, tmp_path / "one.tar.gz")
    export_bundle(night, tmp_path / "two.tar.gz")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        names = archive.getnames()
        manifest_name = next(name for name in names if name.endswith("/artifacts.json"))
        member = archive.extractfile(manifest_name)
        assert member is not None
        manifest = json.load(member)
    assert any(name.endswith("/ledger/index.html") for name in names)
    assert manifest["simulated"] is True
    assert manifest["artifacts"]
    assert all(len(item["sha256"]) == 64 for item in manifest["artifacts"])
    with pytest.raises(InputError, match="exists; name a new file"):
        export_bundle(night, tmp_path / "one.tar.gz")


def test_choose_answers_from_the_records(night: Path) -> None:
    """The kept configuration has the most throughput; what breaks a constraint is named with its reason."""
    text = describe_choice(night, "output_tok_s_per_card", None)
    assert text.splitlines()[0].endswith("(SIMULATED pool), N=640, native window")
    assert text.splitlines()[1].startswith("for output_tok_s_per_card: c01-prefill-max-requests-2, kept")
    short = describe_choice(night, "output_tok_s_per_card", 320)
    assert "not confirmed" in short.splitlines()[0]
    assert "the goal asks tpot_mean < 20 ms" in short


def test_choose_refuses_a_figure_that_the_study_does_not_have(night: Path) -> None:
    """The figures that exist are listed."""
    with pytest.raises(InputError, match="not among the figures of this study: output_tok_s_per_card"):
        describe_choice(night, "beauty", None)
