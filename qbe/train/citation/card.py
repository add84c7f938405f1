"""The model card of the citation model, in Markdown, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping

from qbe.cite.model import CitationModel
from qbe.train.citation.figures import CitationFigures
from qbe.train.markdown import decimals, document, file_list, table

_KNOWN = {
    "text": "texts and years",
    "links": "and who cites whom in the index",
    "seeds": "texts, years, and half of the bibliography",
    "links+seeds": "all of it",
    "text, half left out": "texts and years; the other half",
    "links, half left out": "and who cites whom; the other half",
}


def describe(
    model: CitationModel,
    figures: Mapping[str, CitationFigures],
    projections: Mapping[str, float],
    size: int,
) -> str:
    """The card's text.

    ``figures`` are those on dev by what is known, ``projections`` F1@20 on dev of each seed's projection
    alone, ``size`` the bytes of the model.
    """
    recipe = model.training["recipe"]
    known = [[_KNOWN[key], *decimals(each, 3)] for key, each in figures.items()]
    seeds = [[name, *decimals([value], 4)] for name, value in projections.items()]
    return document(
        [
            "# citation",
            f"Recommends papers to cite: a projection of the stored vectors of {model.encoder['name']}, and "
            f"small networks that judge candidates ({size / 1e6:.1f} MB). Written by `qbe train citation`.",
            "## Figures on dev",
            "Means over the queries. With half of the bibliography known the other half is to be found; the "
            "rows `the other half` have the same task without that knowledge.",
            table(["known", "F1@20", "MRR", "recall"], known),
            "The projection alone, over all papers that are not younger, F1@20:",
            table(["seed", "F1@20"], seeds),
            "## Recipe",
            "Sentences and whole papers are compared by late interaction of their projected vectors; the "
            "matrices begin as the identity and are held near it. Cross-entropy of each cited paper against "
            f"all that are not cited, {recipe['projection']['queries']} queries a step; the epoch is chosen "
            "on dev, the published projection is the mean of the seeds'. The networks (one hidden layer of "
            f"{recipe['heads']['hidden']}) learn from the queries of the last {recipe['held_back']} years of "
            "train, by the features of a projection that was fitted without these.",
            "## Data",
            file_list(model.training["data"]),
            f"Index: digest {model.training['index']}. Dev chose epochs and the weights of the first stage.",
            "## Limits",
            "Trained on papers of one field (visualization, 1990 to 2018). Citations in the index count only "
            "where its papers' metadata have `cites`.",
            "## Licence",
            "Apache License, Version 2.0.",
        ]
    )
