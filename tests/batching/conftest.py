from engine.conftest import real, tiny_pair

__all__ = ["real", "tiny_pair"]
