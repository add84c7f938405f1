"""``qbe datasets``: a test collection as corpus, topics, pools, qrels and folds."""

import sys
from functools import partial

from qbe.cli import common
from qbe.cli.parser import parse
from qbe.datasets.registry import DatasetOptions, write_dataset


def main(arguments: list[str]) -> None:
    collection = arguments[0] if arguments and arguments[0].startswith("irds:") else None
    options = parse("datasets", ["irds", *arguments[1:]] if collection else arguments)
    chosen = common.made(DatasetOptions, options, split_years=getattr(options, "split_year", None))
    name, output, report = collection or options.command, options.output, partial(print, file=sys.stderr)
    print(*write_dataset(name, output, chosen, overwrite=options.overwrite, report=report), sep="\n")
    print(f"written to {output}")
