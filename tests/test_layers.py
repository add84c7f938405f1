"""The table of docs/design.md: what each package may import, and how many lines it may have."""

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
FILES = sorted(ROOT.rglob("*.py"))
ROW = r"^\| `qbe/(\w+)(?:/|\.py)?` \|[^|]*\| ([^|]+) \| ([\d,]*) \|$"

MAY_IMPORT = {
    part: set() if allowed == "nothing" else set(allowed.split(", "))
    for part, allowed, _ in re.findall(ROW, PLAN, re.MULTILINE)
}
BUDGET = {
    part: int(lines.replace(",", "")) for part, _, lines in re.findall(ROW, PLAN, re.MULTILINE) if lines
}
TOTALS = {
    name: int(number.replace(",", ""))
    for name, number in re.findall(
        r"^\| (lines|modules|tests|benchmarks and scripts) \| ([\d,]+) \|$", PLAN, re.MULTILINE
    )
}

IMPORTED_IN = {
    "jnius": {"qbe.index.jvm"},
    "jnius_config": {"qbe.index.jvm"},
    "pyserini": set(),
    "torch": {"qbe.models.export", "qbe.train"},
    "transformers": {"qbe.models.export", "qbe.train"},
    "onnx": {"qbe.models", "qbe.train"},
    "faiss": {"qbe.index"},
    "matplotlib": {"qbe.evaluate", "qbe.train"},
    "tqdm": {"qbe.cli"},
    "shtab": {"qbe.cli"},
    "ray": {"qbe.cluster"},
}
"""Library -> modules or packages of qbe that may import it."""


def name(file: Path) -> str:
    return ".".join(("qbe", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def part_of(module: str) -> str:
    """The package of qbe, or the module outside packages, that a module belongs to."""
    return module.split(".")[1] if "." in module else "qbe"


MODULES = {name(file) for file in FILES}
PART_FILES = [
    file
    for file in FILES
    if file.parent != ROOT or file.name not in ("__init__.py", "__main__.py")
    if file.name != "__main__.py"
]


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


def lines_of(files: Iterator[Path] | list[Path]) -> int:
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def test_imports_go_downwards():
    wrong = []
    for file in PART_FILES:
        own = part_of(name(file))
        for module in imports(file):
            library = module.partition(".")[0]
            public = {"qbe"} if own == "cli" else set()  # the command line is written on the public face
            upwards = library == "qbe" and part_of(module) not in MAY_IMPORT[own] | {own} | public
            elsewhere = library in IMPORTED_IN and not any(
                f"{name(file)}.".startswith(f"{home}.") for home in IMPORTED_IN[library]
            )
            if upwards or elsewhere:
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


def test_libraries_do_not_print():
    for file in FILES:
        if file.name == "__main__.py" or file.parent.name == "cli":
            continue
        text = file.read_text(encoding="utf-8")
        nodes = ast.walk(ast.parse(text)) if "print(" in text else ()
        calls = (node.func for node in nodes if isinstance(node, ast.Call))
        assert "print" not in {call.id for call in calls if isinstance(call, ast.Name)}, file


@pytest.mark.parametrize("part", sorted(BUDGET))
def test_a_package_keeps_its_budget(part):
    files = [file for file in FILES if part_of(name(file)) == part]
    assert lines_of(files) <= BUDGET[part]


def test_the_house_keeps_its_budget():
    project = ROOT.parent
    outside = [file for folder in ("benchmarks", "scripts") for file in (project / folder).rglob("*.*")]
    assert lines_of(FILES) <= TOTALS["lines"]
    assert len(FILES) <= TOTALS["modules"]
    assert lines_of(list((project / "tests").rglob("*.py"))) <= TOTALS["tests"]
    sources = [file for file in outside if file.suffix in (".py", ".sh")]
    assert lines_of(sources) <= TOTALS["benchmarks and scripts"]
