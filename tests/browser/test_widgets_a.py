"""TokenizerExplorer, DecodeStepper and CacheInspector in JupyterLab, on the default model; one also in Notebook 7."""

import re
import time
from collections.abc import Iterator

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, Locator, expect

from browser.lab import Lab, open_lab
from browser.server import Server

pytestmark = pytest.mark.browser

CELLS = [
    "import llmlesson\nfrom llmlesson.widgets import *\nengine = llmlesson.load(device='cpu', dtype='float32')",
    "TokenizerExplorer(engine, 'hello the', 'hell')",
    "DecodeStepper(engine, 'Tell me a long story about a dragon.')",
    "CacheInspector(engine, 'Tell me a long story about a dragon.')",
]
TOKENIZER, STEPPER, INSPECTOR = 1, 2, 3
MOST_BYTES = 500_000  # over the websocket, for one widget
NASTY = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
# Notebook 7.6 reports these about itself, also for a notebook without widgets.
NOTEBOOK_7_ITSELF = ("reading 'schema'", "'filebrowser:open-path' not registered")
RUN_CELL = """() => { window.cellRun = 'running';
    jupyterapp.commands.execute('notebook:run-cell-and-select-next').then(() => { window.cellRun = 'done'; }); }"""


class Traffic:
    """Bytes that have come over the page's websockets."""

    def __init__(self, lab: Lab) -> None:
        self.nbytes = 0
        lab.page.on("websocket", lambda socket: socket.on("framereceived", self.count))

    def count(self, payload: str | bytes) -> None:
        self.nbytes += len(payload if isinstance(payload, bytes) else payload.encode())


@pytest.fixture(scope="module")
def widgets(browser: Browser, server: Server) -> Iterator[Lab]:
    """The notebook with all three, run cell by cell."""
    with open_lab(browser, server) as lab:
        traffic = Traffic(lab)
        write(server)
        lab.open_notebook("widgets_a.ipynb")
        for cell in range(len(CELLS)):
            before = traffic.nbytes
            lab.page.evaluate(RUN_CELL)
            lab.page.wait_for_function("window.cellRun === 'done'", timeout=120_000)
            assert lab.error_outputs() == []
            if cell:
                lab.outputs(cell).get_by_role("button").first.wait_for()
                assert traffic.nbytes - before < MOST_BYTES
        yield lab


@pytest.fixture(autouse=True)
def _no_console_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    expect.set_options(timeout=20_000)  # of a busy machine
    yield
    expect.set_options(timeout=5_000)
    if "widgets" in request.fixturenames:
        assert request.getfixturevalue("widgets").console_errors == []


def write(server: Server) -> None:
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    nbformat.write(notebook, server.folder / "widgets_a.ipynb")


def button(output: Locator, name: str) -> Locator:
    return output.get_by_role("button", name=name, exact=True)


def status(output: Locator) -> Locator:
    return output.get_by_role("status")


def cached(output: Locator) -> int:
    """Positions in the cache that a widget shows."""
    found = re.search(r"KV cache: ([\d,]+) positions", output.inner_text())
    assert found
    return int(found[1].replace(",", ""))


def reset(output: Locator) -> int:
    """Back at the prompt; the positions that it takes."""
    button(output, "Reset").click()
    expect(status(output)).to_contain_text("Back at the prompt.")
    return cached(output)


def expect_cached(output: Locator, positions: int) -> None:
    expect(output.get_by_text(re.compile(rf"KV cache: {positions:,} positions ×"))).to_be_visible()


def test_every_step_adds_one_position_and_back_takes_it_away(widgets: Lab):
    output = widgets.outputs(STEPPER)
    prompt = reset(output)
    for steps in (1, 2, 3):
        button(output, "Step").click()
        expect_cached(output, prompt + steps)
        expect(output.get_by_role("columnheader", name=f"Decode step {steps}")).to_be_visible()
    text = output.get_by_role("region", name="Answer").inner_text()
    button(output, "Back").click()
    expect_cached(output, prompt + 2)
    button(output, "Step").click()
    expect(status(output)).to_contain_text("The same as before going back, bit for bit.")
    assert output.get_by_role("region", name="Answer").inner_text() == text


def test_run_goes_on_until_stop(widgets: Lab):
    output = widgets.outputs(STEPPER)
    prompt = reset(output)
    button(output, "Run").click()
    expect(status(output)).to_contain_text("Running")
    expect(button(output, "Back")).to_be_disabled()
    deadline = time.monotonic() + 20
    while cached(output) < prompt + 2:  # at least: the run goes on while this looks
        assert time.monotonic() < deadline
        widgets.page.wait_for_timeout(20)
    button(output, "Stop").click()
    expect(status(output)).to_contain_text("Stopped.")
    stopped = cached(output)
    expect(button(output, "Back")).to_be_enabled()
    button(output, "Step").click()
    expect_cached(output, stopped + 1)


def test_a_double_click_breaks_nothing(widgets: Lab):
    output = widgets.outputs(STEPPER)
    prompt = reset(output)
    button(output, "Step").dblclick()
    expect(output.get_by_role("columnheader", name=re.compile("^Decode step"))).to_be_visible()
    expect(button(output, "Back")).to_be_enabled()
    after = cached(output)
    assert after - prompt in (1, 2)
    button(output, "Step").click()
    expect_cached(output, after + 1)


def test_another_token_changes_the_text_and_the_first_answer_is_kept(widgets: Lab):
    output = widgets.outputs(STEPPER)
    prompt = reset(output)
    button(output, "Step").click()
    expect_cached(output, prompt + 1)
    answer = output.get_by_role("region", name="Answer")
    original = answer.inner_text()
    output.get_by_role("combobox", name="Candidate").select_option(index=2)
    button(output, "Take this token instead").click()
    expect(status(output)).to_contain_text("Took it. Branch B.")
    other = answer.inner_text()
    assert other != original
    assert cached(output) == prompt + 1
    button(output, "Step").click()
    expect_cached(output, prompt + 2)
    expect(output.get_by_role("row", name=re.compile("^▶ B"))).to_be_visible()
    output.get_by_role("combobox", name="Branch").select_option("A")
    expect(answer).to_have_text(original)
    expect(output.get_by_role("row", name=re.compile("^▶ A"))).to_be_visible()


def test_sampling_settings_show_in_the_bars(widgets: Lab):
    output = widgets.outputs(STEPPER)
    reset(output)
    for name, value in [("temperature", "0.8"), ("top-k (0: all)", "3"), ("top-p (1: all)", "0.95")]:
        output.get_by_role("textbox", name=name).fill(value)
        widgets.page.keyboard.press("Enter")
    expect(output.get_by_role("columnheader", name="after temperature 0.8, top-k 3, top-p 0.95")).to_be_visible()
    expect(output.get_by_role("cell", name="ruled out")).not_to_have_count(0)
    output.get_by_role("textbox", name="temperature").fill("-1")
    widgets.page.keyboard.press("Enter")
    expect(output.get_by_role("alert").filter(has_text="temperature")).to_contain_text("must be at least 0")
    output.get_by_role("textbox", name="temperature").fill("0")
    widgets.page.keyboard.press("Enter")
    expect(status(output)).to_contain_text("The next token is chosen with temperature 0.")


def test_a_prompt_of_markup_and_one_of_5000_characters(widgets: Lab):
    output = widgets.outputs(STEPPER)
    prompt = output.get_by_role("textbox", name="Prompt")
    for text in (NASTY, "=" * 5000):
        prompt.fill(text)
        button(output, "Prefill this prompt").click()
        expect(status(output)).to_contain_text("Read the prompt", timeout=60_000)
        expect(output.get_by_role("region", name="Prompt")).to_contain_text(text[:60])
        assert fits(output)
    assert widgets.page.evaluate("window.hacked") is None
    prompt.fill("Tell me a long story about a dragon.")
    button(output, "Prefill this prompt").click()
    expect(output.get_by_role("region", name="Prompt")).to_contain_text("a dragon")


def fits(output: Locator) -> bool:
    """Whether nothing sticks out to the right."""
    return bool(output.first.evaluate("node => node.scrollWidth <= node.clientWidth + 1"))


def test_the_stepper_by_keyboard_alone(widgets: Lab):
    output, keys = widgets.outputs(STEPPER), widgets.page.keyboard
    prompt = reset(output)
    output.get_by_role("textbox", name="Prompt").focus()
    for name in ("Prefill this prompt", "Step"):
        keys.press("Tab")
        expect(button(output, name)).to_be_focused()
    for steps in (1, 2):  # the focus stays where it is
        keys.press("Space")
        expect_cached(output, prompt + steps)
        expect(button(output, "Back")).to_be_enabled()
        expect(button(output, "Step")).to_be_focused()
    keys.press("Tab")
    keys.press("Enter")
    expect_cached(output, prompt + 1)
    expect(button(output, "Back")).to_be_focused()
    expect(output.get_by_role("combobox", name="Candidate")).to_be_enabled()
    output.get_by_role("combobox", name="Candidate").focus()
    keys.press("Space")  # opens the list; with the list closed, JupyterLab takes the arrows to go to another cell
    keys.press("ArrowDown")
    keys.press("Enter")
    keys.press("Tab")
    expect(button(output, "Take this token instead")).to_be_focused()
    keys.press("Enter")
    expect(status(output)).to_contain_text("Took it. Branch B.")


def test_merges_one_at_a_time_and_typing(widgets: Lab):
    output = widgets.outputs(TOKENIZER)
    chips = output.get_by_role("list", name="Tokens of Text A", exact=True).get_by_role("listitem")
    for name, count in [("No merges", 9), ("Next merge", 8), ("Next merge", 7), ("Back one merge", 8)]:
        button(output, name).click()
        expect(chips).to_have_count(count)
    expect(status(output)).to_contain_text("Text A. Merge 1 of 7: · + t → ·t")
    button(output, "All merges").click()
    expect(chips).to_have_count(2)
    output.get_by_role("checkbox", name="in the chat template").check()
    expect(output.get_by_text("◆ special")).to_have_count(10)
    output.get_by_role("checkbox", name="in the chat template").uncheck()
    expect(output.get_by_text("◆ special")).to_have_count(0)
    text = output.get_by_role("textbox", name="Text A")
    for typed in (NASTY, "x" * 5000, "שלום \u202eabc"):
        text.fill(typed)
        expect(output.get_by_role("row", name=re.compile("^characters"))).to_contain_text(f"{len(typed):,}")
        assert fits(output)
    assert widgets.page.evaluate("window.hacked") is None
    text.fill("hello the")
    expect(chips).to_have_count(2)


def test_the_inspector_looks_into_any_layer_and_says_what_a_step_changed(widgets: Lab):
    output = widgets.outputs(INSPECTOR)
    output.get_by_role("combobox", name="Layer").select_option("7")
    output.get_by_role("combobox", name="Head").select_option("2")
    output.get_by_role("combobox", name="Values").select_option("V")
    expect(output.get_by_text(re.compile("^V of layer 7, head 2")).first).to_be_visible()
    button(output, "Step").click()
    expect(output.get_by_text("Decode step 1: 1 position added, 46,080 bytes")).to_be_visible()
    expect(output.get_by_text("unchanged ✓")).to_be_visible()
    button(output, "Back").click()
    expect(output.get_by_text("Back: 1 position dropped, 46,080 bytes")).to_be_visible()
    output.get_by_role("textbox", name="Up to position (-1: newest)").fill("3")
    widgets.page.keyboard.press("Enter")
    expect(output.get_by_text(re.compile("positions 0 to 3 of")).first).to_be_visible()
    button(output, "Reset").click()
    expect(status(output)).to_contain_text("Reset: ")
    expect(output.get_by_text(re.compile("positions 0 to 3 of"))).to_have_count(0)


def test_every_control_has_an_accessible_name(widgets: Lab):
    for cell, count in [(TOKENIZER, 7), (STEPPER, 14), (INSPECTOR, 7)]:
        output = widgets.outputs(cell)
        found = 0
        for role in ("button", "textbox", "spinbutton", "combobox", "checkbox"):
            everything = output.get_by_role(role)
            found += everything.count()
            expect(output.get_by_role(role, name=re.compile(r"\w"))).to_have_count(everything.count())
        assert found == count


def test_both_themes_are_drawn(widgets: Lab, tmp_path):
    seen = []
    for theme in ("dark", "light"):
        widgets.set_theme(theme)
        for cell in (TOKENIZER, STEPPER, INSPECTOR):
            path = tmp_path / f"{cell}-{theme}.png"
            seen.append(widgets.outputs(cell).first.screenshot(path=path))
    assert len(set(seen)) == 6


def test_a_cell_that_runs_again_leaves_one_widget(widgets: Lab):
    page = widgets.page
    page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 2")
    models = """async () => (await jupyterapp.shell.currentWidget.sessionContext.session.kernel
        .requestCommInfo({target_name: 'jupyter.widget'})).content.comms"""
    before = len(page.evaluate(models))
    for _ in range(2):
        page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 2")
        page.evaluate(RUN_CELL)
        page.wait_for_function("window.cellRun === 'done'", timeout=60_000)
        expect(button(widgets.outputs(STEPPER), "Step")).to_be_visible()
    assert len(page.evaluate(models)) == before


def test_the_stepper_in_notebook_7(browser: Browser, server: Server):
    write(server)
    with open_lab(browser, server) as lab:
        page = lab.page
        page.goto(f"{server.url}notebooks/widgets_a.ipynb?token={server.token}")
        expect(page.get_by_text(re.compile(r"^Python 3 \(ipykernel\)$"))).to_be_visible(timeout=60_000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        output = page.locator(".jp-Cell").nth(STEPPER).locator(".jp-OutputArea-output")
        button(output, "Step").wait_for(timeout=120_000)
        prompt = cached(output)
        button(output, "Step").click()
        expect_cached(output, prompt + 1)
        button(output, "Back").click()
        expect_cached(output, prompt)
        assert [error for error in lab.console_errors if not any(own in error for own in NOTEBOOK_7_ITSELF)] == []
