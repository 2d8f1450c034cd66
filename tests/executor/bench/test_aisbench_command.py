from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from executor.bench.aisbench import CONFIG_NAME, compile_aisbench
from executor.bench.client_run import ClientLoad
from experiments.errors import InputError


def _load(**changes: Any) -> ClientLoad:
    known = {
        "experiment_id": "study-7.trial-3",
        "requests": 640,
        "concurrency": 128,
        "rate_per_s": 6.0,
        "seed": 42,
        "output_tokens": 1024,
        "tokenizer_path": "/models/flash",
        "served_model": "flash",
        "router_host": "127.0.0.1",
        "router_port": 8000,
        "dataset_file": "/data/sets/abc/measure.jsonl",
        "result_dir": "/work/trials/t3/measure-1",
    }
    return ClientLoad(**{**known, **changes})


@pytest.fixture
def ais_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of AISBench's names, so that a generated configuration runs as it does there."""
    names = {
        "models": ("VLLMCustomAPIChat",),
        "datasets": ("CustomDataset",),
        "openicl.icl_inferencer": ("GenInferencer",),
        "openicl.icl_prompt_template": ("PromptTemplate",),
        "openicl.icl_retriever": ("ZeroRetriever",),
    }
    for path in ("ais_bench", "ais_bench.benchmark", "ais_bench.benchmark.openicl"):
        monkeypatch.setitem(sys.modules, path, ModuleType(path))
    for path, classes in names.items():
        module = ModuleType(f"ais_bench.benchmark.{path}")
        for name in classes:
            setattr(module, name, SimpleNamespace(name=name))
        monkeypatch.setitem(sys.modules, module.__name__, module)


def _configs(load: ClientLoad) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for content in compile_aisbench(load).files_to_upload.values():
        exec(content.decode(), found)
    return found


@pytest.mark.usefixtures("ais_bench")
def test_the_generated_configurations_say_the_load_and_nothing_else() -> None:
    """Run as Python, as AISBench does, they hold the load, one attempt per request, and no secret."""
    found = _configs(_load())
    (model,), (dataset,) = found["models"], found[f"{CONFIG_NAME}_datasets"]
    assert (
        model["batch_size"],
        model["request_rate"],
        model["max_out_len"],
        model["retry"],
        model["api_key"],
    ) == (128, 6.0, 1024, 1, "")
    assert (model["host_ip"], model["host_port"], model["url"], model["stream"]) == ("127.0.0.1", 8000, "", True)
    assert model["generation_kwargs"] == {"temperature": 0.0, "ignore_eos": True}
    assert dataset["path"] == "/data/sets/abc/measure.jsonl"
    assert dataset["infer_cfg"]["prompt_template"]["template"] == "{question}"


@pytest.mark.usefixtures("ais_bench")
@pytest.mark.parametrize(
    ("host", "host_ip", "url"),
    [
        ("10.0.0.7", "10.0.0.7", ""),
        ("localhost", "localhost", ""),
        ("router.example", "localhost", "http://router.example:8000/"),
    ],
)
def test_a_host_name_goes_into_the_url_since_host_ip_takes_addresses_only(host: str, host_ip: str, url: str) -> None:
    """AISBench refuses a DNS name in `host_ip`."""
    (model,) = _configs(_load(router_host=host))["models"]
    assert (host_ip, url) == (model["host_ip"], model["url"])


@pytest.mark.usefixtures("ais_bench")
def test_text_of_a_card_stays_data_in_the_configuration() -> None:
    """A model name that looks like code is a string literal, whatever it holds."""
    name = '"); import os; os.abort(); ("'
    (model,) = _configs(_load(served_model=name))["models"]
    assert model["model"] == name


def test_the_command_sends_no_warm_up_from_the_measured_rows() -> None:
    """Its own warm-up would put rows of the data set into the prefix cache."""
    run = compile_aisbench(_load(requests=320))
    pairs = dict(zip(run.argv[1::2], run.argv[2::2], strict=True))
    assert run.argv[0] == "ais_bench"
    assert (
        pairs["--num-warmups"],
        pairs["--num-prompts"],
        pairs["--mode"],
        pairs["--summarizer"],
    ) == ("0", "320", "perf", "default_perf")
    assert pairs["--work-dir"].startswith("/work/trials/t3/measure-1/")
    assert all(path.startswith(pairs["--config-dir"]) for path in run.files_to_upload)
    assert run.env["NO_PROXY"] == "*"


def test_an_unlimited_rate_is_no_pacing() -> None:
    """AISBench spells it 0."""
    content = b"".join(compile_aisbench(_load(rate_per_s=None)).files_to_upload.values())
    assert b"request_rate=0," in content


def test_the_same_load_compiles_to_the_same_bytes() -> None:
    """A resumed stage recognises its own command."""
    assert compile_aisbench(_load()) == compile_aisbench(_load())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"result_dir": "/work/two words"}, "without blanks"),
        ({"result_dir": "relative"}, "absolute"),
        ({"dataset_file": "/data/../etc/passwd"}, r"or \.\."),
        ({"tokenizer_path": "/models/$(reboot)"}, "quotes"),
        ({"experiment_id": "a b"}, "experiment id"),
        ({"experiment_id": "../up"}, "experiment id"),
        ({"concurrency": 0}, "start at 1"),
    ],
)
def test_paths_that_a_shell_would_read_are_refused(changes: dict[str, Any], says: str) -> None:
    """AISBench itself passes its paths through a shell."""
    with pytest.raises(InputError, match=says):
        _load(**changes)


def test_a_load_without_frozen_data_is_refused() -> None:
    """AISBench's own synthetic data is drawn anew in every run."""
    with pytest.raises(ValueError, match="not seeded"):
        compile_aisbench(_load(dataset_file=None))
