"""The engine: our own prefill and decode in plain PyTorch."""
