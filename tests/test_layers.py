"""The layers of docs/design.md: packages import downwards only, some libraries are imported in one place."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from support.syntax import import_statements

import qbe

ROOT = Path(qbe.__file__).parent

PLAN = (ROOT.parent / "docs" / "design.md").read_text(encoding="utf-8")
BASE = {"types", "query", "shapes", "errors", "files", "outputs", "parallel"}
BASE |= {"plain", "processes"}


def layers() -> dict[str, set[str]]:
    """Part of qbe -> parts it may import, itself apart, as the table of docs/design.md has it."""
    section = PLAN[PLAN.index("## Layers") : PLAN.index("Within `qbe/index/`")]
    allowed = {}
    for part, imports in re.findall(r"^\| `qbe/(\w+?)(?:/|\.py)` \|.*\| ([^|]+) \|$", section, re.MULTILINE):
        names = set() if imports == "nothing" else set(imports.split(", "))
        allowed[part] = (names - {"base"}) | (BASE if "base" in names else set())
    return allowed


MAY_IMPORT = layers()

IMPORTED_IN = {
    "jnius": {"_jvm"},
    "jnius_config": {"_jvm"},
    "pyserini": set(),
    "torch": {"export", "train"},
    "transformers": {"export", "train"},
    "onnx": {"export", "models", "train"},
    "faiss": {"index"},
    "matplotlib": {"evaluate", "train"},
    "tqdm": {"_cli"},
    "shtab": {"completion"},
    "ray": {"cluster"},
}
"""Library -> parts of qbe that may import it."""

FILES = sorted(ROOT.rglob("*.py"))


def name(file: Path) -> str:
    return ".".join(("qbe", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def part_of(module: str) -> str:
    """The package of qbe, or the module outside packages, that a module belongs to."""
    return module.split(".")[1] if "." in module else "qbe"


MODULES = {name(file) for file in FILES}
PART_FILES = [file for file in FILES if file != ROOT / "__init__.py"]


def imports(file: Path) -> Iterator[str]:
    """Modules that a file imports anywhere, in functions and for type checking too."""
    for node in import_statements(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert not node.level, f"{file}: a relative import"
            yield from (
                f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in MODULES else node.module
                for alias in node.names
            )


def test_imports_go_downwards():
    wrong = []
    for file in PART_FILES:
        own = part_of(name(file))
        command = file.name == "__main__.py" or file.stem.endswith("options")
        allowed = MAY_IMPORT[own] | {own} | ({"_cli"} if command else set())
        for module in imports(file):
            package = module.partition(".")[0]
            upwards = package == "qbe" and part_of(module) not in allowed
            if upwards or own not in IMPORTED_IN.get(package, {own}):
                wrong.append(f"{name(file)} imports {module}")
    assert not wrong


def test_parts_have_an_order():
    assert {part_of(name(file)) for file in PART_FILES} == MAY_IMPORT.keys()
    TopologicalSorter(MAY_IMPORT).prepare()


def test_no_module_imports_itself_in_a_circle():
    graph = {
        name(file): {module for module in imports(file) if module.startswith("qbe.")} - {name(file)}
        for file in PART_FILES
    }
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("outer", ["index", "train"])
def test_packages_within_a_package_have_an_order(outer):
    def within(module: str) -> str:
        """A module of the outer package's own, or the package within it that a module is of."""
        return ".".join(module.split(".")[:3])

    graph: dict[str, set[str]] = {}
    for file in (ROOT / outer).rglob("*.py"):
        own = within(name(file))
        ours = {within(module) for module in imports(file) if module.startswith(f"qbe.{outer}.")}
        graph.setdefault(own, set()).update(ours - {own})
    TopologicalSorter(graph).prepare()


def test_libraries_do_not_print():
    libraries = {file for file in FILES if file.name != "__main__.py" and file.stem != "_cli"}
    for file in libraries:
        text = file.read_text(encoding="utf-8")
        nodes = ast.walk(ast.parse(text)) if "print(" in text else ()
        calls = (node.func for node in nodes if isinstance(node, ast.Call))
        assert "print" not in {call.id for call in calls if isinstance(call, ast.Name)}, file


def test_a_search_reaches_few_modules():
    """Imports within functions and for type checking count, packages by themselves do not."""
    files = {name(file): file for file in FILES}
    reached, left = set(), ["qbe.search.__main__"]
    while left:
        module = left.pop()
        if module in files and module not in reached:
            reached.add(module)
            left += imports(files[module])
    assert len(reached) <= 130
