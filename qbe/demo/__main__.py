"""``qbe demo``: a first search, in the sample that is part of the package."""

from __future__ import annotations

from qbe import _cli
from qbe.demo.options import PROGRAM, parser

OPTIONS: dict[str, str] = {}


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)

    import shutil
    import sys
    from pathlib import Path

    from qbe.datasets.embedded import read_layout
    from qbe.demo.explaining import about_the_sample, next_steps
    from qbe.demo.sample_index import SAMPLE, open_sample_index
    from qbe.demo.showing import searches
    from qbe.search.pipeline import Pipeline

    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    folder = Path(options.output) if options.output else None
    with open_sample_index(folder, lambda line: print(line, file=sys.stderr)) as index:
        print(f"The sample, {len(index)} papers, is indexed in {index.folder}\n", flush=True)
        with Pipeline(index) as pipeline:
            for text in searches(pipeline, read_layout(SAMPLE / "layout.json"), width):
                print(text, flush=True)
        print(f"{about_the_sample(width)}\n\n{next_steps(index.folder)}")


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
