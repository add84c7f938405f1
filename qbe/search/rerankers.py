"""Rerankers made of models: cross-encoders, joint grades, a language model, functions of the user."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, UsageError
from qbe.index.index import Index
from qbe.models import cards
from qbe.models.encoding import EncodedAspect, PaperTokenizer, SpecialTokens, batches, padded, pair_input
from qbe.models.folders import joint_folder, resolve_encoder, resolve_reranker
from qbe.models.session import AUTO, CPU, HALF, check_precision, chosen_device, open_session
from qbe.query import Aspect
from qbe.search import grading, projections, stages
from qbe.search.rank import Progress, Requests, RequestScores, Reranker, RerankScore, RerankStage
from qbe.types import Facet, Paper
from qbe.util.work import Memo, Workers, idle

if TYPE_CHECKING:
    from qbe.models.language_model import Grader as LanguageModelGrader

log = logging.getLogger("qbe.search")

Scoring = Callable[[Aspect, Sequence[Paper]], Sequence[float]]


class FunctionReranker:
    """A function of an aspect and papers as a reranker, called for the papers of one aspect at a time."""

    needs_vectors, takes_whole_abstracts = False, True

    def __init__(self, function: Scoring) -> None:
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def batch_score(self, requests: Requests, progress: Progress | None = None) -> RequestScores:
        """Raises ModelError for other results than a number for each paper."""
        results = []
        for query, papers in requests:
            given: Any = self._function(query.aspect, papers) if papers else []
            try:
                scores = [RerankScore(float(score)) for score in given]
            except (TypeError, ValueError):
                scores = []
            if len(scores) != len(papers) or isinstance(given, Mapping):
                raise ModelError(
                    f"expected {len(papers)} scores of the reranker {self.name}, one for each paper, found "
                    f"{given!r:.60}; return a list of numbers"
                )
            results.append(scores)
            if progress and papers:
                progress(len(papers))
        return results


def query_text(aspect: Aspect) -> str:
    """Join the title of an aspect's paper and the sentences that it selects."""
    return paper_text(aspect.paper, " ".join(aspect.paper.texts(aspect.selected_positions())))


def paper_text(paper: Paper, text: str | None = None) -> str:
    """Join a paper's title and a text, by default its abstract."""
    text = paper.abstract if text is None else text
    return f"{paper.title.rstrip('. ')}. {text}" if paper.title.strip() else text


def scoring_of(model: Any) -> Scoring | None:
    """Return a function that scores by a model of sentence-transformers; None for other objects."""
    by_pairs = callable(getattr(model, "predict", None))
    if not by_pairs and not callable(getattr(model, "encode", None)):
        return None

    def scores(aspect: Aspect, papers: Sequence[Paper]) -> list[float]:
        query, texts = query_text(aspect), [paper_text(each) for each in papers]
        if by_pairs:
            return [float(score) for score in model.predict([(query, text) for text in texts])]
        first, *candidates = model.encode([query, *texts], normalize_embeddings=True)
        return [float(first @ candidate) for candidate in candidates]

    return scores


_BATCH_TOKENS = 1 << 15  # of a batch in fp16, padding included

# Tokens of query and of candidate that are read, special ones included (Nogueira et al., 2020, section 4).
SIDE_TOKENS = 256


class ByFacet:
    """Scores queries of some facets by rerankers of their own, and all others by another one."""

    def __init__(self, rerankers: Mapping[Facet, Reranker], others: Reranker) -> None:
        self._rerankers, self._others = rerankers, others
        every = [*rerankers.values(), others]
        self.name = "+".join(dict.fromkeys(getattr(each, "name", type(each).__name__) for each in every[:-1]))
        self.needs_vectors = any(getattr(each, "needs_vectors", False) for each in every)
        self.takes_whole_abstracts = getattr(others, "takes_whole_abstracts", True)

    def batch_score(self, requests: Requests, progress: Progress | None = None) -> RequestScores:
        scores = []
        for request in requests:
            facet = request.query.aspect.facet
            reranker = self._others if facet is None else self._rerankers.get(facet, self._others)
            scores.append(reranker.batch_score([request], progress)[0])
        return scores


class Pair(NamedTuple):
    """Token ids, and for each its side: 0 up to the first [SEP], 1 after it."""

    ids: list[int]
    types: list[int]


class CrossEncoder:
    """Scores a query and a candidate, as one of TEXTS, in one pass of any exported BERT- or RoBERTa-family
    classifier of pairs (Nogueira et al., 2020, section 4); one of three outputs scores by the query's facet.

    One pair is one call of a single-threaded session; in fp16, which is for GPUs, pairs are scored in
    batches.
    """

    needs_vectors = False

    def __init__(self, files: cards.RerankerFiles, workers: Workers | None = None, device: str = CPU) -> None:
        """The model is loaded when it first scores: never, if no query of a search has a facet."""
        metadata = files.metadata
        self._files, self._device, self._batched = files, chosen_device(device), files.precision == HALF
        check_precision(files.precision, self._device)
        self.name, self._workers = metadata.name, workers or Workers()
        tokens = min(SIDE_TOKENS, metadata.max_tokens // 2)
        self._query_tokens = metadata.query_tokens or tokens
        self._candidate_tokens = metadata.candidate_tokens or tokens
        self._inputs = cards.PAIR_INPUTS if metadata.token_types else cards.PAIR_INPUTS[:-1]
        self._texts, self.takes_whole_abstracts = metadata.texts, metadata.labels != len(Facet)

    @cached_property
    def _opened(self) -> tuple[PaperTokenizer, Any]:
        self._files.verify()
        model = self._files.model
        if self._batched:
            from qbe.models.gpu import pair_batches  # the other precisions do without it

            model = pair_batches(self._files)
        session = open_session(model, self._device, inputs=self._inputs, outputs=[cards.SCORE])
        return PaperTokenizer(self._files.tokenizer), session

    def batch_score(self, requests: Requests, progress: Progress | None = None) -> RequestScores:
        tokenizer, _ = self._opened
        queries = [query_side(tokenizer, each.query, self._query_tokens, self._texts) for each in requests]
        pairs = [(number, paper) for number, request in enumerate(requests) for paper in request.papers]
        candidates = Memo[Paper, list[int]](
            lambda paper: candidate_side(tokenizer, paper, self._candidate_tokens, self._texts)
        )

        def row(work: tuple[int, Paper]) -> Pair:
            return pair(queries[work[0]], candidates(work[1]), tokenizer.special)

        rows, scores = list(self._workers.map(row, pairs)), [0.0] * len(pairs)
        # The longest first, so that no thread is left alone with a long one at the end.
        groups = list(batches([len(each.ids) for each in rows], _BATCH_TOKENS if self._batched else 1))
        in_order = map if self._batched else self._workers.map
        scored = in_order(lambda places: self._run([rows[place] for place in places]), groups)
        for places, found in zip(groups, scored, strict=True):
            for place, score in zip(places, found, strict=True):
                facet = requests[pairs[place][0]].query.aspect.facet
                scores[place] = float(score[list(Facet).index(facet) if facet and len(score) > 1 else 0])
            if progress:
                progress(len(places))
        ordered = map(RerankScore, scores)
        return [list(islice(ordered, len(request.papers))) for request in requests]

    def _run(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Scores (pairs, outputs) of pairs, the longest of which is the first, in one call."""
        tokenizer, session = self._opened
        length = len(pairs[0].ids)
        shape = len(pairs), padded(length) if self._batched else length
        arrays = {name: np.zeros(shape, np.int64) for name in cards.PAIR_INPUTS}
        arrays["input_ids"].fill(tokenizer.pad)
        for row, (ids, types) in enumerate(pairs):
            for name, values in zip(cards.PAIR_INPUTS, (ids, [1] * len(ids), types), strict=True):
                arrays[name][row, : len(ids)] = values
        (scores,) = session.run([cards.SCORE], {name: arrays[name] for name in self._inputs})
        return np.asarray(scores.reshape(len(pairs), -1))


OF_FACET, OF_ABSTRACT, WHOLE = "facet", "abstract", "whole"
TEXTS = {
    OF_FACET: "[CLS] title. the query's sentences [SEP] title. abstract [SEP]",
    OF_ABSTRACT: "[CLS] title. abstract [SEP] title. abstract [SEP]",
    WHOLE: "[CLS] title [SEP] abstract [SEP] title [SEP] abstract [SEP]",  # SciFACE (2026), section 3.10.1
}
"""What a cross-encoder reads of a query and a candidate."""


def query_side(
    tokenizer: PaperTokenizer, query: EncodedAspect, tokens: int, texts: str = OF_FACET
) -> list[int]:
    """Return the token ids of a query, one of TEXTS, cut to ``tokens`` less [CLS] and [SEP]."""
    paper = query.aspect.paper
    positions = sorted(query.positions) if texts == OF_FACET else range(len(paper.sentences))
    return _text_ids(tokenizer, paper, positions, tokens - 2, texts)


def candidate_side(tokenizer: PaperTokenizer, paper: Paper, tokens: int, texts: str = OF_FACET) -> list[int]:
    """Return the token ids of a candidate, one of TEXTS, cut to ``tokens`` less [SEP]."""
    room = tokens - 1 - len(tokenizer.between)
    return [*tokenizer.between, *_text_ids(tokenizer, paper, range(len(paper.sentences)), room, texts)]


def _text_ids(
    tokenizer: PaperTokenizer, paper: Paper, positions: Sequence[int], room: int, texts: str
) -> list[int]:
    """Join the token ids of title and sentences, cut at the end to ``room``: the title is cut last."""
    if texts == WHOLE:
        ids = [*tokenizer.ids(paper.title), tokenizer.special.sep]
    else:
        ids = tokenizer.ids(closed(paper.title))
    for text in paper.texts(positions):
        ids += tokenizer.ids(tokenizer.space + text)
    return ids[:room]


def closed(title: str) -> str:
    """End a title as a sentence."""
    title = title.rstrip()
    return title if not title or title[-1] in ".?!:" else f"{title}."


def pair(query: Sequence[int], candidate: Sequence[int], special: SpecialTokens) -> Pair:
    """Join both sides with special tokens."""
    first, second = [special.cls, *query, special.sep], [*candidate, special.sep]
    return Pair(first + second, [0] * len(first) + [1] * len(second))


# Tokens of a title, and of a title and an abstract together, that joint grades read; pairs that are cached.
TITLE_TOKENS, PAPER_TOKENS, KEPT = 96, 208, 4096


def paper_ids(tokenizer: PaperTokenizer, paper: Paper) -> list[int]:
    """Return the token ids of a paper's title and sentences, as far as joint grades read them."""
    ids = tokenizer.ids(paper.title)[:TITLE_TOKENS]
    for sentence in paper.sentences:
        ids += tokenizer.ids(tokenizer.space + sentence.text)
    return ids[:PAPER_TOKENS]


class JointGrader:
    """Grades pairs of papers in background, method and result, each from 0 (unrelated) to 3 (near identical).

    One pair is one call of a single-threaded session, so that grades do not depend on other pairs or threads.
    """

    name = cards.DEFAULT_RERANKER
    needs_vectors, takes_whole_abstracts = False, False
    background_penalty = stages.BACKGROUND_PENALTY  # where the stage has none

    def __init__(self, folder: Path = cards.JOINT_GRADES, workers: Workers | None = None) -> None:
        """The model is loaded when it first grades."""
        self._folder, self._workers = folder, workers or Workers()
        self.card = cards.read_card(folder, cards.JOINT_GRADER)
        self._graded = lru_cache(KEPT)(self._grade_pair)

    @cached_property
    def _opened(self) -> tuple[PaperTokenizer, Any]:
        tokenizer = resolve_encoder(cards.DEFAULT_ENCODER).tokenizer
        for path in (self._folder / cards.JOINT_MODEL, tokenizer):
            cards.verify_digest(path, self.card.files.get(path.name), "install qbe again, or train it again")
        session = open_session(
            self._folder / cards.JOINT_MODEL, inputs=cards.JOINT_INPUTS, outputs=[cards.JOINT_OUTPUT]
        )
        return PaperTokenizer(tokenizer), session

    def grade(
        self, paper: Paper, candidates: Sequence[Paper], progress: Progress | None = None
    ) -> NDArray[np.float64]:
        """Grade candidates by a paper, (candidates, 3)."""
        tokenizer, _ = self._opened
        sides = self._workers.map(lambda each: tuple(paper_ids(tokenizer, each)), [paper, *candidates])
        query, *others = sides
        grades = []
        for graded in self._workers.map(lambda other: self._graded(query, other), others):
            grades.append(graded)
            if progress:
                progress(1)
        return np.array(grades, np.float64).reshape(-1, 3)

    def _grade_pair(self, query: tuple[int, ...], candidate: tuple[int, ...]) -> NDArray[np.float64]:
        tokenizer, session = self._opened
        inputs = pair_input(query, candidate, tokenizer.special.cls, tokenizer.special.sep)
        (grades,) = session.run([cards.JOINT_OUTPUT], dict(zip(cards.JOINT_INPUTS, inputs, strict=True)))
        # Rounded, so that kinds of processors seldom rank differently.
        return np.asarray(grades[0].astype(np.float64).round(4))

    def batch_score(self, requests: Requests, progress: Progress | None = None) -> RequestScores:
        scores = []
        for (aspect, *_), papers in requests:
            assert aspect.facet is not None
            grades = self.grade(aspect.paper, papers, progress)[:, list(Facet).index(aspect.facet)]
            scores.append([RerankScore(float(grade)) for grade in grades])
        return scores


class LanguageModelReranker:
    """Scores candidates by a language model's grades; without one, by the mean of the others' scores."""

    needs_vectors, takes_whole_abstracts = False, True

    def __init__(self, grader: "LanguageModelGrader") -> None:
        self._grader = grader
        self.name = grader.client.endpoint.model

    def batch_score(self, requests: Requests, progress: Progress | None = None) -> RequestScores:
        pairs = []
        for (aspect, *_), papers in requests:
            query = aspect.paper
            if aspect.positions is not None:  # shown with picked sentences alone
                picked = tuple(query.sentences[position] for position in aspect.selected_positions())
                query = dataclasses.replace(query, sentences=picked, offsets=None)
            pairs += [(query, paper) for paper in papers]
        with idle():
            outcome = self._grader.grade(pairs, progress)
        if outcome.problems:
            place, problem = min(outcome.problems.items())
            if not any(outcome.answers):
                raise ModelError(f"{self.name} grades none of the papers: {problem}; choose another `rerank`")
            ids = {pairs[each][1].paper_id for each in outcome.problems}
            log.warning(
                "%s does not grade %s, such as %s (%s): the first stage places what has no grade",
                *(self.name, "1 paper" if len(ids) == 1 else f"{len(ids)} papers"),
                *(pairs[place][1].paper_id, problem),
            )
        answers, results = iter(outcome.answers), []
        for (aspect, *_), papers in requests:
            counted = [place for place, facet in enumerate(Facet) if aspect.facet in (None, facet)]
            scores: list[RerankScore | None] = []
            for answer in islice(answers, len(papers)):
                if answer:
                    mean = sum(answer.grades[place] for place in counted) / len(counted)
                    grades = dict(zip(map(str, Facet), answer.grades, strict=True))
                scores.append(RerankScore(mean, grades=grades) if answer else None)
            known = [each.score for each in scores if each]
            unknown = RerankScore(sum(known) / len(known) if known else 0.0)
            results.append([each or unknown for each in scores])
        return results


def open_reranker(
    name: str = cards.DEFAULT_RERANKER,
    *,
    precision: str | None = None,
    workers: Workers | None = None,
    device: str = CPU,
) -> Reranker:
    """Open the cross-encoder of a registry name, folder or hub name (`qbe.models.cards`).

    ``device`` runs a pair cross-encoder, on a GPU by default in fp16; joint grades run on the CPU, in int8.
    """
    joint = joint_folder(name)
    device = CPU if joint and device == AUTO else chosen_device(device)
    if joint is None:
        usual = None if device == CPU else HALF  # None: int8 where there is one
        return CrossEncoder(resolve_reranker(name, precision or usual), workers, device)
    if device != CPU or precision not in (None, "int8"):
        raise UsageError(
            f"{name}: expected `device` {CPU} and `precision` int8, in which joint grades run, found "
            f"{device} and {precision or 'int8'}; drop it, or give a pair cross-encoder"
        )
    return JointGrader(joint, workers)


def open_rerank_stage(
    stage: Any, index: Index, workers: Workers, regrader: grading.Regrader | None = None
) -> RerankStage | None:
    """Open what a stage of `qbe.search.stages` reranks by; ``regrader`` grades the best papers again."""
    if stage is None:
        return None
    reranker: Reranker
    dense = index.manifest.dense
    if isinstance(stage, stages.Grades):
        reranker = grading.GradedReranker(grading.open_grader(index), workers, regrader)
    elif isinstance(stage, stages.Projections):
        index.require_vectors()
        assert dense is not None
        folder = projections.find_model(dense["encoder"], Path(stage.model) if stage.model else None)
        model = projections.read_model(folder)
        vectors = grading.stored_vectors(index)
        reranker = projections.ProjectedMatching(model.projections, vectors, workers)
    elif isinstance(stage, stages.CrossEncoder):
        reranker = _cross_encoder(stage, workers)
    elif isinstance(stage, stages.LanguageModel):
        from qbe.models.endpoint import Client, Endpoint
        from qbe.models.language_model import Grader

        assert stage.model is not None
        client = Client(Endpoint(stage.endpoint, stage.model, timeout=60), retries=2)
        reranker = LanguageModelReranker(Grader(client, parallel=stage.parallel))
    else:
        assert isinstance(stage, stages.Matching)
        from qbe.search.matching import VectorMatching

        index.require_vectors()
        options = (index.similarity, stage.temperature, stage.regularization, workers)
        reranker = VectorMatching(stage.kind, lambda paper: index.vectors(paper).sentences, *options)
    penalty = getattr(stage, "background_penalty", 0.0) if dense else 0.0
    usual = getattr(reranker, "background_penalty", 0.0)
    return RerankStage(reranker, stage.depth, stage.weight, usual if penalty is None else penalty)


def _cross_encoder(stage: stages.CrossEncoder, workers: Workers) -> Reranker:
    def opened(scorer: Any, device: str | None = stage.device) -> Reranker:
        if scorer is None or isinstance(scorer, str | Path):
            name = cards.DEFAULT_RERANKER if scorer is None else str(scorer)
            return open_reranker(name, workers=workers, device=device or CPU)
        if callable(getattr(scorer, "batch_score", None)):
            model: Reranker = scorer
            return model
        return FunctionReranker(scoring_of(scorer) or scorer)

    models = {facet: getattr(stage, facet.value) for facet in Facet}
    by_facet = {facet: opened(model) for facet, model in models.items() if model is not None}
    if not by_facet:
        return opened(stage.model)
    # Joint grades, which other facets have by default, know no device.
    return ByFacet(by_facet, opened(stage.model, stage.device if stage.model else None))
