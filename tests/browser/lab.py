"""One page of JupyterLab, driven by Playwright: open a notebook, run it, look at what it shows."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, sync_playwright

from browser.server import Server

CHROMIUM_NAMES = ("chromium", "google-chrome", "chromium-browser")
CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
VIEWPORT = {"width": 1280, "height": 900}
MAX_HEIGHT = 16_000  # Chromium paints nothing below about 16,384 pixels
RUN_SECONDS = 300  # the slowest lesson on two slow cores

NOTEBOOK = "jupyterapp.shell.currentWidget"
KERNEL_IS_IDLE = f"{NOTEBOOK}?.sessionContext?.session?.kernel?.status === 'idle'"
DIALOG = "document.querySelector('.jp-Dialog') !== null"
ERROR_OUTPUTS = f"""() => {NOTEBOOK}.content.widgets.flatMap((cell, index) =>
    cell.model.type !== 'code' ? [] : cell.model.outputs.toJSON()
        .filter(output => output.output_type === 'error')
        .map(output => `cell ${{index}}: ${{output.ename}}: ${{output.evalue}}`))"""
# The command's promise is kept in the page: waiting for it in evaluate() would have no timeout.
RUN_ALL = """() => {
    window.lessonRun = 'running';
    jupyterapp.commands.execute('notebook:run-all-cells').then(
        () => { window.lessonRun = 'done'; }, error => { window.lessonRun = String(error); });
}"""
HIDDEN_HEIGHT = f"""() => {{
    const scroller = {NOTEBOOK}.node.querySelector('.jp-WindowedPanel-outer');
    return scroller.scrollHeight - scroller.clientHeight;
}}"""


def find_chromium() -> str | None:
    """The path of a Chromium or Chrome on PATH, or None."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


@contextmanager
def run_browser() -> Iterator[Browser]:
    """A headless Chromium, closed on leaving. Raises RuntimeError when there is none."""
    chromium = find_chromium()
    if chromium is None:
        raise RuntimeError(f"No Chromium on PATH (looked for {', '.join(CHROMIUM_NAMES)}); install one.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=CHROMIUM_OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_lab(browser: Browser, server: Server) -> Iterator["Lab"]:
    """A fresh page (no cookies, no workspace); closes it and ends the kernels on leaving."""
    context = browser.new_context(viewport=VIEWPORT)
    try:
        yield Lab(context.new_page(), server)
    finally:
        context.close()
        server.shut_down_kernels()


class Lab:
    """A page with JupyterLab; `console_errors` holds what the browser's console reported as an error."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server
        self.console_errors: list[str] = []
        page.on("console", self._keep_error)
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))

    def _keep_error(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console_errors.append(f"{message.text} ({message.location.get('url', '')})")

    def open_notebook(self, name: str) -> None:
        """Opens a notebook of the served folder and waits for its kernel.

        Raises RuntimeError when JupyterLab asks something instead, such as which kernel to take.
        """
        self.page.goto(f"{self.server.url}lab/tree/{quote(name)}?reset&token={self.server.token}")
        self.wait_for_notebook(name)

    def wait_for_notebook(self, name: str) -> None:
        """The rest of `open_notebook`, where the page is on its way already."""
        # Run-all before the kernel is there opens "Select Kernel" and hangs.
        self.page.wait_for_function(f"window.jupyterapp && ({KERNEL_IS_IDLE} || {DIALOG})", timeout=60_000)
        dialog = self.page.locator(".jp-Dialog")
        if dialog.count():
            raise RuntimeError(f"JupyterLab asks before it opens {name}: {dialog.inner_text()}")
        self.page.evaluate("jupyterapp.shell.collapseLeft()")

    def wait_kernel_idle(self, seconds: float = 60) -> None:
        self.page.wait_for_function(KERNEL_IS_IDLE, timeout=seconds * 1000)

    def run_all(self, seconds: float = RUN_SECONDS) -> None:
        """Runs all cells and waits until the last one has finished, or the first error has stopped the run."""
        self.start_run()
        self.finish_run(seconds)

    def start_run(self) -> None:
        self.page.evaluate(RUN_ALL)

    def finish_run(self, seconds: float = RUN_SECONDS) -> None:
        self.page.wait_for_function("window.lessonRun !== 'running'", timeout=seconds * 1000)
        self.wait_kernel_idle(seconds)

    def cell(self, index: int) -> Locator:
        return self.page.locator(".jp-NotebookPanel .jp-Cell").nth(index)

    def outputs(self, cell: int | None = None) -> Locator:
        """The outputs of one cell, or of all; never their sources, which would match the same text."""
        place = self.page.locator(".jp-NotebookPanel") if cell is None else self.cell(cell)
        return place.locator(".jp-OutputArea-output")

    def error_outputs(self) -> list[str]:
        """`cell INDEX: NAME: MESSAGE` for every error output, read from the notebook's model."""
        errors: list[str] = self.page.evaluate(ERROR_OUTPUTS)
        return errors

    def set_theme(self, theme: str) -> None:
        """Switches to "light" or "dark" and waits until the page has changed."""
        name = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}[theme]
        self.page.evaluate("name => { jupyterapp.commands.execute('apputils:change-theme', {theme: name}); }", name)
        light = "true" if theme == "light" else "false"
        self.page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=light)

    def screenshot(self, path: Path, part_height: int | None = None) -> list[Path]:
        """Saves the notebook at its full height (up to 16,000 pixels), whole or in parts of `part_height` pixels.

        Parts are named PATH-01.png, PATH-02.png, …
        """
        width, height = VIEWPORT["width"], VIEWPORT["height"]
        try:
            for _ in range(2):  # some outputs grow with the window
                height = min(MAX_HEIGHT, height + self.page.evaluate(HIDDEN_HEIGHT))
                self.page.set_viewport_size({"width": width, "height": height})
                self.page.wait_for_timeout(300)
            if part_height is None:
                self.page.screenshot(path=path)
                return [path]
            parts = []
            for number, top in enumerate(range(0, height, part_height), start=1):
                parts.append(path.with_name(f"{path.stem}-{number:02d}{path.suffix}"))
                clip = {"x": 0, "y": top, "width": width, "height": min(part_height, height - top)}
                self.page.screenshot(path=parts[-1], clip=clip)
            return parts
        finally:
            self.page.set_viewport_size(VIEWPORT)
