"""The commands of `llmlesson`, and what `llmlesson --help` says of each. A command is the module here of the same name.

It has `add_arguments(parser)`, and `run(args)`, which returns the exit status. Only `run` imports torch, or whatever
else is slow to import; the module itself is imported only when its command is on the command line.
"""

COMMANDS = {
    "run": "answer a prompt and say what it took",
    "fetch": "get the default model ahead of time",
    "size": "size a KV cache: how large, why, and whether it fits",
    "serve": "answer over HTTP, as OpenAI's API does, with many requests at once",
    "loadtest": "put load on a server, and time what its clients get",
    "bench": "measure the engine beside transformers, and against this machine's limits",
    "doctor": "find out why something fails on this machine",
}
