"""One HTTP call of the openai SDK, within a total deadline. With `openai_chat` the only home of openai.

The SDK's own time-out is per read, so a server that drips a byte would hold us for ever; its hidden retries are off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx2  # the transport of openai 3; its errors come through unwrapped while a body is read
import openai
from pydantic import SecretStr

MAX_BODY_BYTES = 4 * 1024 * 1024

# Its INFO line names the host of the endpoint, once a call.
logging.getLogger("httpx2").setLevel(logging.WARNING)


@dataclass(frozen=True, kw_only=True)
class OpenAIEndpoint:
    """Where and how. Prices are per million tokens."""

    base_url: str
    model: str
    api_key: SecretStr | None = None
    timeout_s: float = 180.0
    max_output_tokens: int | None = None
    temperature: float | None = None
    price_in: float | None = None
    price_out: float | None = None


def fetch_reply(endpoint: OpenAIEndpoint, request: Mapping[str, object], seconds: float) -> bytes:
    """The body of one chat completion. Raises TimeoutError, or errors of openai and httpx2 as they come."""
    return _run(_read_reply(endpoint, request, seconds))


async def _read_reply(endpoint: OpenAIEndpoint, request: Mapping[str, object], seconds: float) -> bytes:
    key = endpoint.api_key.get_secret_value() if endpoint.api_key else "none"
    # A redirect would carry the prompt to another host; a proxy of the shell has no business with loopback.
    transport = httpx2.AsyncClient(
        timeout=seconds, follow_redirects=False, trust_env=not _is_loopback(endpoint.base_url)
    )
    options: dict[str, Any] = {"model": endpoint.model, **request}
    if endpoint.max_output_tokens is not None:
        options["max_tokens"] = endpoint.max_output_tokens
    if endpoint.temperature is not None:
        options["temperature"] = endpoint.temperature
    async with (
        asyncio.timeout(seconds),
        openai.AsyncOpenAI(
            base_url=endpoint.base_url, api_key=key, max_retries=0, timeout=seconds, http_client=transport
        ) as client,
    ):
        client.organization = client.project = None  # taken from the shell otherwise, and sent to anyone
        async with client.chat.completions.with_streaming_response.create(**options) as response:
            return await _read_capped(response.iter_bytes())


async def _read_capped(chunks: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise openai.OpenAIError(f"the reply exceeds {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _run(work: Coroutine[Any, Any, bytes]) -> bytes:
    """asyncio.run without its wait for a name look-up that hangs: that wait has no limit."""
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(work)
        try:
            return loop.run_until_complete(task)
        finally:
            if not task.done():  # interrupted: let it close its connection
                task.cancel()
                loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
