"""How large a KV cache becomes, for any model config."""
