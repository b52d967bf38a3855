"""The default model: where it comes from, how it is converted, and where it is kept."""
