from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor import host_dataset
from executor.dataset import (
    PROGRAM,
    BuildProgress,
    BuildRefused,
    DatasetBuild,
    DatasetManifest,
    DatasetSpec,
    compile_dataset,
    parse_event,
    parse_manifest,
)

TEMPLATE = "{{ bos_token }} user {{ messages[0]['content'] }} assistant reply"  # four tokens around the body
SPEC = DatasetSpec(
    tokenizer="/set/by/each/test",
    task="copy",
    requests=6,
    body_tokens=300,
    encoded_tokens=304,
    output_tokens=64,
    seed=42,
)
WARM = SPEC.model_copy(
    update={
        "prefix_tokens": 256,
        "per_request_min": 0.8,
        "seed_requests": 3,
        "check_requests": 3,
        "warm_up_requests": 2,
    }
)


class JoiningTokenizer:
    """A tokenizer that joins some neighbouring words into one token, as real merges do on re-encoding."""

    def __init__(self) -> None:
        self.vocabulary = {f"w{i}": i for i in range(500)}

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in text.split():
            number = self.vocabulary.get(word, 999)
            if ids and number % 7 == 0 and ids[-1] % 7 == 1:
                ids[-1] = 1_000 + number
            else:
                ids.append(number)
        return ids


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    vocabulary = {"<unk>": 0, "<s>": 1, "user": 2, "assistant": 3, "reply": 4} | {f"w{i}": i + 5 for i in range(800)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "bos_token": "<s>"}))
    return folder


def _compile(folder: Path, tokenizer: Path, spec: DatasetSpec) -> DatasetBuild:
    spec = spec.model_copy(update={"tokenizer": str(tokenizer)})
    return compile_dataset(spec, str(folder / "sets"), python=(sys.executable,))


def _build(folder: Path, tokenizer: Path, spec: DatasetSpec) -> tuple[int, list[object], Path]:
    """The real program in a process of its own, from the compiled command."""
    build = _compile(folder, tokenizer, spec)
    for path, content in build.files_to_upload.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)
    done = subprocess.run(build.argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, [parse_event(line) for line in done.stdout.splitlines()], Path(build.folder)


def _texts(path: Path) -> list[str]:
    return [json.loads(line)["question"] for line in path.read_text().splitlines()]


def test_every_request_encodes_to_exactly_the_promised_length(tmp_path: Path, tokenizer: Path) -> None:
    """300 tokens of body are 304 within the chat template, for every row, when encoded again."""
    code, events, folder = _build(tmp_path, tokenizer, SPEC)
    assert code == 0
    words = host_dataset.load_tokenizer(str(tokenizer))
    render = host_dataset.load_template(str(tokenizer))
    assert render is not None
    texts = _texts(folder / "measure.jsonl")
    assert {300} == {len(words.encode(text)) for text in texts}
    assert {304} == {len(words.encode(render(text))) for text in texts}
    assert len(set(texts)) == 6
    assert isinstance(events[-1], DatasetManifest)
    assert events[-1].template


def test_a_template_of_another_length_is_refused_with_the_number_to_write(tmp_path: Path, tokenizer: Path) -> None:
    """A wrong encoded length would make every prefill another one than promised."""
    code, events, _ = _build(tmp_path, tokenizer, SPEC.model_copy(update={"encoded_tokens": 310}))
    assert code == 2
    assert events == [
        BuildRefused(message="the chat template adds 4 tokens; the scenario says 10: set encoded_tokens to 304")
    ]


def test_zero_cache_requests_share_less_than_one_page(tmp_path: Path, tokenizer: Path) -> None:
    """They begin with words of their own, so that no whole page can be reused."""
    _, _, folder = _build(tmp_path, tokenizer, SPEC)
    words = host_dataset.load_tokenizer(str(tokenizer))
    encoded = [words.encode(text) for text in _texts(folder / "measure.jsonl")]
    shared = [host_dataset.common_prefix(a, b) for i, a in enumerate(encoded) for b in encoded[:i]]
    assert max(shared) < 8


def test_groups_share_their_prefix_and_nothing_else(tmp_path: Path, tokenizer: Path) -> None:
    """A formal request, its seed and its check of one group share 256 encoded tokens; groups share no page."""
    code, events, folder = _build(tmp_path, tokenizer, WARM)
    assert code == 0
    manifest = events[-1]
    assert isinstance(manifest, DatasetManifest)
    assert (manifest.shared_tokens, manifest.cacheable_tokens) == (256, 256)
    words, render = host_dataset.load_tokenizer(str(tokenizer)), host_dataset.load_template(str(tokenizer))
    assert render is not None
    encoded = {
        kind: [words.encode(render(text)) for text in _texts(folder / f"{kind}.jsonl")]
        for kind in ("measure", "seed", "check")
    }
    assert [len(rows) for rows in encoded.values()] == [6, 3, 3]
    visits = []
    for row in encoded["measure"]:
        shared = [host_dataset.common_prefix(row, seed) for seed in encoded["seed"]]
        group = shared.index(256)
        visits.append(group)
        assert host_dataset.common_prefix(row, encoded["check"][group]) == 256
        assert all(length < 8 for other, length in enumerate(shared) if other != group)
    assert sorted(visits) == [0, 0, 1, 1, 2, 2]
    everything = [tuple(row) for rows in encoded.values() for row in rows]
    assert len(set(everything)) == len(everything)


def test_a_share_lost_to_page_rounding_is_refused_before_any_row(tmp_path: Path, tokenizer: Path) -> None:
    """250 shared tokens are one page of 128: 42 %, not 82 %."""
    spec = WARM.model_copy(update={"prefix_tokens": 250})
    code, events, folder = _build(tmp_path, tokenizer, spec)
    assert code == 2
    assert isinstance(events[0], BuildRefused)
    assert "250 shared tokens are 128 in whole pages of 128: 42.1053 % of 304" in events[0].message
    assert not (folder / "measure.jsonl").exists()


def test_an_interrupted_build_ends_in_the_same_bytes(tmp_path: Path, tokenizer: Path) -> None:
    """A torn last line is cut off and the rest goes on; rows do not depend on how they came about."""
    _, _, whole = _build(tmp_path / "a", tokenizer, WARM)
    expected = (whole / "measure.jsonl").read_bytes()
    build = _compile(tmp_path / "b", tokenizer, WARM)
    partial = Path(build.folder) / "measure.jsonl.part"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(expected[: len(expected) // 2])
    code, _, resumed = _build(tmp_path / "b", tokenizer, WARM)
    assert code == 0
    assert expected == (resumed / "measure.jsonl").read_bytes()
    assert not partial.exists()
    manifest = parse_manifest((resumed / "manifest.json").read_bytes())
    assert isinstance(manifest, DatasetManifest)
    assert manifest.identity == hashlib.sha256(expected).hexdigest()


def test_a_finished_build_is_found_again(tmp_path: Path, tokenizer: Path) -> None:
    """Running it twice writes nothing anew and gives the same manifest."""
    _, first, folder = _build(tmp_path, tokenizer, SPEC)
    before = os.stat(folder / "measure.jsonl").st_mtime_ns
    _, second, _ = _build(tmp_path, tokenizer, SPEC)
    assert first[-1] == second[-1]
    assert before == os.stat(folder / "measure.jsonl").st_mtime_ns


def test_progress_is_shown_while_rows_are_written(tmp_path: Path, tokenizer: Path) -> None:
    """Every file's last row is reported, with the total of all files."""
    _, events, _ = _build(tmp_path, tokenizer, WARM)
    progress = [event for event in events if isinstance(event, BuildProgress)]
    assert [(p.part, p.done) for p in progress] == [("measure", 6), ("warm_up", 8), ("seed", 11), ("check", 14)]
    assert {14} == {p.total for p in progress}


def test_another_seed_gives_other_data(tmp_path: Path, tokenizer: Path) -> None:
    """The same seed gives the same data, which the resumed build shows."""
    one = _build(tmp_path, tokenizer, SPEC)[1][-1]
    other = _build(tmp_path, tokenizer, SPEC.model_copy(update={"seed": 43}))[1][-1]
    assert isinstance(one, DatasetManifest)
    assert isinstance(other, DatasetManifest)
    assert one.identity != other.identity


def test_rows_for_the_other_client_are_conversations(tmp_path: Path, tokenizer: Path) -> None:
    """bench_serving reads the first turn of two as the prompt."""
    _, _, folder = _build(tmp_path, tokenizer, SPEC.model_copy(update={"client": "bench_serving"}))
    rows = [json.loads(line) for line in (folder / "measure.jsonl").read_text().splitlines()]
    assert [len(row["conversations"]) for row in rows] == [2] * 6


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "cannot be read"), ('{"model": {"type": "WordLevel", "vocab": {"a": 1}}}', "fewer than three plain words")],
)
def test_a_tokenizer_that_cannot_serve_is_refused_by_name(tmp_path: Path, content: str, says: str) -> None:
    """The message names the file or what its vocabulary lacks; there is no traceback."""
    (tmp_path / "tokenizer.json").write_text(content)
    code, events, _ = _build(tmp_path, tmp_path, SPEC)
    assert code == 2
    assert isinstance(events[0], BuildRefused)
    assert says in events[0].message


@settings(deadline=None, max_examples=60)
@given(body=st.integers(40, 400), seed=st.integers(0, 10_000), task=st.sampled_from(["copy", "ordinary"]))
def test_texts_are_exact_with_a_tokenizer_that_merges_across_words(body: int, seed: int, task: str) -> None:
    """Lengths drift on re-encoding; the text is mended until it has the length, not assumed to have it."""
    spec = SPEC.model_copy(update={"body_tokens": body, "encoded_tokens": body, "seed": seed, "task": task})
    builder = host_dataset.Builder(host_dataset.complete(spec.document()), JoiningTokenizer(), None)
    assert {body} == {len(JoiningTokenizer().encode(builder.text("measure", i))) for i in range(3)}


def test_the_program_is_plain_python_3_8() -> None:
    """Hosts run whatever python3 they have."""
    ast.parse(PROGRAM.read_text(), feature_version=(3, 8))
    assert "strict=" not in PROGRAM.read_text()
