"""The language model behind one small port. `openai_call` and `openai_chat` are the only home of openai.

Importing this package stays cheap: the SDK (0.6 s) is loaded when an endpoint is configured, not before.
"""

from agent.llm.build import build_chat_model
from agent.llm.chat import ChatModel, ChatUnavailable, Message, Reply, Rung
from agent.llm.recording import RecordedModel, RecordingModel
from agent.llm.scripted import ScriptedModel

__all__ = [
    "ChatModel",
    "ChatUnavailable",
    "Message",
    "RecordedModel",
    "RecordingModel",
    "Reply",
    "Rung",
    "ScriptedModel",
    "build_chat_model",
]
