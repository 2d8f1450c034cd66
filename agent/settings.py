"""The environment, read once into frozen settings. Secrets stay in SecretStr and never show in a message.

A misspelt TUNELOOP_LLM_ variable is an error: a silent typo would send a night off without its planner.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from experiments.errors import InputError

PREFIX = "TUNELOOP_"
MAX_KEY_BYTES = 4096


class Settings(BaseSettings):
    """`TUNELOOP_<FIELD>` in the environment. Without a base URL no language model is called."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True, hide_input_in_errors=True
    )

    llm_base_url: str | None = None  # of an OpenAI-compatible endpoint, with its /v1
    llm_model: str | None = Field(default=None, min_length=1, max_length=300)
    llm_api_key: SecretStr | None = None
    llm_api_key_file: Path | None = None  # read when the model is built, not before
    llm_timeout_s: float = Field(default=180, gt=0, le=3600)  # for a whole answer, repairs and waits included
    llm_max_output_tokens: int | None = Field(default=None, ge=256)
    llm_temperature: float | None = Field(default=None, ge=0, le=2)
    llm_token_price_in: float | None = Field(default=None, ge=0)  # per million prompt tokens
    llm_token_price_out: float | None = Field(default=None, ge=0)  # per million generated tokens
    llm_prompt_chars: int = Field(default=48_000, ge=8_000, le=2_000_000)
    llm_record_dir: Path | None = None  # conversations are written here, for `tuneloop replay`

    @field_validator("llm_base_url")
    @classmethod
    def _is_endpoint(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("write an http or https URL with a host, ending in /v1 as a rule")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("no user, password, query or fragment here; a key goes into TUNELOOP_LLM_API_KEY_FILE")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _is_whole(self) -> Settings:
        if (self.llm_base_url is None) != (self.llm_model is None):
            raise ValueError("TUNELOOP_LLM_BASE_URL and TUNELOOP_LLM_MODEL go together")
        if self.llm_api_key is not None and self.llm_api_key_file is not None:
            raise ValueError("set TUNELOOP_LLM_API_KEY or TUNELOOP_LLM_API_KEY_FILE, not both")
        if (self.llm_token_price_in is None) != (self.llm_token_price_out is None):
            raise ValueError("TUNELOOP_LLM_TOKEN_PRICE_IN and TUNELOOP_LLM_TOKEN_PRICE_OUT go together")
        return self

    def read_api_key(self) -> SecretStr | None:
        """The key itself, from its file where one is named. InputError if the file does not hold one."""
        if self.llm_api_key_file is None:
            return self.llm_api_key
        return _read_key(self.llm_api_key_file)


def read_settings() -> Settings:
    """Raises InputError that names each wrong variable, never its value."""
    forbid_tracing()
    _refuse_unknown(os.environ)
    try:
        return Settings()
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise InputError("environment", 0, 0, "; ".join(_complaint(item) for item in found)) from None


def forbid_tracing() -> None:
    """langsmith comes with langgraph and would send run state to a service if the operator's shell says so."""
    for name in ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2"):
        os.environ[name] = "false"


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    for name in sorted(environment):
        if name.upper().startswith(PREFIX + "LLM_") and name.upper() not in known:
            near = get_close_matches(name.upper(), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
            raise InputError("environment", 0, 0, f"{name} is not a setting{hint}")


def _complaint(item: Mapping[str, object]) -> str:
    location, message = item["loc"], str(item["msg"]).removeprefix("Value error, ")
    names = [PREFIX + str(part).upper() for part in location] if isinstance(location, tuple) else []
    return f"{names[0]}: {message}" if names else message


def _read_key(file: Path) -> SecretStr:
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_KEY_BYTES + 1)
    except OSError as error:
        raise InputError(str(file), 0, 0, f"the API key cannot be read: {error.strerror}") from None
    text = raw.decode("ascii", errors="replace").strip()
    if not text or len(raw) > MAX_KEY_BYTES or not text.isprintable() or " " in text or "�" in text:
        raise InputError(str(file), 0, 0, "this file must hold one API key on one line and nothing else")
    return SecretStr(text)
