"""One file an exercise; `llmlesson.lessons` says what goes into it."""
