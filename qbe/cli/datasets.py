"""``qbe datasets``: a test collection as corpus, topics, pools, qrels and folds."""

from __future__ import annotations

import sys

from qbe.cli import common as _cli
from qbe.cli.datasets_options import PROGRAM, parser

OPTIONS = {"split_years": "--split-year"}


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)

    from qbe.datasets.registry import DatasetOptions, write_dataset

    summary = write_dataset(
        options.name,
        options.output,
        DatasetOptions(
            options.source,
            options.raw,
            options.corpus,
            tuple(options.split_year),
            tuple(options.leave_out),
        ),
        overwrite=options.overwrite,
        report=lambda line: print(line, file=sys.stderr),
    )
    print("\n".join(summary))
    print(f"written to {options.output}")


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
