"""Our engine beside others, on the same weights and in one run."""
