"""The environment: what is read, what is refused, and what never shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.llm import RecordingModel, build_chat_model
from agent.llm.openai_chat import OpenAIChatModel
from agent.settings import Settings, read_settings
from experiments.errors import InputError
from tests.agent.llm import fake_endpoint as fake
from tests.agent.llm.fake_endpoint import SmallAnswer, serving
from tests.agent.llm.test_openai_chat import ANSWER, ASK


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("TUNELOOP_"):
            monkeypatch.delenv(name)
    for name in ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "true")


def setenv(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"TUNELOOP_LLM_{name}", value)


def test_nothing_set_means_no_model() -> None:
    """Without an endpoint the planner is not built; empty variables count as unset."""
    assert build_chat_model(read_settings()) is None


def test_tracing_is_off_whatever_the_shell_says() -> None:
    """langsmith would send run state to a service."""
    read_settings()
    assert {"false"} == {os.environ[name] for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2")}


def test_settings_build_a_model_that_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Key from a file, prices, recording: as an operator would set them."""
    key = tmp_path / "key"
    key.write_text("sk-from-file\n")
    with serving(fake.full) as endpoint:
        setenv(monkeypatch, BASE_URL=endpoint.url + "/", MODEL="m", API_KEY_FILE=str(key))
        setenv(monkeypatch, TOKEN_PRICE_IN="2", TOKEN_PRICE_OUT="10", RECORD_DIR=str(tmp_path / "said"))
        model = build_chat_model(read_settings())
        assert isinstance(model, RecordingModel)
        reply = model.complete(ASK, SmallAnswer)
    assert reply.parsed == ANSWER
    assert reply.cost == pytest.approx(92e-6)
    assert endpoint.heard[0].headers["authorization"] == "Bearer sk-from-file"
    assert endpoint.heard[0].path == "/v1/chat/completions"
    (recording,) = (tmp_path / "said").iterdir()
    assert b"sk-from-file" not in recording.read_bytes()


def test_plain_model_without_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder, no recorder."""
    setenv(monkeypatch, BASE_URL="http://127.0.0.1:9/v1", MODEL="m")
    assert isinstance(build_chat_model(read_settings()), OpenAIChatModel)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"BASE_URL": "http://127.0.0.1/v1"}, "go together"),
        ({"MODEL": "m"}, "go together"),
        ({"BASE_URL": "127.0.0.1/v1", "MODEL": "m"}, "TUNELOOP_LLM_BASE_URL: write an http or https URL"),
        ({"BASE_URL": "file:///etc/passwd", "MODEL": "m"}, "TUNELOOP_LLM_BASE_URL"),
        ({"BASE_URL": "http://u:canary@127.0.0.1/v1", "MODEL": "m"}, "no user, password"),
        ({"BASE_URL": "http://127.0.0.1/v1?key=canary", "MODEL": "m"}, "no user, password"),
        ({"BASE_URL": "http://[::1/v1", "MODEL": "m"}, "TUNELOOP_LLM_BASE_URL"),
        ({"TIMEOUT_S": "soon canary"}, "TUNELOOP_LLM_TIMEOUT_S: Input should be a valid number"),
        ({"TIMEOUT_S": "0"}, "TUNELOOP_LLM_TIMEOUT_S"),
        ({"TIMEOUT_S": "nan"}, "TUNELOOP_LLM_TIMEOUT_S"),
        ({"MAX_OUTPUT_TOKENS": "1"}, "TUNELOOP_LLM_MAX_OUTPUT_TOKENS"),
        ({"TOKEN_PRICE_IN": "1"}, "go together"),
        ({"API_KEY": "canary", "API_KEY_FILE": "/x"}, "not both"),
        ({"MODLE": "canary"}, "TUNELOOP_LLM_MODLE is not a setting; did you mean TUNELOOP_LLM_MODEL"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_variable_is_named_and_its_value_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], words: str
) -> None:
    """One line, for exit code 2; a secret in a wrong place stays unseen."""
    setenv(monkeypatch, **values)
    with pytest.raises(InputError) as caught:
        read_settings()
    assert words in str(caught.value)
    assert "canary" not in repr(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("content", [b"", b"  \n", b"two words", b"two\nlines", b"\xff\xfe", b"x" * 5000, b"a\x00b"])
def test_file_that_holds_no_key_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes) -> None:
    """An empty, binary or long file is not sent as a key."""
    key = tmp_path / "key"
    key.write_bytes(content)
    setenv(monkeypatch, BASE_URL="http://127.0.0.1:9/v1", MODEL="m", API_KEY_FILE=str(key))
    with pytest.raises(InputError, match="must hold one API key"):
        build_chat_model(read_settings())


def test_missing_key_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message says which file."""
    setenv(monkeypatch, BASE_URL="http://127.0.0.1:9/v1", MODEL="m", API_KEY_FILE=str(tmp_path / "none"))
    with pytest.raises(InputError, match="none: the API key cannot be read: No such file"):
        build_chat_model(read_settings())


def test_settings_are_frozen_and_hide_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """repr, str and dumps show stars."""
    setenv(monkeypatch, BASE_URL="http://127.0.0.1:9/v1", MODEL="m", API_KEY="sk-canary")
    settings = read_settings()
    assert "canary" not in f"{settings!r} {settings} {settings.model_dump_json()}"
    with pytest.raises(ValueError, match="frozen"):
        settings.llm_model = "other"  # type: ignore[misc]


def test_importing_the_port_does_not_load_the_sdk() -> None:
    """The command line stays quick: openai is loaded only where an endpoint is configured."""
    import subprocess
    import sys

    check = "import sys, agent.llm, agent.settings, agent.planner.llm_proposer; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_settings_can_be_made_in_code() -> None:
    """Tests and the demonstration build them without an environment."""
    assert Settings(llm_timeout_s=30).llm_timeout_s == 30.0
