"""What ``pytest --doctest-modules qbe`` collects: the modules whose docstrings have examples, and no others.

Collecting imports a module, and importing all of them would load PyTorch.
"""

from pathlib import Path

PACKAGE = Path(__file__).parent / "qbe"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a module of the package that has no example."""
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(PACKAGE):
        return None
    return ">>> " not in collection_path.read_text(encoding="utf-8") or None
