"""``qbe demo``: a first search, in the sample that is part of the package."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe demo"
OPTIONS: dict[str, str] = {}

EPILOG = """\
Indexes the 128 invented papers of the sample, searches papers like one of them by its method and by its
background, and says what to do next. Nothing but Lucene is downloaded, where pyserini is not installed, and
without a network the sample is searched by vectors alone. The index is kept in demo/sample in $QBE_CACHE or
~/.cache/qbe, and used the next time.
"""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = _cli.parser(PROGRAM, "Search the sample that is part of the package, and see what a facet is.")
    parser.epilog = EPILOG
    return parser


def main(arguments: list[str]) -> None:
    parser().parse_args(arguments)

    import shutil
    import sys

    from qbe.cli.demo_sample import SAMPLE, about_the_sample, next_steps, open_sample_index, searches
    from qbe.datasets.sample import read_layout
    from qbe.search.pipeline import Pipeline

    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    with open_sample_index(lambda line: print(line, file=sys.stderr)) as index:
        print(f"The sample, {len(index)} papers, is indexed in {index.folder}\n", flush=True)
        with Pipeline(index) as pipeline:
            for text in searches(pipeline, read_layout(SAMPLE / "layout.json"), width):
                print(text, flush=True)
        print(f"{about_the_sample(width)}\n\n{next_steps(index.folder)}")


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
