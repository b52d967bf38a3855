"""The notebook gate finds each thing a committed notebook must not carry, and --fix mends it without side effects."""

import importlib.util
import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parent.parent
ROOT_HOME = "/" + "root"  # not written out, so that no search for such paths finds this file
SPEC = importlib.util.spec_from_file_location("notebook_gate", ROOT / "tools" / "notebooks.py")
assert SPEC is not None
assert SPEC.loader is not None
gate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(gate)


def bundle(**data):
    """A result with these MIME types, written with underscores for what a keyword cannot hold."""
    return new_output("execute_result", data=data, execution_count=1)


def html(text):
    return bundle(**{"text/html": text, "text/plain": "<object>"})


def stdout(text):
    return new_output("stream", name="stdout", text=text)


def good():
    """A notebook with nothing to find: text, HTML, one checked cell, one measured cell without outputs."""
    shown = bundle(**{"text/html": "<b style='transition: 0.3s'>30 layers</b>", "text/plain": "30 layers"})
    notebook = new_notebook(
        metadata={"kernelspec": dict(gate.KERNELSPEC), "language_info": {"name": "python"}},
        cells=[
            new_markdown_cell(
                "# A lesson\n\nSee [the next](01.ipynb), https://example.com/home/x and ~/.cache.", id="top"
            ),
            new_code_cell("show()", id="one", execution_count=1, outputs=[shown]),
            new_code_cell(
                "print('3.35 TB/s -> 0.16 ms')",
                id="two",
                execution_count=2,
                outputs=[stdout("3.35 TB/s -> 0.16 ms\n")],
                metadata={"tags": ["nbval-check-output"]},
            ),
            new_code_cell("time_it()", id="three", execution_count=3, metadata={"tags": ["measured"]}),
            new_code_cell("", id="four"),
        ],
    )
    notebook.nbformat_minor = 5
    return notebook


def save(notebook, folder, name="lesson.ipynb"):
    path = folder / name
    path.write_text(nbformat.v4.writes(notebook) + "\n", encoding="utf-8", newline="\n")
    return path


def run(capsys, *arguments):
    """The exit status of the command and the lines it printed, without its closing count."""
    status = gate.main(["check", *map(str, arguments)])
    return status, capsys.readouterr().out.splitlines()[:-1]


def in_output(output):
    def break_it(notebook):
        notebook.cells[1].outputs = [output]

    return break_it


def in_source(text):
    def break_it(notebook):
        notebook.cells[1].source = text

    return break_it


def tagged(*tags):
    def break_it(notebook):
        notebook.cells[1].metadata["tags"] = list(tags)

    return break_it


def widget_metadata(notebook):
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}


def measured_with_outputs(notebook):
    notebook.cells[3].outputs = [stdout("whatever")]


def execution_metadata(notebook):
    notebook.cells[1].metadata["execution"] = {"iopub.status.busy": "2026-01-01T00:00:00Z"}


def local_kernel(notebook):
    notebook.metadata["kernelspec"] = {"display_name": "my-venv", "language": "python", "name": "my-venv"}


def python_version(notebook):
    notebook.metadata["language_info"]["version"] = "3.11.9"


def counts_out_of_order(notebook):
    notebook.cells[1].execution_count = 7


def outputs_without_count(notebook):
    notebook.cells[2].execution_count = None


def no_id(notebook):
    del notebook.cells[1]["id"]


def old_format(notebook):
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        del cell["id"]


WIDGET_VIEW = {"model_id": "abc", "version_major": 2, "version_minor": 0}
ERROR = new_output("error", ename="ValueError", evalue="no", traceback=["ValueError: no"])

MENDED = {
    "widget state": (widget_metadata, "metadata.widgets"),
    "widget view": (in_output(bundle(**{gate.WIDGET: WIDGET_VIEW, "text/plain": "VBox()"})), "a widget view"),
    "plotly": (in_output(bundle(**{gate.PLOTLY: {"data": [], "layout": {}}})), "plotly JSON"),
    "script": (in_output(bundle(**{"application/javascript": "1"})), "application/javascript"),
    "home in output": (in_output(stdout("saved to /home/ada/model")), "/home/ada/model"),
    "macOS home": (in_output(html("<a href='file:///Users/ada/x'>x</a>")), "/Users/ada/x"),
    "root's home": (in_output(stdout(f"('{ROOT_HOME}/.cache',)")), f"{ROOT_HOME}/.cache"),
    "temporary folder": (in_output(stdout("/tmp/ipykernel_1/2.py:1")), "/tmp/ipykernel_1"),
    "Windows drive": (in_output(stdout(r"PosixPath C:\Users\ada\x")), "C:\\Users\\ada"),
    "Windows drive in a repr": (in_output(stdout(r"'D:\\course\\x'")), "D:\\\\course"),
    "this checkout": (in_output(stdout(f"{ROOT.as_posix()}/x")), ROOT.as_posix()),
    "cell times": (execution_metadata, "metadata.execution"),
    "measured cell with outputs": (measured_with_outputs, "tagged measured"),
    "milliseconds": (in_output(stdout("decode: 12.3 ms")), "3 ms"),
    "microseconds": (in_output(html("<td>95</td> <td>µs</td>")), "5 µs"),
    "seconds": (in_output(stdout("loaded in 1.7s")), "1.7s"),
    "tokens per second": (in_output(html("<td>tokens/s</td><td>19</td>")), "tokens/s"),
    "bandwidth": (in_output(stdout("read 14.2 GB/s")), "2 GB/s"),
    "wall time": (in_output(stdout("Wall time: a while")), "Wall time"),
    "error": (in_output(ERROR), "stored error ValueError"),
    "stderr": (in_output(new_output("stream", name="stderr", text="UserWarning: old\n")), "UserWarning"),
    "missing id": (no_id, "no id"),
    "nbformat 4.4": (old_format, "nbformat 4.4"),
    "kernel name": (local_kernel, "my-venv"),
    "Python version": (python_version, "Python version"),
    "execution counts": (counts_out_of_order, "execution count is 7, not 1"),
    "outputs without a count": (outputs_without_count, "execution count is None, not 2"),
}


COVER = {"output_type": "display_data", "data": {}, "metadata": {}}


def lesson(*sources):
    """A notebook of these cells, each code cell with an output; a text begins with a star or a letter and a space."""

    def replace(notebook):
        notebook.cells = notebook.cells[:1]
        for number, source in enumerate(sources, start=1):
            if "(" not in source:
                notebook.cells.append(new_markdown_cell(source, id=f"n{number}"))
                continue
            count = 1 + sum(cell.cell_type == "code" for cell in notebook.cells)
            cell = new_code_cell(source, id=f"n{number}", execution_count=count, outputs=[stdout("38 tokens\n")])
            notebook.cells.append(cell)

    return replace


QUESTION = "# Predict, before you run what comes next.\nsize = Prediction('size')\nsize"
REVEAL = "# What came out, beside your prediction.\nsize.reveal(38)"
EXPLANATION = "**Explain.**\nIt is 38."
MENDED |= {
    "question's source": (lesson(QUESTION), "the source of a question cell is visible"),
    "reveal's source": (lesson(REVEAL), "the source of a reveal cell is visible"),
    "drawing's source": (lesson("# A map.\nHTML(map())"), "the source of a drawing cell is visible"),
    "hints' source": (lesson("# Hints\nlessons.hint('a')"), "the source of a help cell is visible"),
    "explanation": (lesson(EXPLANATION), "the source of a explain cell is visible"),
    "output after a question": (lesson(QUESTION, "count()"), "the stored output of a code cell is visible"),
    "preview of an output": (lesson(QUESTION, "count()"), "has no cover"),
    "reveal's output": (lesson(QUESTION, REVEAL), "the stored output of a reveal cell is visible"),
    "preview of a source": (lesson("size.reveal('It is 38')"), "first line, which is no comment"),
}


def hidden_code(notebook):
    notebook.cells[1].metadata["jupyter"] = {"source_hidden": True}


def cover_that_hides_nothing(notebook):
    notebook.cells[1].outputs.insert(0, nbformat.from_dict(COVER))


MENDED["code that nobody sees"] = (hidden_code, "the source of a code cell is hidden")
MENDED["cover alone"] = (cover_that_hides_nothing, "has a cover, and hides nothing")


def headed(stated):
    """A lesson of 360 words, 30 lines of open code, a prediction and an exercise: 2 + 2 + 1.5 minutes, and 10."""

    def break_it(notebook):
        head = f"# 00 · A lesson\n\n{stated} **Know first:** nothing."
        lesson(QUESTION, REVEAL, EXPLANATION, "f()\n\n" * 30, "lessons.check('a', f)\n" * 99)(notebook)
        said = sum(len(text.split()) for text in (head, "It is 38."))
        notebook.cells[0].source = head + " word" * (360 - said)
        for rule in gate.RULES:
            if rule is not gate.stated_time:
                list(rule(notebook, fix=True))

    return break_it


STATED = "**Time:** about 10 minutes to read and run, and 10 for the exercise."
MENDED["another time than the count's"] = (headed("**Time:** about 35 minutes."), f"the head does not say {STATED!r}")


def repeated_id(notebook):
    notebook.cells[2]["id"] = "one"


def too_large(notebook):
    notebook.cells[1].outputs = [stdout("x" * 1_000_000)]


def too_many_cells(notebook):
    notebook.cells += [new_markdown_cell("more", id=f"more-{number}") for number in range(41)]


NOT_MENDED = {
    "repeated id": (repeated_id, "used twice"),
    "1 MB": (too_large, "limit 1,000,000"),
    "46 cells": (too_many_cells, "46 cells"),
    "large PNG": (in_output(bundle(**{"image/png": "A" * 300_000})), "a PNG of more than"),
    "home in source": (in_source("open('/home/ada/data.txt')"), "/home/ada/data.txt"),
    "Windows drive in source": (in_source(r"open('C:\\data\\x.txt')"), "C:\\"),
    "unknown tag": (tagged("slow"), "unknown tag 'slow'"),
    "contradicting tags": (tagged("nbval-check-output", "measured"), "contradicts measured"),
}


def mended(break_it):
    """The same broken notebook, with what --fix mends mended."""

    def break_and_mend(notebook):
        break_it(notebook)
        notebook.cells[1:] = [new_markdown_cell("x", id="x"), *notebook.cells[1:]]
        for rule in gate.RULES:
            list(rule(notebook, fix=True))

    return break_and_mend


NOT_MENDED |= {
    "drawing without a comment": (mended(lesson("HTML(map())")), "begin with one that says what is drawn"),
    "question that prints": (mended(lesson(QUESTION, f"{QUESTION}\nprint(1)")), "and what it prints with it"),
    "question that defines": (mended(lesson(f"{QUESTION}\ndef f(): ...")), "and a definition with it"),
    "reveal that prints": (mended(lesson(QUESTION, f"{REVEAL}\nprint(1)")), "and what it prints with it"),
    "question with its reveal": (mended(lesson(f"{QUESTION}\nsize.reveal(38)")), "and its reveal with it"),
    "text behind a reveal": (mended(lesson(QUESTION, REVEAL, "It is 38.")), "the text behind a reveal is visible"),
}


def test_a_good_notebook_has_no_findings_and_fix_leaves_its_bytes(tmp_path, capsys):
    path = save(good(), tmp_path)
    before = path.read_bytes()
    assert run(capsys, path) == (0, [])
    assert run(capsys, "--fix", tmp_path) == (0, [])
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", MENDED)
def test_found_then_mended(name, tmp_path, capsys):
    break_it, words = MENDED[name]
    notebook = good()
    break_it(notebook)
    path = save(notebook, tmp_path)
    before = path.read_bytes()

    status, lines = run(capsys, path)
    assert status == 1
    assert any(words in line and line.startswith(path.as_posix()) for line in lines), lines
    assert path.read_bytes() == before, "check alone must not write"

    assert run(capsys, "--fix", path) == (0, [])
    mended = path.read_bytes()
    assert run(capsys, path) == (0, [])
    assert run(capsys, "--fix", path) == (0, [])
    assert path.read_bytes() == mended
    nbformat.validate(nbformat.read(path, as_version=4))


@pytest.mark.parametrize("name", NOT_MENDED)
def test_found_and_left_to_the_author(name, tmp_path, capsys):
    break_it, words = NOT_MENDED[name]
    notebook = good()
    break_it(notebook)
    path = save(notebook, tmp_path)
    for arguments in ([path], ["--fix", path]):
        status, lines = run(capsys, *arguments)
        assert status == 1
        assert [words in line for line in lines] == [True], lines
    assert nbformat.v4.reads(path.read_text(encoding="utf-8")) == notebook


def test_from_the_first_question_on_outputs_are_hidden_but_for_questions_and_exercises(tmp_path):
    notebook = good()
    lesson("before()", QUESTION, "count()", REVEAL, EXPLANATION, "lessons.check('a', f)", "lessons.hint('a')")(notebook)
    path = save(notebook, tmp_path)
    assert gate.check_file(path, fix=True) == []
    cells = nbformat.read(path, as_version=4).cells[1:]
    hides = [sorted(cell.metadata.get("jupyter", {})) for cell in cells]
    source, output = "source_hidden", "outputs_hidden"
    assert hides == [[], [source], [output], [output, source], [source], [], [source]]
    assert [cell.outputs[0] == COVER for cell in cells if cell.cell_type == "code"] == [
        False,
        False,
        True,
        *[False] * 3,
    ]

    # Outputs stored anew, as by Run All and Save in JupyterLab, are hidden again.
    notebook.cells[1:] = cells
    notebook.cells[3].metadata.clear()
    notebook.cells[3].outputs = [stdout("39 tokens\n")]
    save(notebook, tmp_path)
    assert gate.check_file(path) != []
    assert gate.check_file(path, fix=True) == []
    again = nbformat.read(path, as_version=4).cells[3]
    assert again.metadata == {"collapsed": True, "jupyter": {output: True}}
    assert again.outputs == [COVER, stdout("39 tokens\n")]


def test_the_stated_time_follows_from_the_count(tmp_path):
    notebook = good()
    headed(STATED)(notebook)
    path = save(notebook, tmp_path)
    assert gate.check_file(path) == []
    counted = gate.count(notebook)
    assert (counted.words, counted.lines, counted.predictions, counted.exercises) == (360, 30, 1, 1)
    notebook.cells[0].source += " word" * (180 * 4 + 90)  # 10 minutes and a word
    assert gate.count(notebook).reading == 10
    notebook.cells[0].source += " word"
    assert gate.count(notebook).reading == 15


def test_fix_keeps_the_static_picture_of_a_widget(tmp_path):
    notebook = good()
    picture = {"text/html": "<svg></svg>", "text/plain": "KV cache"}
    notebook.cells[1].outputs = [bundle(**{gate.WIDGET: WIDGET_VIEW, **picture})]
    path = save(notebook, tmp_path)
    assert gate.check_file(path, fix=True) == []
    assert nbformat.read(path, as_version=4).cells[1].outputs[0].data == picture


def test_fix_names_only_cells_without_an_id_and_the_same_way_each_time(tmp_path):
    notebook = good()
    no_id(notebook)
    first, second = save(notebook, tmp_path, "a.ipynb"), save(notebook, tmp_path, "b.ipynb")
    for path in (first, second):
        assert gate.check_file(path, fix=True) == []
    assert first.read_bytes() == second.read_bytes()
    ids = [cell.id for cell in nbformat.read(first, as_version=4).cells]
    assert [ids[0], *ids[2:]] == ["top", "two", "three", "four"]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "source",
    [
        r"'Q:\nA:\n'",
        r"$f:\mathbb{R}\to\mathbb{R}$",
        "{'a:b': 1}",
        "https://example.com/Users/x",
        "a / tmp / b",
        "./tmp/x",
    ],
)
def test_what_only_looks_like_a_local_path(source, tmp_path):
    notebook = good()
    notebook.cells[1].source = source
    assert gate.check_file(save(notebook, tmp_path)) == []


def test_fix_writes_what_nbformat_writes(tmp_path):
    notebook = good()
    notebook.cells[0].source = "é ² 日本"
    path = tmp_path / "lesson.ipynb"
    path.write_text(json.dumps(notebook, indent=4), encoding="utf-8")
    assert [finding.cell for finding in gate.check_file(path)] == [None]
    assert gate.check_file(path, fix=True) == []
    by_nbformat = tmp_path / "saved.ipynb"
    nbformat.write(nbformat.read(path, as_version=4), by_nbformat)
    assert path.read_bytes() == by_nbformat.read_bytes()
    assert "é ² 日本".encode() in path.read_bytes()


@pytest.mark.parametrize("text", ["<<<<<<< ours\n{}", "[]", "{}", '{"nbformat": 3, "worksheets": []}', ""])
def test_a_file_that_is_no_notebook_is_reported_and_left_alone(text, tmp_path, capsys):
    path = tmp_path / "lesson.ipynb"
    path.write_text(text, encoding="utf-8")
    for arguments in ([path], ["--fix", path]):
        status, lines = run(capsys, *arguments)
        assert (status, len(lines)) == (1, 1)
    assert path.read_text(encoding="utf-8") == text


def test_checkpoints_are_not_looked_at_and_a_missing_path_is_an_error(tmp_path, capsys):
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "old.ipynb").write_text("{")
    assert run(capsys, tmp_path) == (0, [])
    with pytest.raises(SystemExit) as stop:
        run(capsys, tmp_path / "nowhere.ipynb")
    assert stop.value.code == 2


def test_a_course_without_notebooks_yet_passes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    assert run(capsys) == (0, [])
