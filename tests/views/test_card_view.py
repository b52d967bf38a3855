"""The picture of a card's memory: every user is a box, everything is to scale, the words say the same."""

import re

from llmlesson.sizing import fit
from llmlesson.views.card import memory_bars, memory_bars_text

BOX = re.compile(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="\d+" class="([\w-]+)"[^>]*?(2 3)?"/>')


def boxes(plan):
    """(x, width, what) of each box; of K over V the upper half."""
    found = BOX.findall(memory_bars([plan]))
    return [(float(x), float(width), name + dots) for x, width, name, dots in found if name != "f-value"]


def test_a_box_for_every_user_to_scale():
    plan = fit("Llama-3.1-8B", "H100-80GB", context=8_192)
    weights, *users, reserve, outline = boxes(plan)
    assert len(users) == plan.users == 56
    per_byte = outline[1] / plan.gpu.memory_nbytes
    assert abs(weights[1] - plan.weights_nbytes * per_byte) < 0.2
    assert abs(users[0][1] + 1 - plan.kv_nbytes_per_user * per_byte) < 0.2  # a gap of one pixel
    assert users[-1][0] + users[-1][1] <= reserve[0]
    assert abs(reserve[0] + reserve[1] - outline[0] - outline[1]) < 0.2
    assert [weights[2], users[0][2], reserve[2], outline[2]] == ["f-wait", "f-key", "s-wait2 3", "s-wait"]


def test_many_users_become_one_block():
    plan = fit("Qwen2.5-7B", "H100-80GB", context=1_000)
    assert len(boxes(plan)) == 4
    assert f"{plan.users:,} users" in memory_bars([plan])


def test_weights_that_do_not_fit():
    plan = fit("Llama-3.1-70B", "H100-80GB")
    weights, *_, outline = boxes(plan)
    assert weights[1] > outline[1]
    assert outline[2] == "s-broken"
    assert "more than the card has" in memory_bars_text([plan])


def test_all_bars_have_one_scale():
    small, large = fit("Llama-3.1-8B", "RTX4090-24GB"), fit("Llama-3.1-8B", "H100-80GB")
    outlines = [
        float(width) for _, width, name, dots in BOX.findall(memory_bars([small, large])) if name + dots == "s-wait"
    ]
    assert abs(outlines[0] / outlines[1] - small.gpu.memory_nbytes / large.gpu.memory_nbytes) < 0.001
