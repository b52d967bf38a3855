"""An OpenAI-compatible server around the batch engine: protocol, app (HTTP), worker (the one thread that steps)."""

from llmlesson.server.server import Server

__all__ = ["Server"]
