"""What each cell of a lesson is for, judging by its source, and which parts are hidden when the lesson is opened.

    question   asks for a prediction: Prediction(...)
    reveal     shows the truth beside it: name.reveal(...)
    explain    the text behind a reveal; its first line is "**Explain.**"
    exercise   a stub to fill in, and its check: lessons.check(...)
    help       the folded hints and solution of an exercise: lessons.hint(...)
    drawing    shows HTML(...), prints nothing and defines nothing
    code       all other code: what the lesson is about
    text       all other text

Nobody should read an answer before they have given one. So stored outputs are hidden from the first question on, and
so are explanations. Questions, reveals, help and drawings set the stage: their source is collapsed. JupyterLab and
Notebook 7 show an output, and a text, as soon as its cell runs. Pages without a kernel show everything.

JupyterLab shows the first line of anything hidden. So a collapsed source begins with a comment, an explanation with a
line of its own, and hidden outputs with an empty line, the cover.
"""

import ast
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode

COLLAPSED = {"question", "reveal", "help", "drawing", "explain"}
COMMENTS = {
    "question": "# Predict, before you run what comes next.",
    "reveal": "# What came out, beside your prediction.",
    "help": "# Help, folded.",
}
EXPLAIN = "**Explain.**"
COVER = {"output_type": "display_data", "data": {}, "metadata": {}}
OPEN = {"question", "exercise", "help"}  # their outputs contain no answer, or a folded one


def kind(cell: NotebookNode) -> str:
    """One of the words above."""
    if cell.cell_type != "code":
        return "explain" if cell.source.split("\n")[0] == EXPLAIN else "text"
    try:
        tree = ast.parse(cell.source)
    except SyntaxError:  # for example, a shell command
        return "code"
    called = calls(tree)
    if "Prediction" in called:
        return "question"
    if "reveal" in called:
        return "reveal"
    if "check" in called:
        return "exercise"
    if "hint" in called:
        return "help"
    return "drawing" if "HTML" in called and "print" not in called and not defines(tree) else "code"


def calls(tree: ast.AST) -> set[str]:
    """The last part of the name of everything that is called: {"check"} for lessons.check(...)."""
    return {name for node in ast.walk(tree) if (name := called_name(node))}


def called_name(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None)


def defines(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)


def mixed(cell: NotebookNode) -> str | None:
    """What a collapsed question or reveal would hide even though the lesson is about it; None if nothing."""
    what = kind(cell)
    if what not in ("question", "reveal"):
        return None
    tree = ast.parse(cell.source)
    if what == "question" and "reveal" in calls(tree):
        return "its reveal"
    if "print" in calls(tree):
        return "what it prints"
    return "a definition" if defines(tree) else None


def uncovered(cell: NotebookNode) -> list[NotebookNode]:
    """The outputs without the cover."""
    return [output for output in cell.outputs if output != COVER]


def on_opening(notebook: NotebookNode) -> Iterator[tuple[int, dict[str, bool], list[NotebookNode]]]:
    """For each cell its index, what its metadata is to hide, and its outputs with or without the cover."""
    asked = False
    for index, cell in enumerate(notebook.cells):
        what = kind(cell)
        outputs = uncovered(cell) if cell.cell_type == "code" else []
        asked = asked or what == "question"
        hide_source = what in COLLAPSED
        hide_outputs = asked and what not in OPEN and bool(outputs)
        hidden = {"source_hidden": hide_source, "outputs_hidden": hide_outputs}
        covered = hide_outputs and not hide_source  # where both are hidden, JupyterLab shows a line of the source only
        yield index, hidden, [nbformat.from_dict(COVER)] * covered + outputs


def unexplained(notebook: NotebookNode) -> Iterator[int]:
    """The texts that directly follow a reveal but are not explanations."""
    revealed = False
    for index, cell in enumerate(notebook.cells):
        what = kind(cell)
        if what == "text" and revealed:
            yield index
        revealed = what == "reveal" or (revealed and what not in ("explain", "text"))
