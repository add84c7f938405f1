"""How often the note that nothing fits is right, on judged first hits: ``python -m benchmarks.fits``.

Each list is the judged papers of a query, ranked by the mean of both grades in a facet, as a search ranks its
first hits. A list that has the note should have no hit (a grade of 1.5 or more) among its first five, one
without it should have two.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import qbe
from qbe.runs import read_graded_pairs
from qbe.search.grading import FIRST_HITS, NOTHING_FITS, chance_of_none, open_grader
from qbe.search.rerankers import JointGrader
from qbe.train.grades import query_of
from qbe.types import Facet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", required=True, help="an index of the papers")
    parser.add_argument("--pairs", nargs="+", required=True, help="files of judged first hits")
    parser.add_argument("--at", type=float, nargs="+", default=[NOTHING_FITS], help="chances that none fits")
    options = parser.parse_args()
    index = qbe.open(options.index)
    grader, joint, lists = open_grader(index), JointGrader(), []
    for file in options.pairs:
        for query, pairs in read_graded_pairs(Path(file)).items():
            paper, candidates = index.paper(query), [index.paper(each.paper_id) for each in pairs]
            stored = grader.grade(query_of(index.reader, query), candidates)[0].grades
            jointly = joint.grade(paper, candidates)
            for place, facet in enumerate(Facet):
                grades = (stored[:, place] + jointly[:, place]) / 2
                first = np.argsort(-grades, kind="stable")[:FIRST_HITS]
                none = chance_of_none([{facet.value: float(grades[row])} for row in first], facet)
                lists.append((none, sum(pairs[row].grades[place] >= 1.5 for row in first)))
    print("| chance of none | lists with the note | of these with a hit | without | of these with two |")
    print("|---:|---:|---:|---:|---:|")
    for bound in options.at:
        marked = [hits for none, hits in lists if none >= bound]
        others = [hits for none, hits in lists if none < bound]
        wrong = sum(hits > 0 for hits in marked) / max(1, len(marked))
        right = sum(hits > 1 for hits in others) / max(1, len(others))
        print(f"| {bound:.2f} | {len(marked)} | {wrong:.2f} | {len(others)} | {right:.2f} |")


if __name__ == "__main__":
    main()
