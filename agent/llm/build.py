"""Makes the chat model that the settings ask for, or none."""

from __future__ import annotations

from agent.llm.chat import ChatModel
from agent.llm.recording import RecordingModel
from agent.settings import Settings
from executor.clock import Clock, SystemClock


def build_chat_model(settings: Settings, clock: Clock | None = None) -> ChatModel | None:
    """None without an endpoint: the loop then runs on rules and optimizer alone."""
    if settings.llm_base_url is None or settings.llm_model is None:
        return None
    from agent.llm.openai_call import OpenAIEndpoint
    from agent.llm.openai_chat import OpenAIChatModel

    clock = clock or SystemClock()
    endpoint = OpenAIEndpoint(
        base_url=settings.llm_base_url,
        model=settings.llm_model,
        api_key=settings.read_api_key(),
        timeout_s=settings.llm_timeout_s,
        max_output_tokens=settings.llm_max_output_tokens,
        temperature=settings.llm_temperature,
        price_in=settings.llm_token_price_in,
        price_out=settings.llm_token_price_out,
    )
    model: ChatModel = OpenAIChatModel(endpoint, clock)
    if settings.llm_record_dir is not None:
        return RecordingModel(model, settings.llm_record_dir, clock)
    return model
