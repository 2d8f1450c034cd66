"""Questions to the installed engine, asked of small installations that are built for the test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from executor.engines import host_check
from executor.engines.host_check import Reach, compile_admission_question, judge_admission, judge_arguments
from executor.engines.sglang_launch import ServerPlacement, compile_server_launch
from executor.engines.violation import Workload
from experiments.serving_config import Path as SettingPath
from experiments.serving_config import Role, ServingConfig
from tests.executor.engines.field_samples import REAL, field_text

PROGRAMS = Path(host_check.__file__).parent / "on_host"
BASELINE = ServingConfig(
    settings={
        "prefill.flag.tp-size": 16,
        "prefill.flag.dp-size": 8,
        "prefill.flag.enable-dp-attention": True,
        "prefill.flag.chunked-prefill-size": 65536,
        "prefill.flag.device": "npu",
        "prefill.flag.prefill-max-requests": 1,
    }
)
CAP_2 = BASELINE.with_value(SettingPath.parse("prefill.flag.prefill-max-requests"), 2)
LOAD_16K = Workload(prompt_tokens=16388, output_tokens=1024)

# An admission module of our own in the shape of the installed one, with its imports; GATE switches the old extra test.
POLICY = """
from enum import Enum, auto
import torch
from sglang.srt.environ import envs
from sglang.srt.mem_cache.radix_cache import RadixCache
GATE = {gate}

class AddReqResult(Enum):
    CONTINUE = auto()
    NO_TOKEN = auto()
    OTHER = auto()

class PrefillAdder:
    def __init__(self, page_size, tree_cache, token_to_kv_pool_allocator, running_batch, new_token_ratio,
                 rem_input_tokens, rem_chunk_tokens, prefill_max_requests=None):
        self.page, self.cache, self.cap = page_size, tree_cache, prefill_max_requests
        self.input, self.chunk = rem_input_tokens, rem_chunk_tokens
        self.can_run_list, self.new_chunked_req = [], None

    def ceil(self, tokens):
        return -(-tokens // self.page) * self.page

    def budget_state(self):
        full = self.cap is not None and len(self.can_run_list) >= self.cap
        return AddReqResult.OTHER if full or self.input <= 0 or self.chunk <= 0 else AddReqResult.CONTINUE

    def take(self, req, tokens):
        req.set_extend_input_len(tokens)
        self.can_run_list.append(req)
        self.input -= self.ceil(tokens)
        self.chunk -= self.ceil(tokens)

    def add_chunked_req(self, req):
        whole = req.extend_input_len
        self.take(req, min(whole, self.chunk))
        return req if req.extend_input_len < whole else None

    def add_one_req(self, req, has_chunked_req, truncation_align_size):
        need = req.extend_input_len
        if GATE and not self.cache.disable and self.can_run_list and self.ceil(need) >= self.input:
            return AddReqResult.OTHER
        if self.ceil(need) > self.chunk:
            need = self.chunk // self.page * self.page
            if need <= 0:
                return AddReqResult.OTHER
            self.new_chunked_req = req
        self.take(req, need)
        return self.budget_state()
"""


def install(root: Path, files: dict[str, str]) -> None:
    for name, text in {"version.py": "__version__ = '0.5.99'\n", "__init__.py": "", **files}.items():
        path = root / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def ask(program: str, root: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, str(PROGRAMS / program), *arguments],
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ran.stdout


def admission_answer(root: Path, before: ServingConfig, after: ServingConfig, requests: int = 320) -> str:
    question = compile_admission_question(before, after, Role.PREFILL, LOAD_16K, requests)
    assert question is not None
    return ask(host_check.ADMISSION_PROGRAM, root, question)


def test_a_cap_of_two_is_reachable_in_a_build_without_the_gate(tmp_path: Path) -> None:
    """320 requests over 8 ranks: 120 batches become 81, tokens conserved, lone tails gone."""
    install(tmp_path, {"srt/managers/schedule_policy.py": POLICY.format(gate=False)})
    verdict = judge_admission(admission_answer(tmp_path, BASELINE, CAP_2))
    assert (verdict.reach, verdict.release) == (Reach.REACHABLE, "0.5.99")
    assert verdict.before is not None
    assert verdict.after is not None
    assert (verdict.before.batches, verdict.after.batches) == (120, 81)
    assert verdict.before.first[:3] == ((8192,), (8192,), (4,))
    assert verdict.after.first[2:5] == ((4, 8064), (8192,), (132, 7936))
    assert "says nothing about speed" in verdict.message


def test_the_whole_load_on_one_rank_makes_960_and_645_batches(tmp_path: Path) -> None:
    """The record's own arithmetic, from the admission loop."""
    install(tmp_path, {"srt/managers/schedule_policy.py": POLICY.format(gate=False)})
    verdict = judge_admission(admission_answer(tmp_path, BASELINE, CAP_2, requests=320 * 8))
    assert "960 → 645 prefill batches" in verdict.message


def test_a_cap_of_two_does_nothing_in_a_build_with_the_gate(tmp_path: Path) -> None:
    """The default max-prefill-tokens keeps the second request out."""
    install(tmp_path, {"srt/managers/schedule_policy.py": POLICY.format(gate=True)})
    verdict = judge_admission(admission_answer(tmp_path, BASELINE, CAP_2))
    assert verdict.reach is Reach.NOT_REACHABLE
    assert verdict.message.startswith("mechanism not reachable in this build: 120 → 120")
    wide = CAP_2.with_value(SettingPath.parse("prefill.flag.max-prefill-tokens"), 24704)
    assert judge_admission(admission_answer(tmp_path, BASELINE, wide)).reach is Reach.REACHABLE


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "FileNotFoundError"),
        ({"srt/managers/schedule_policy.py": "class PrefillAdder:\n    pass\n"}, "no prefill-max-requests"),
        ({"srt/managers/schedule_policy.py": "def broken(:\n"}, "SyntaxError"),
        (
            {
                "srt/managers/schedule_policy.py": POLICY.format(gate=False).replace(
                    "return req if req.extend_input_len < whole else None", "return None"
                )
            },
            "not conserved",
        ),
    ],
)
def test_a_build_that_cannot_be_asked_is_unknown_with_its_reason(
    tmp_path: Path, files: dict[str, str], reason: str
) -> None:
    """No answer is neither yes nor no."""
    install(tmp_path, files)
    verdict = judge_admission(admission_answer(tmp_path, BASELINE, CAP_2))
    assert verdict.reach is Reach.UNKNOWN
    assert reason in verdict.message


def test_without_prompt_or_chunk_there_is_no_question() -> None:
    """Chunking off or an open prompt length: nothing to count."""
    off = ServingConfig(settings={"prefill.flag.chunked-prefill-size": -1})
    assert compile_admission_question(off, off, Role.PREFILL, LOAD_16K, 320) is None
    assert compile_admission_question(BASELINE, CAP_2, Role.PREFILL, Workload(), 320) is None


SERVER_ARGS = """
import argparse, json, pathlib

class DeprecatedStoreTrueAction(argparse._StoreTrueAction):
    pass

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        for line in pathlib.Path(__file__).with_name("options.jsonl").read_text().splitlines():
            option = json.loads(line)
            flags = [flag for flag in option["opt"] if flag not in ("-h", "--help")]
            if not flags:
                continue
            keywords = {"dest": option["dest"], "default": None}
            if option["act"].startswith("Deprecated"):
                parser.add_argument(*flags, action=DeprecatedStoreTrueAction, **keywords)
            elif option["nargs"] == 0:
                parser.add_argument(*flags, action="store_true", **keywords)
            else:
                kinds = {"int": int, "float": float}
                keywords.update(nargs=option["nargs"], type=kinds.get(option["type"], str), choices=option["choices"])
                parser.add_argument(*flags, **keywords)
"""


def install_parser(root: Path, options: str) -> None:
    install(root, {"srt/server_args.py": SERVER_ARGS, "srt/__init__.py": "", "srt/options.jsonl": options})


def option(*flags: str, nargs: int | str | None = None, act: str = "_StoreAction", kind: str = "str") -> str:
    dest = flags[0].lstrip("-").replace("-", "_")
    return json.dumps({"opt": list(flags), "dest": dest, "type": kind, "nargs": nargs, "choices": None, "act": act})


def test_the_installed_parser_accepts_or_says_why_not(tmp_path: Path) -> None:
    """A removed flag is an error before launch, in the parser's own words; a deprecated one is named."""
    old = option("--disable-cuda-graph", nargs=0, act="DeprecatedStoreTrueAction")
    install_parser(tmp_path, "\n".join([option("--tp-size", kind="int"), old]))
    accepted = judge_arguments(ask(host_check.ARGUMENT_PROGRAM, tmp_path, "--tp-size", "2", "--disable-cuda-graph"))
    assert (accepted.accepted, accepted.deprecated) == (True, ("--disable-cuda-graph",))
    refused = judge_arguments(ask(host_check.ARGUMENT_PROGRAM, tmp_path, "--tp-size", "two"))
    assert (refused.accepted, refused.message) == (False, "argument --tp-size: invalid int value: 'two'")
    removed = judge_arguments(ask(host_check.ARGUMENT_PROGRAM, tmp_path, "--prefill-round-robin-balance"))
    assert removed.message == "unrecognized arguments: --prefill-round-robin-balance"


def test_an_installation_without_a_parser_is_not_a_refusal(tmp_path: Path) -> None:
    """It could not be asked: neither accepted nor refused."""
    install(tmp_path, {})
    verdict = judge_arguments(ask(host_check.ARGUMENT_PROGRAM, tmp_path, "--tp-size", "2"))
    assert verdict.accepted is None
    assert "ModuleNotFoundError" in verdict.message


def test_the_options_of_a_real_release_accept_our_launch_and_refuse_old_names(tmp_path: Path) -> None:
    """All 532 options of 0.5.23: our rendering parses; the renamed graph flag is ambiguous there."""
    install_parser(tmp_path, field_text("server_args_0523.jsonl", REAL))
    launch = compile_server_launch(
        CAP_2, Role.PREFILL, ServerPlacement(host="10.0.0.1", port=8000, bootstrap_port=8998)
    )
    words = ("--model-path", "m", *launch.arguments)
    assert judge_arguments(ask(host_check.ARGUMENT_PROGRAM, tmp_path, *words)).accepted is True
    renamed = judge_arguments(ask(host_check.ARGUMENT_PROGRAM, tmp_path, *words, "--cuda-graph-bs", "2", "4"))
    assert renamed.accepted is False
    assert renamed.message.startswith("ambiguous option: --cuda-graph-bs could match")


@pytest.mark.parametrize(
    "answer", ["", "warning only\n", "{broken\n", "[1]\n", '{"counts": [1, 2]}\n', '{"counts": "x"}\n']
)
def test_any_other_answer_is_unknown(answer: str) -> None:
    """Host output is untrusted and never an error of ours."""
    assert judge_admission(answer).reach is Reach.UNKNOWN
    assert judge_arguments(answer).accepted is None
