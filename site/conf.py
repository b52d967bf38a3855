"""Sphinx's settings for the site; tools/pages.py builds it."""

import os

from docutils import nodes
from sphinx.application import Sphinx

project = "What happens after you send a prompt to an LLM?"
author = "the llmlesson authors"
copyright = "2026 the llmlesson authors. Text and pictures CC BY 4.0, code MIT"
language = "en"

# OWNER/NAME on GitHub; without it, a page links neither to the repository nor to services that need its address.
REPOSITORY = os.environ.get("GITHUB_REPOSITORY", "")

extensions = ["myst_nb"]
exclude_patterns = ["README.md", "binder", "deploy"]  # site/index.md includes the first; the others are only linked to

myst_heading_anchors = 4
nb_execution_mode = "off"  # tools/pages.py has run them
nb_ipywidgets_js = {}  # it would come from a CDN, and there is no kernel behind a page
nb_merge_streams = True
nb_output_stderr = "remove-warn"

html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/icon.svg"
html_use_index = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_persistent": [],  # the search is already in the side bar
    "use_fullscreen_button": False,
}
if REPOSITORY:
    html_theme_options |= {"repository_url": f"https://github.com/{REPOSITORY}", "use_repository_button": True}


def lesson(app: Sphinx, doctree: nodes.document) -> None:
    """Says on the page of a lesson what a page can't do, and where the lesson runs."""
    docname = app.env.docname
    if app.env.doc2path(docname).suffix != ".ipynb":
        return
    section = doctree.next_node(nodes.section)
    question = next(text for node in section.findall(nodes.paragraph) if (text := node.astext()))
    doctree += nodes.meta("", name="description", content=" ".join(question.split()))
    section.insert(1, note(docname, app.config.machine))


def note(docname: str, machine: str) -> nodes.Element:
    if machine:
        shown = f"What you see was made on one machine ({machine}); times on yours will differ."
    else:
        shown = "Cells that measure times have no output here."
    text = nodes.paragraph(
        "", f"This page is a picture of the lesson: you can't type, and nothing responds. {shown} Run it "
    )
    places = [("on your own machine", "../index.html#start")]
    if REPOSITORY:
        binder = f"https://mybinder.org/v2/gh/{REPOSITORY}/main?urlpath=lab/tree/{docname}.ipynb"
        # The branch `colab` has the same lessons with a first cell that installs the course.
        colab = f"https://colab.research.google.com/github/{REPOSITORY}/blob/colab/{docname}.ipynb"
        places = [("on Binder", binder), ("in Colab", colab), *places]
    for index, (name, uri) in enumerate(places):
        if index:
            text += nodes.Text(" or " if index == len(places) - 1 else ", ")
        text += nodes.reference("", name, refuri=uri, internal=not uri.startswith("https:"))
    text += nodes.Text(": there you predict, change and try.")
    return nodes.note("", text)


def setup(app: Sphinx) -> None:
    app.add_config_value("machine", "", "env")
    app.connect("doctree-read", lesson)
