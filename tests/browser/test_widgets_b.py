"""PrefillExplorer, CacheCalculator and GQAExplorer in JupyterLab: every control, by mouse and by keyboard."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator, expect

from browser.lab import Lab

pytestmark = pytest.mark.browser

MOST_BYTES = 500_000  # over the websocket, for a widget's first picture
NASTY = "<img src=x onerror='window.ran = 1'><script>window.ran = 1</script> \u202eשלום"


def open_widget(lab: Lab, name: str, *cells: str) -> tuple[Locator, list[int]]:
    """Run a notebook whose last cell shows a widget. Its output, and the sizes of what came over the websocket."""
    received: list[int] = []

    def count(data: str | bytes) -> None:
        received.append(len(data if isinstance(data, bytes) else data.encode()))

    lab.page.on("websocket", lambda socket: socket.on("framereceived", count))
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    nbformat.write(notebook, lab.server.folder / f"{name}.ipynb")
    lab.open_notebook(f"{name}.ipynb")
    lab.run_all()
    shown = lab.outputs(len(cells) - 1)
    expect(shown.locator("svg").first).to_be_visible()
    assert lab.error_outputs() == []
    return shown, received


def headline(shown: Locator) -> Locator:
    return shown.get_by_role("status").first


def choose_by_keys(lab: Lab, options: Locator, *moves: str) -> None:
    """A list opens with Space."""
    options.focus()
    for key in ("Space", *moves, "Enter"):
        lab.page.keyboard.press(key)


def assert_clean(lab: Lab, shown: Locator) -> None:
    """No error in the console, none shown, nothing of the user's run, and a name for whatever takes the focus."""
    assert lab.console_errors == []
    assert "Something went wrong" not in shown.inner_text()
    assert lab.page.evaluate("window.ran") is None
    nameless = shown.locator("button, input, select, textarea").evaluate_all(
        "all => all.filter(e => !(e.labels?.[0]?.innerText || e.innerText || e.ariaLabel).trim()).map(e => e.outerHTML)"
    )
    assert nameless == []


def assert_readable(lab: Lab, shown: Locator, theme: str) -> None:
    """In this theme, letters stand out from the page by 4.5 or more, in HTML and in pictures (not on filled shapes)."""
    lab.set_theme(theme)
    # JupyterLab's cover fades out after a change; a second change within that time is an error of its own.
    expect(lab.page.locator("#jupyterlab-splash")).to_have_count(0)
    page = lab.page.evaluate("getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor")
    letters = shown.locator("p, th, td, pre, svg text:not(.f-paper)").evaluate_all(
        "all => [...new Set(all.map(e => getComputedStyle(e)[e.tagName === 'text' ? 'fill' : 'color']))]"
    )
    assert letters
    for colour in letters:
        assert contrast(colour, page) >= 4.5, f"{colour} on {page} in the {theme} theme"


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast of two colours as the browser writes them: "rgb(1, 2, 3)", maybe with an opacity."""
    back = channels(other)[:3]
    *front, opacity = (*channels(one), 1.0)[:4]
    mixed = [opacity * f + (1 - opacity) * b for f, b in zip(front, back, strict=True)]
    lighter, darker = sorted((luminance(mixed), luminance(back)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def channels(colour: str) -> list[float]:
    return [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")]


def luminance(rgb: list[float]) -> float:
    parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_prefill_explorer(lab: Lab):
    load = "import llmlesson\nfrom llmlesson.widgets import PrefillExplorer\nengine = llmlesson.load(device='cpu')"
    shown, received = open_widget(lab, "prefill", load, 'PrefillExplorer(engine, "Why is the sky blue?")')
    assert 0 < sum(received) < MOST_BYTES
    expect(headline(shown)).to_contain_text("tokens read in 1 pass. The KV cache holds 1,658,880 bytes")
    expect(shown.locator("svg").nth(1).locator("title").first).to_contain_text("1.000")  # the weight, on hover

    shown.get_by_label("tokens in a chunk").fill("16")
    shown.get_by_label("tokens in a chunk").press("Enter")
    expect(headline(shown)).to_contain_text("0 of 36 tokens")
    shown.get_by_role("button", name="Next chunk").click()
    expect(headline(shown)).to_contain_text("16 of 36 tokens read in 1 pass. The KV cache holds 737,280 bytes")
    expect(shown).to_contain_text("nobody looks at these")
    shown.get_by_role("button", name="Read the rest").click()
    expect(headline(shown)).to_contain_text("36 of 36 tokens read in 3 passes")
    expect(headline(shown)).to_contain_text("the same next token")
    expect(shown).to_contain_text("first token of the answer")

    shown.get_by_label("tokens in a chunk").fill("2.5")
    shown.get_by_label("tokens in a chunk").press("Enter")
    expect(shown.get_by_role("alert")).to_contain_text("must be a whole number, not 2.5")
    expect(headline(shown)).to_contain_text("36 of 36 tokens read in 3 passes")
    shown.get_by_label("query head").select_option("5")
    shown.get_by_label("layer", exact=True).focus()
    for _ in range(2):
        lab.page.keyboard.press("ArrowDown")
    lab.page.keyboard.press("Tab")
    expect(shown).to_contain_text("Attention, layer 2, head 5 (it reads KV head 1)")
    for theme in ("dark", "light"):
        assert_readable(lab, shown, theme)

    shown.get_by_label("prompt").fill(NASTY + " long" * 300)
    shown.get_by_role("button", name="Start over").click()
    expect(headline(shown)).to_contain_text("0 of 256 tokens (the first 256 of")
    shown.get_by_label("tokens in a chunk").fill("2")
    shown.get_by_role("button", name="Read the rest").click()
    expect(headline(shown)).not_to_contain_text("0 of 256")
    shown.get_by_role("button", name="Stop").click()
    expect(shown.get_by_role("status").last).to_contain_text("Stopped after")
    expect(shown.get_by_role("button", name="Next chunk")).to_be_enabled()
    expect(shown.get_by_label("columns from position")).to_be_visible()
    wide = "e => e.scrollWidth <= e.clientWidth + 1"
    assert lab.page.locator(".jp-Notebook").evaluate(wide), "the page does not scroll sideways"
    assert_clean(lab, shown)


def test_cache_calculator(lab: Lab):
    code = 'from llmlesson.widgets import CacheCalculator\nCacheCalculator("Llama-3.1-8B")'
    shown, received = open_widget(lab, "calculator", code)
    assert 0 < sum(received) < MOST_BYTES
    expect(headline(shown)).to_contain_text("1,073,741,824 bytes = 1.074 GB = 1.000 GiB. It fits on H100-80GB")

    shown.get_by_label("compare with").select_option("Llama-2-7b-hf")
    expect(headline(shown)).to_contain_text("Llama-2-7b-hf, 8,192 tokens, bf16: 4,294,967,296 bytes")
    shown.get_by_label("KV dtype").select_option("fp8")
    expect(headline(shown)).to_contain_text("fp8: 2,147,483,648 bytes")
    shown.get_by_label("GPU").select_option("T4-16GB")
    expect(headline(shown)).to_contain_text("weights alone don't fit on T4-16GB")
    for theme in ("dark", "light"):
        assert_readable(lab, shown, theme)

    # From here on the keyboard alone.
    keys = lab.page.keyboard
    shown.get_by_label("context, tokens").focus()
    keys.press("Control+A")
    keys.type("<b>lots")
    keys.press("Tab")
    expect(shown.get_by_role("button", name="Half the context")).to_be_focused()
    said = shown.get_by_role("alert")
    expect(said).to_contain_text("'<b>lots' is not a number of tokens")
    expect(shown.get_by_label("context, tokens")).to_have_value("<b>lots")
    field = shown.get_by_label("context, tokens").bounding_box()
    assert 0 <= said.bounding_box()["y"] - field["y"] < 60, "right below its field"
    keys.press("Tab")
    keys.press("Enter")
    expect(headline(shown)).to_contain_text("16,384 tokens")
    expect(shown.get_by_role("button", name="Double the context")).to_be_focused()
    expect(shown.get_by_label("batch, sequences")).to_be_enabled()
    keys.press("Tab")
    keys.press("Control+A")
    keys.type("3")
    keys.press("Enter")
    expect(headline(shown)).to_contain_text("16,384 tokens × 3 sequences")
    choose_by_keys(lab, shown.get_by_label("model", exact=True), "Home", "ArrowDown")
    expect(headline(shown)).to_contain_text("gpt2-xl, 16,384 tokens")
    assert_clean(lab, shown)


def test_gqa_explorer(lab: Lab):
    code = 'from llmlesson.widgets import GQAExplorer\nGQAExplorer("smollm2-135m")'
    shown, received = open_widget(lab, "gqa", code)
    assert 0 < sum(received) < MOST_BYTES
    expect(headline(shown)).to_contain_text("9 query heads, 3 KV heads (the model's own): GQA. 188,743,680 bytes")
    kv_heads = shown.get_by_label("number of KV heads")
    names = [name.replace("\xa0", " ") for name in kv_heads.locator("option").all_inner_texts()]
    assert names == ["1 (MQA)", "3 (GQA, its own)", "9 (MHA)"]

    shown.get_by_label("KV heads are repeated by").select_option(label="repeat (tile): h % KV heads")
    expect(headline(shown)).to_contain_text("6 query heads read the wrong KV head.")
    expect(shown.locator("svg text", has_text="✗")).to_have_count(6)
    for theme in ("dark", "light"):
        assert_readable(lab, shown, theme)

    keys = lab.page.keyboard
    choose_by_keys(lab, kv_heads, "ArrowDown")
    expect(headline(shown)).to_contain_text("9 KV heads (the model has 3): MHA. 566,231,040 bytes")
    expect(shown.locator("svg text", has_text="✗")).to_have_count(0)
    keys.press("Tab")
    keys.press("Tab")
    expect(shown.get_by_label("context in tokens")).to_be_focused()
    keys.press("Control+A")
    keys.type("1Ki")
    keys.press("Enter")
    expect(headline(shown)).to_contain_text("at 1,024 tokens")
    assert_clean(lab, shown)


def test_two_quick_changes_are_both_taken_under_load(lab: Lab):
    """The kernel is slow here: both changes are on their way before it has answered the first."""
    slow = (
        "import time\nfrom llmlesson.widgets import CacheCalculator\nfrom llmlesson.views import calculator\n"
        "fast = calculator.curves\ndef slow(answers):\n    time.sleep(0.7)\n    return fast(answers)\n"
        'calculator.curves = slow\nCacheCalculator("Llama-3.1-8B")'
    )
    shown, _ = open_widget(lab, "load", slow)
    context, batch = shown.get_by_label("context, tokens"), shown.get_by_label("batch, sequences")
    context.fill("4096")
    context.press("Tab")
    batch.fill("8")
    batch.press("Enter")
    shown.get_by_label("KV dtype").select_option("fp8")
    context.fill("2048")
    context.press("Enter")
    expect(headline(shown)).to_contain_text("2,048 tokens × 8 sequences, fp8", timeout=20_000)
    expect(context).to_have_value("2048")
    expect(batch).to_have_value("8")
    assert_clean(lab, shown)
