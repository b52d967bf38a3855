"""Models on this disk and on the hub; the default model: where it comes from, how it is converted, where it is kept."""
