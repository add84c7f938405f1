"""Makes the documentation site in ``site/`` out of the pages of the repository, by ``make docs``.

The pages link to each other, to cards of models and to code by paths of the repository. So all tracked pages,
and the files that they link to, are copied to one folder with their paths, and MkDocs checks every link.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAVIGATION = [
    {"qbe": "README.md"},
    {"Searching": "docs/searching.md"},
    {"Corpora": "docs/corpora.md"},
    {"Indexing": "docs/indexing.md"},
    {"New papers": "docs/watching.md"},
    {"Citations": "docs/citing.md"},
    {"Page and HTTP": "docs/serve.md"},
    {"Python": "docs/api.md"},
    {"Models": "docs/models.md"},
    {"Labelling": "docs/labelling.md"},
    {"Evaluation": "docs/evaluation.md"},
    {"Evidence": "docs/evidence.md"},
    {"Reproducing": "docs/reproduce.md"},
    {"The four papers": "docs/papers.md"},
    {"Commands": "docs/cli.md"},
    {"Clusters": "docs/cluster.md"},
    {"Design": "docs/design.md"},
    {"Lessons": "docs/lessons.md"},
    {"Changes": "CHANGELOG.md"},
]
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def linked_files(pages: list[Path]) -> set[Path]:
    """The files of the repository that pages link to."""
    linked = {(page.parent / link).resolve() for page in pages for link in _LINK.findall(page.read_text())}
    return {path for path in linked if path.is_relative_to(ROOT) and path.is_file()}


def make(site: Path) -> int:
    """Write the site to a folder; returns MkDocs' exit code, which is not 0 where a link leads nowhere."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    listing = ["git", "ls-files", "*.md"]
    tracked = subprocess.check_output(listing, cwd=ROOT, text=True).splitlines()
    pages = [ROOT / name for name in tracked if not name.startswith("tests/")]
    with tempfile.TemporaryDirectory() as folder:
        for path in {*pages, *linked_files(pages)}:
            target = Path(folder, "pages", path.relative_to(ROOT))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        config = Path(folder, "mkdocs.yml")
        config.touch()
        settings = {
            "site_name": "qbe",
            "docs_dir": str(Path(folder, "pages")),
            "site_dir": str(site),
            "nav": NAVIGATION,
            "strict": True,
            "theme": {"name": "mkdocs", "highlightjs": False},
            "validation": {"nav": {"omitted_files": "ignore"}, "links": {"anchors": "warn"}},
        }
        try:
            build(load_config(str(config), **settings))
        except Abort as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(make(ROOT / "site"))
