from engine.conftest import real, tiny_pair  # noqa: F401  (fixtures)
