"""The built pages in Chromium: nothing from elsewhere, no error, search, and no barrier that axe finds."""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect

from website.conftest import ROOT

pytestmark = pytest.mark.browser

NAMES = [
    "index.html",
    "search.html",
    *(f"docs/{path.stem}.html" for path in sorted((ROOT / "docs").glob("*.md"))),
    "notebooks/glossary.html",
    *(f"notebooks/{path.stem}.html" for path in sorted((ROOT / "notebooks").glob("*.ipynb"))),
]
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
HIDDEN_HEADINGS = """[...document.querySelectorAll('thead')]
    .filter(head => getComputedStyle(head).display === 'none')
    .map(head => head.textContent.trim()).filter(text => text !== '')"""
# The colour of a piece of code depends on its kind alone: one of each will do, and takes a fifth of the time.
ONE_OF_EACH_KIND = """() => {
    const seen = new Set();
    for (const piece of document.querySelectorAll('.highlight span')) {
        const kind = piece.className + (piece.closest('.cell_input') ? ' in a cell' : '');
        if (seen.has(kind)) piece.replaceWith(...piece.childNodes);
        seen.add(kind);
    }
}"""
FOCUS = """() => {
    const element = document.activeElement, style = getComputedStyle(element);
    const ring = style.outlineStyle !== 'none' || style.boxShadow.includes('rgb(');  // rgba() may be transparent
    return {name: element.tagName, ring, html: element.outerHTML.slice(0, 200)};
}"""


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    # A colour that is still changing has no contrast of its own yet.
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    yield context
    context.close()


@pytest.fixture
def trouble(context: BrowserContext, address: str) -> Iterator[list[str]]:
    """Errors in the console and requests to other hosts; the test fails if there is one at its end."""
    found: list[str] = []
    context.on(
        "console", lambda m: found.append(f"{m.text} ({m.location['url']})") if m.type in ("error", "warning") else None
    )
    context.on("weberror", lambda error: found.append(str(error.error)))
    context.on("request", lambda r: None if r.url.startswith((address, "data:")) else found.append(r.url))
    yield found
    assert found == []


@pytest.fixture
def page(context: BrowserContext, trouble: list[str]) -> Iterator[Page]:
    page = context.new_page()
    yield page
    page.close()


def barriers(page: Page, rules: dict[str, object]) -> list[str]:
    # Preloading looks for the theme's style sheets in the wrong place; the one rule that needs it is experimental.
    options = {"resultTypes": ["violations"], "runOnly": rules, "preload": False}
    result = Axe().run(page, options=options)
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in result.response["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("name", NAMES)
def test_page_is_accessible_in_both_themes(name: str, page: Page, address: str):
    page.emulate_media(color_scheme="light")
    page.goto(address + name)
    page.evaluate(ONE_OF_EACH_KIND)
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert barriers(page, {"type": "tag", "values": WCAG}) == []
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert barriers(page, {"type": "rule", "values": ["color-contrast"]}) == []  # no other rule looks at colours


@pytest.mark.parametrize("name", NAMES)
def test_page_fits_a_phone(name: str, page: Page, address: str):
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(address + name)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate(HIDDEN_HEADINGS) == []


def test_no_line_of_code_is_cut_on_a_laptop(page: Page, address: str):
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{address}notebooks/05_kv_cache_size.html")
    cut = "lines => lines.filter(it => it.offsetParent && it.scrollWidth > it.clientWidth).map(it => it.textContent)"
    assert page.locator(".cell_input pre").evaluate_all(cut) == []


def test_search_finds_the_lesson(page: Page, address: str):
    page.goto(address)
    page.keyboard.press("Control+k")
    page.keyboard.type("GQA")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=GQA*")
    expect(page.locator("#search-results .search a[href*='06_gqa.html']").first).to_be_visible()


def test_theme_switch_is_kept(page: Page, address: str):
    page.emulate_media(color_scheme="light")
    page.goto(address)
    page.get_by_role("button", name="Color mode").click()
    page.locator(".theme-change-button[data-mode=dark]:visible").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto(f"{address}notebooks/06_gqa.html")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_keyboard_shows_where_it_is(page: Page, address: str):
    page.goto(f"{address}notebooks/00_start_here.html")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to main content")
    expect(page.locator(":focus")).to_be_in_viewport()
    reached = []
    while (focus := page.evaluate(FOCUS))["name"] != "BODY":
        reached.append(focus)
        page.keyboard.press("Tab")
    assert [focus for focus in reached if not focus["ring"]] == []
    assert {"A", "BUTTON", "SUMMARY", "PRE"} <= {focus["name"] for focus in reached}


def test_keyboard_skips_the_navigation(page: Page, address: str):
    page.goto(f"{address}notebooks/00_start_here.html")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_a_lesson_plan_is_printed_on_two_sides(page: Page, address: str):
    page.goto(f"{address}docs/lesson-plans.html")
    plans = page.locator("#lesson-plans > section").count()
    assert len(re.findall(rb"/Type /Page\b", page.pdf(format="A4"))) == 1 + 2 * plans
