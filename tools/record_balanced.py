"""Records what lesson 07b's requests meet behind a load balancer, for learners who have none installed.

python tools/record_balanced.py       runs the lesson's trials and writes llmlesson/lessons/data/balanced.json
"""

import json
from dataclasses import asdict
from pathlib import Path

import nbformat

from llmlesson.lessons import recorded

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "07b_balancing.ipynb"
CELLS = ("load", "two-replicas", "policies", "buffered", "kill", "drain")


def main() -> None:
    found = {}

    def recording(trial):
        def tried(asks, **settings):
            seen = trial(asks, **settings)
            found[recorded.key(asks, settings)] = [rounded(asdict(one)) for one in seen]
            return seen

        return tried

    recorded.or_recorded = recording
    namespace: dict[str, object] = {}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.id in CELLS:
            exec(cell.source, namespace)
    recorded.RECORDED.parent.mkdir(exist_ok=True)
    recorded.RECORDED.write_text(json.dumps(found, allow_nan=False) + "\n", encoding="utf-8")


def rounded(exchange: dict[str, object]) -> dict[str, object]:
    """Times to the tenth of a millisecond; without the text and the id, which say nothing."""
    times = [round(at, 4) for at in exchange["arrivals"]]
    plain = {name: exchange[name] for name in ("tokens", "error", "status", "replica")}
    return {"sent": round(exchange["sent"], 4), "arrivals": times, "ended": round(exchange["ended"], 4), **plain}


if __name__ == "__main__":
    main()
