"""``qbe datasets``: a test collection as corpus, topics, pools, qrels and folds."""

from __future__ import annotations

import sys

from qbe import _cli
from qbe.datasets.options import PROGRAM, parser

OPTIONS = {"split_years": "--split-year"}


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)

    from qbe.datasets.registry import write_dataset

    summary = write_dataset(
        options.name,
        options.output,
        source=options.source,
        raw=options.raw,
        limit=options.limit,
        corpus=options.corpus,
        split_years=options.split_year,
        leave_out=options.leave_out,
        overwrite=options.overwrite,
        report=lambda line: print(line, file=sys.stderr),
    )
    print("\n".join(summary))
    print(f"written to {options.output}")


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
