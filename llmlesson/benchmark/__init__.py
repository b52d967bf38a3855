"""Our engine compared with others, on the same weights and in one run."""
