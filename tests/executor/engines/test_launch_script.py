"""Import of existing launch scripts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.engines.flags import render_value
from executor.engines.launch_script import FindingKind, LaunchScript, parse_launch_script
from executor.engines.script_import import ImportedScript, import_settings
from executor.engines.sglang_launch import ServerPlacement, compile_server_launch
from experiments.errors import InputError
from experiments.serving_config import Role
from tests.executor.engines.field_samples import FIELD, field_text

PAIR = r"""#!/bin/bash
set -u
export HCCL_BUFFSIZE=800   # both sides
MODEL_PATH=/data/models/r1
EXTRA="--max-running-requests 384 --mem-fraction-static=0.79"
if [[ "$ROLE" == "prefill" ]]; then
    export HCCL_BUFFSIZE="3500"
    python3 -m sglang.launch_server --model-path ${MODEL_PATH} --disaggregation-mode prefill \
        --host "$HOST" --port 8000 --tp 16 \
        --chunked_prefill_size -1   --disable-radix-cache > "logs/p 1.log" 2>&1 &
else
    export TASK_QUEUE_ENABLE=1
    HCCL_OP_EXPANSION_MODE=AIV nohup python3 -m sglang.launch_server --model-path $MODEL_PATH \
        --disaggregation-mode decode --max-running-requests 416 --cuda-graph-bs 2 4 8 \
        --json-model-override-args '{"a": "b c"}' $EXTRA --tp-size 16 --tp-size 16
fi
python -m sglang_router.launch_router --policy cache_aware --pd-disaggregation
python3 -m sglang.bench_serving --num-prompts 5
"""


def imported(text: str) -> ImportedScript:
    return import_settings(parse_launch_script(text, "run.sh"))


def found(result: ImportedScript, kind: FindingKind) -> list[str]:
    return [finding.subject for finding in result.findings if finding.kind is kind]


def test_a_script_with_a_branch_per_role_becomes_one_configuration() -> None:
    """Each role has its own flags and environment; what one branch exports does not reach the other."""
    assert dict(imported(PAIR).config.settings) == {
        "prefill.env.HCCL_BUFFSIZE": 3500,
        "prefill.flag.chunked-prefill-size": -1,
        "prefill.flag.disable-radix-cache": True,
        "prefill.flag.model-path": "/data/models/r1",
        "prefill.flag.tp-size": 16,
        "decode.env.HCCL_BUFFSIZE": 800,
        "decode.env.HCCL_OP_EXPANSION_MODE": "AIV",
        "decode.env.TASK_QUEUE_ENABLE": 1,
        "decode.flag.cuda-graph-bs": "2 4 8",
        "decode.flag.json-model-override-args": '{"a": "b c"}',
        "decode.flag.max-running-requests": 384,
        "decode.flag.mem-fraction-static": 0.79,
        "decode.flag.model-path": "/data/models/r1",
        "decode.flag.tp-size": 16,
        "router.env.HCCL_BUFFSIZE": 800,  # exported above both branches, so it reaches the router too
        "router.flag.policy": "cache_aware",
    }


def test_every_override_repetition_alias_and_omission_is_reported() -> None:
    """Nothing is dropped or won over in silence."""
    result = imported(PAIR)
    assert found(result, FindingKind.FLAG_OVERRIDDEN) == ["decode.flag.max-running-requests"]
    assert found(result, FindingKind.FLAG_REPEATED) == ["decode.flag.tp-size"]
    assert found(result, FindingKind.ENV_OVERRIDDEN) == ["prefill.env.HCCL_BUFFSIZE"]
    assert set(found(result, FindingKind.ALIAS)) == {"prefill.flag.tp-size", "prefill.flag.chunked-prefill-size"}
    assert found(result, FindingKind.OTHER_PROGRAM) == ["python3 -m sglang.bench_serving"]
    assert "prefill.flag.host" in found(result, FindingKind.PLACED_BY_POOL)


def test_findings_stand_at_their_lines() -> None:
    """A person can go to the place."""
    lines = {finding.kind: finding.line for finding in imported(PAIR).findings}
    assert lines[FindingKind.ENV_OVERRIDDEN] == 7
    assert lines[FindingKind.OTHER_PROGRAM] == 18


def test_what_only_a_shell_knows_is_reported_and_left_out() -> None:
    """A variable of the outside, a command's output, a sourced file."""
    result = imported(
        "source /usr/local/set_env.sh\n"
        "export NIC=$(ip route | awk '{print $5}')\n"
        "python3 -m sglang.launch_server --served-model-name $NAME --random-seed $((40 + 2)) --tp-size 2\n"
    )
    assert dict(result.config.settings) == {"mixed.flag.tp-size": 2}
    assert set(found(result, FindingKind.UNRESOLVED)) == {
        "mixed.env.NIC",
        "mixed.flag.served-model-name",
        "mixed.flag.random-seed",
    }
    assert found(result, FindingKind.SOURCED) == ["/usr/local/set_env.sh"]


def test_a_case_statement_and_functions_are_branches() -> None:
    """Exports of one case do not reach the next; a loop is no obstacle."""
    result = imported(
        'case "$1" in\n'
        "  prefill)\n    export A=1\n"
        "    python3 -m sglang.launch_server --disaggregation-mode prefill --tp-size 2 ;;\n"
        "  decode)\n    export B=2\n"
        "    python3 -m sglang.launch_server --disaggregation-mode decode --tp-size 2 ;;\n"
        "esac\n"
    )
    assert dict(result.config.settings) == {
        "prefill.env.A": 1,
        "prefill.flag.tp-size": 2,
        "decode.env.B": 2,
        "decode.flag.tp-size": 2,
    }


def test_unset_and_here_documents() -> None:
    """An unset variable is gone; the text of a here-document starts nothing."""
    result = imported(
        "export http_proxy=http://x A=1\nunset http_proxy\ncat <<EOF > f\n"
        "python3 -m sglang.launch_server --tp-size 99\nEOF\npython3 -m sglang.launch_server --tp-size 2\n"
    )
    assert dict(result.config.settings) == {"mixed.env.A": 1, "mixed.flag.tp-size": 2}


def test_a_second_server_of_the_same_role_is_reported() -> None:
    """The first is taken, the other named."""
    line = "python3 -m sglang.launch_server --tp-size {}\n"
    result = imported(line.format(2) + line.format(4))
    assert dict(result.config.settings) == {"mixed.flag.tp-size": 2}
    assert found(result, FindingKind.SECOND_COMMAND) == ["python3 -m sglang.launch_server"]


@pytest.mark.parametrize("text", ["export A='never closed\n", 'echo "x\n', "echo $(date\n", "echo ${X\n", "echo `x\n"])
def test_an_unterminated_quote_is_an_input_error_with_its_line(text: str) -> None:
    """A broken script is told where it is broken."""
    with pytest.raises(InputError, match=r"run\.sh:2:0: .* never closed"):
        parse_launch_script("# first line\n" + text, "run.sh")


def test_a_huge_script_is_refused() -> None:
    """A launch script is a few kilobytes."""
    with pytest.raises(InputError, match="larger than"):
        parse_launch_script("#" * 2_000_000)


def expectations() -> list[str]:
    path = FIELD / "launch" / "expected.json"
    return sorted(json.loads(path.read_text())) if path.is_file() else []


def of_sample(key: str) -> tuple[LaunchScript, dict[str, object]]:
    name = f"launch/{key.rpartition('/')[2]}"
    expected = json.loads(field_text("launch/expected.json"))[key]
    return parse_launch_script(field_text(name), name), expected


@pytest.mark.parametrize("key", expectations())
def test_stored_scripts_read_as_their_index_says(key: str) -> None:
    """Programs, effective flags, duplicates and environment of real scripts."""
    script, expected = of_sample(key)
    if "commands" not in expected:
        assert list(script.commands[0].repeated_flags()) == expected["duplicates"]
        return
    assert [
        {
            "program": command.program,
            "flags_effective": command.effective_flags(),
            "duplicates": list(command.repeated_flags()),
        }
        for command in script.commands
    ] == expected["commands"]
    values: dict[str, list[str]] = {}
    for assignment in script.assignments:
        values.setdefault(assignment.name, []).append(assignment.value)
    assert {name: all_values[-1] for name, all_values in values.items()} == expected["env_last"]
    repeated = {name: all_values for name, all_values in values.items() if len(all_values) > 1}
    assert repeated == expected["env_set_more_than_once"]


@pytest.mark.parametrize("key", expectations())
def test_an_imported_script_can_be_launched(key: str) -> None:
    """What was imported renders again, without any word of a shell in it."""
    script, _ = of_sample(key)
    config = import_settings(script).config
    for role in (Role.PREFILL, Role.DECODE, Role.MIXED):
        launch = compile_server_launch(config, role, ServerPlacement(host="h", port=1))
        assert not [word for word in (*launch.arguments, *launch.env.values()) if "$" in word]


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """An untrusted file is an import or an input error, never another exception."""
    try:
        import_settings(parse_launch_script(text))
    except InputError:
        return


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=30))
def test_a_single_quoted_value_arrives_as_it_is(value: str) -> None:
    """Quoting protects every character."""
    quoted = "'" + value.replace("'", "'\\''") + "'"
    script = parse_launch_script(f"python3 -m sglang.launch_server --served-model-name={quoted}\n")
    if value.strip():
        assert script.commands[0].effective_flags()["--served-model-name"] == render_value("x", value)
