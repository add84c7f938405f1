"""The model card of the facet rerankers."""

from __future__ import annotations

from qbe.models.registry import BASE_ENCODER
from qbe.models.reranker_files import FacetRerankersMetadata
from qbe.train.card import APACHE, GRADES_LIMITS, Card, all_data, facet_table


def describe(metadata: FacetRerankersMetadata, size: int) -> str:
    """The card's text; ``size`` is the bytes of all files together.

    It says how the weights were learned: from graded pairs, or from the scores of a teacher.
    """
    training = metadata.training
    teacher = training.get("teacher")
    learned = "from graded pairs"
    if teacher:
        learned = (
            f"from the scores of {teacher['encoder']['name']} (weights "
            f"{teacher['encoder']['weights_sha256'][:12]}, projections {teacher['projections'][:12]})"
        )
    share = f", {training['share']:g} of the trained weights and the start's" if "share" in training else ""
    figures = {**training["dev"], **training["exported"]}
    return Card(
        name=metadata.name,
        purpose="A cross-encoder for each facet (background, method, result) over weights that they share, "
        f"in {metadata.precision}, learned {learned}. Candidates are scored by late interaction of "
        "sentences, tokens and whole papers.",
        input=f"title and abstract with labelled sentences, {metadata.max_tokens} tokens each",
        figures="Spearman's correlation with the grades of dev, mean over "
        f"{training['queries']['dev']:,} queries. Published: {training['shipped']}{share}; fp32 and int8 are "
        "its exported models.",
        table=facet_table(["weights"], ([name, *row] for name, row in figures.items())),
        data=all_data(training),
        command="distillation --index DIR" if teacher else "reranker",
        limits=GRADES_LIMITS,
        licence=f"{APACHE}; derived from {BASE_ENCODER} (same licence)",
    ).markdown(size)
