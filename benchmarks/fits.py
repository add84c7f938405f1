"""How often the note that nothing fits is right: ``python -m benchmarks.fits --index DIR``.

A list is the judged papers of a query in a file, ranked by a facet as a search ranks. One with the
note should have no hit (a grade of 1.5 or more) among its first five, one without it should have two.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import qbe
from qbe.query import SIMILAR_FROM
from qbe.runs import read_graded_pairs
from qbe.search.grading import FIRST_HITS, NOTHING_FITS, open_grader
from qbe.search.rerankers import JointGrader
from qbe.train.grades import query_of
from qbe.types import Facet

PAIRS = [f"data/graded-pairs/{name}.tsv" for name in ("wild-dev", "wild-dev-2", "small-dev")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", required=True, help="an index of the papers")
    parser.add_argument("--pairs", nargs="+", default=PAIRS, help="files of judged first hits")
    parser.add_argument(
        "--at", type=float, nargs="+", default=[NOTHING_FITS], help="grades below which none fits"
    )
    options = parser.parse_args()
    index, lists = qbe.open(options.index), list[tuple[float, int]]()
    grader, joint = open_grader(index), JointGrader()
    for query, pairs in (each for file in options.pairs for each in read_graded_pairs(Path(file)).items()):
        candidates = [index.paper(pair.paper_id) for pair in pairs]
        stored = grader.grade(query_of(index.reader, query), candidates)[0].grades
        grades = (stored + joint.grade(index.paper(query), candidates)) / 2
        for place in range(len(Facet)):
            first = np.argsort(-grades[:, place], kind="stable")[:FIRST_HITS]
            hits = sum(pairs[row].grades[place] >= SIMILAR_FROM for row in first)
            lists.append((float(grades[first, place].max()), hits))
    print("| best grade | lists with the note | of these with a hit | lists without | of these with two |")
    print("|---:|---:|---:|---:|---:|")
    for bound in options.at:
        marked, others = (
            [hits for best, hits in lists if (best <= bound) is is_marked] for is_marked in (True, False)
        )
        shares = [np.mean(np.array(marked) > 0), np.mean(np.array(others) > 1)]
        print(f"| {bound:.2f} | {len(marked)} | {shares[0]:.2f} | {len(others)} | {shares[1]:.2f} |")


if __name__ == "__main__":
    main()
