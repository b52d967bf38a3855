"""How the package hangs together: imports point one way, private names stay private, and starting is light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# What each part of the package may import, besides itself and what all may: a new part needs a line. "llmlesson" is the
# package itself, whose names are those of the engine and what serves it.
LEAVES = {"errors", "limits"}
SERVING = {"files", "engine", "measure", "batching", "server", "llmlesson"}
MAY_IMPORT = {
    "llmlesson": {"engine", "batching", "server"},
    "files": set(),
    "engine": {"files"},
    "measure": {"files", "engine"},
    "batching": {"files", "engine", "measure"},
    "server": {"files", "engine", "measure", "batching"},
    "benchmark": SERVING,
    "parallel": {"files", "engine"},
    "sizing": {"files"},
    "doctor": {"files", "server"},  # where the balancer is, its check asks the server's own function
    "views": {"measure", "batching", "server", "benchmark", "parallel", "sizing"},  # data, and never an engine
    "widgets": SERVING | {"benchmark", "parallel", "sizing", "views"},
    "lessons": SERVING | {"benchmark", "parallel", "sizing", "views"},
    "commands": SERVING | {"benchmark", "parallel", "sizing", "views", "doctor"},
    "cli": {"commands", "llmlesson"},
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """llmlesson.engine.cache is of the part "engine"; the package itself is of "llmlesson"."""
    return module.split(".")[1] if "." in module else module


@cache
def sources() -> dict[str, ast.Module]:
    return {
        module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "llmlesson").rglob("*.py")
    }


def imports(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """The modules of the package that `tree` imports, wherever it does: in a function and for types too."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            # Both `from llmlesson.views import cache` and `from llmlesson.views.cache import page` import a module.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else str(node.module) for name in names]
        yield from (name for name in names if name in modules)


def graph(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    return {module: set(imports(tree, set(trees))) - {module} for module, tree in trees.items()}


def wrong_arrows(trees: dict[str, ast.Module]) -> list[str]:
    found = []
    for module, imported in graph(trees).items():
        part = part_of(module)
        allowed = set() if part in LEAVES else {part} | LEAVES | MAY_IMPORT.get(part, set())
        found += [f"{module} imports {other}" for other in imported if part_of(other) not in allowed]
    return sorted(found)


def circle(trees: dict[str, ast.Module]) -> list[str]:
    try:
        TopologicalSorter(graph(trees)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def private_names_taken(trees: dict[str, ast.Module]) -> list[str]:
    """Names with an underscore that a module takes from another part: imported, or read off an object."""
    defined = {module: set(private_definitions(tree)) for module, tree in trees.items()}
    found = []
    for module, tree in trees.items():
        within_reach = MAY_IMPORT.get(part_of(module), set()) | LEAVES
        foreign = set().union(*(names for other, names in defined.items() if part_of(other) in within_reach))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and part_of(str(node.module)) != part_of(module):
                found += [f"{module}: {alias.name}" for alias in node.names if is_private(alias.name)]
            elif isinstance(node, ast.Attribute) and node.attr in foreign and not is_own(node.value):
                # `other._length` may well be of a class of the module's own; `self.engine._length` is not.
                own = node.attr in defined[module] and isinstance(node.value, ast.Name)
                found += [] if own else [f"{module}: {node.attr}"]
    return sorted(set(found))


def private_definitions(tree: ast.Module) -> Iterator[str]:
    """What a module defines: functions, classes, variables, and attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            name = node.attr
        else:
            continue
        if is_private(name):
            yield name


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_")  # __len__ is Python's, _repr_mimebundle_ is IPython's


def is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def parsed(**modules: str) -> dict[str, ast.Module]:
    return {f"llmlesson.{name.replace('__', '.')}": ast.parse(source) for name, source in modules.items()}


def test_imports_point_one_way():
    assert wrong_arrows(sources()) == []


def test_no_imports_go_round_in_a_circle():
    assert circle(sources()) == []


def test_no_part_uses_private_names_of_another():
    assert private_names_taken(sources()) == []


def test_a_wrong_arrow_is_found_wherever_it_is():
    engine = "def f():\n    from llmlesson.measure import cost"
    arrows = wrong_arrows(parsed(engine__cache=engine, measure__cost="", errors="import llmlesson.measure.cost"))
    assert arrows == [
        "llmlesson.engine.cache imports llmlesson.measure.cost",
        "llmlesson.errors imports llmlesson.measure.cost",
    ]
    new = parsed(kitchen__stove="from llmlesson.engine.cache import KVCache", engine__cache="")
    assert wrong_arrows(new) == ["llmlesson.kitchen.stove imports llmlesson.engine.cache"]


def test_a_circle_is_found_also_where_one_of_its_imports_is_late_or_for_types():
    size = "class Size:\n    def explain(self):\n        from llmlesson.sizing.explain import explain"
    explain = "if TYPE_CHECKING:\n    from llmlesson.sizing.size import Size"
    assert set(circle(parsed(sizing__size=size, sizing__explain=explain))) == {
        "llmlesson.sizing.size",
        "llmlesson.sizing.explain",
    }


def test_a_private_name_of_another_part_is_found():
    engine = "class Engine:\n    def _read(self): pass\ndef _top(): self._left = 1"
    widget = "from llmlesson.engine.engine import _top\nclass W:\n    def _read(self): self._read(self.engine._read)"
    taken = private_names_taken(parsed(engine__engine=engine, widgets__w=widget, widgets__v="x._left"))
    assert taken == ["llmlesson.widgets.v: _left", "llmlesson.widgets.w: _read", "llmlesson.widgets.w: _top"]
    assert private_names_taken(parsed(engine__engine=engine, engine__load="engine._read()")) == []
    shows = "class Figure:\n    def _repr_html_(self): pass"
    assert private_names_taken(parsed(views__plot=shows, widgets__w="figure._repr_html_()")) == []


def test_importing_the_package_and_asking_for_help_load_nothing_else():
    """Not torch, which is slow; and none of the packages whose absence `llmlesson doctor` is to report."""
    code = """
import contextlib, io, sys
before = set(sys.modules)
import llmlesson, llmlesson.cli, llmlesson.commands, llmlesson.doctor
for arguments in ([], *([name] for name in llmlesson.commands.COMMANDS)):
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        llmlesson.cli.main([*arguments, "--help"])
    assert shown.getvalue().startswith("usage: llmlesson " + " ".join(arguments)), shown.getvalue()
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout.split(), result.stderr) == (["llmlesson"], "")
