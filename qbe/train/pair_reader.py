"""What cross-encoders of pairs read: papers of an index, joined as in a search, and batches of pairs."""

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from sentence_transformers.cross_encoder import CrossEncoder
from torch.nn.utils.rnn import pad_sequence
from transformers.utils import logging

from qbe.index.reader import IndexReader
from qbe.models.cards import TOKENIZER
from qbe.models.encoding import EncodedAspect, Floats, PaperTokenizer
from qbe.models.export.pytorch import load_model, write_tokenizer
from qbe.query import Aspect
from qbe.runs import GradedPair
from qbe.search.rerankers import OF_FACET, Pair, candidate_side, pair, query_side
from qbe.types import Facet

Places = tuple[int, int]  # the rows of a query and of a candidate in the index
Epoch = Callable[[np.random.Generator], list[list[int]]]  # batches of places of pairs
FACETS = tuple(map(str, Facet))


class PairReader(CrossEncoder):
    """A cross-encoder that reads papers of an index, by row, in place of texts, as search joins them."""

    in_bfloat16 = False  # products of matrices

    def read(
        self,
        tokenizer: PaperTokenizer,
        reader: IndexReader,
        texts: str,
        facet: Facet | None,
        query_tokens: int,
        candidate_tokens: int,
    ) -> None:
        """Set what is read: papers of an index, cut as search does."""

        @cache
        def query(row: int) -> list[int]:
            encoded = EncodedAspect.of(Aspect(reader.papers[row], facet if texts == OF_FACET else None))
            return query_side(tokenizer, encoded, query_tokens, texts)

        @cache
        def candidate(row: int) -> list[int]:
            return candidate_side(tokenizer, reader.papers[row], candidate_tokens, texts)

        self.query, self.candidate, self.special = query, candidate, tokenizer.special

    def length(self, places: Places) -> int:
        return len(self.query(places[0])) + len(self.candidate(places[1]))

    def preprocess(self, inputs: Sequence[Places], **_: Any) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Pairs of papers as padded tensors (pairs, tokens)."""
        pairs: list[Pair] = [
            pair(self.query(query), self.candidate(candidate), self.special) for query, candidate in inputs
        ]
        config = cast(Any, self.transformers_model).config
        rows = [torch.tensor(each.ids) for each in pairs]
        ids = pad_sequence(rows, batch_first=True, padding_value=int(config.pad_token_id or 0))
        types = pad_sequence([torch.tensor(each.types) for each in pairs], batch_first=True)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        features = {"input_ids": ids, "attention_mask": mask}
        return features | ({"token_type_ids": types} if getattr(config, "type_vocab_size", 0) > 1 else {})

    def scores_of(self, inputs: Sequence[Places]) -> torch.Tensor:
        """Scores (pairs, outputs), float32, of pairs of papers."""
        features = {name: part.to(self.device) for name, part in self.preprocess(inputs).items()}
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.in_bfloat16):
            scores: torch.Tensor = self(features)["scores"]
        return scores.float()

    @torch.no_grad()
    def scores(self, query: int, candidates: Sequence[int]) -> Floats:
        """Scores (candidates, outputs) of a query's candidates, without dropout."""
        self.eval()
        pairs = [(query, each) for each in candidates]
        order = sorted(range(len(pairs)), key=[self.length(each) for each in pairs].__getitem__)
        scores = np.zeros((len(pairs), self.num_labels), np.float32)
        for first in range(0, len(order), 16):
            places = order[first : first + 16]
            scores[places] = self.scores_of([pairs[place] for place in places]).cpu().numpy()
        return scores

    def _create_model_card(self, *_: Any, **__: Any) -> None:
        """Write none beside checkpoints."""


def open_pair_reader(folder: Path, work: Path, device: str, outputs: int) -> PairReader:
    """The model in ``folder``, written to ``work`` first, under a classifier of pairs, which is random where
    it lacks one of as many outputs. Attention has no dropout, without which it is twice as fast on a CPU.
    """
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # it warns that the classifier is random
    torch.manual_seed(0)
    settings = {"attn_implementation": None, "attention_probs_dropout_prob": 0.0, "num_labels": outputs}
    model, _ = load_model(
        folder,
        "AutoModelForSequenceClassification",
        "a model of the BERT or RoBERTa family",
        "`encoder`",
        ignore_mismatched_sizes=True,
        **settings,
    )
    if outputs == len(FACETS):
        model.config.id2label = dict(enumerate(FACETS))
        model.config.label2id = {facet: place for place, facet in enumerate(FACETS)}
    model.save_pretrained(work)
    write_tokenizer(folder, work / TOKENIZER)
    reader: PairReader = PairReader(str(work), device=device, local_files_only=True, num_labels=outputs)
    return reader


BUCKET = 32  # batches that are sorted by length together


def by_length(lengths: Sequence[int], size: int, rng: np.random.Generator) -> list[list[int]]:
    """All pairs, in batches of about the same length."""
    order, batches = rng.permutation(len(lengths)).tolist(), list[list[int]]()
    for first in range(0, len(order), size * BUCKET):
        bucket = sorted(order[first : first + size * BUCKET], key=lengths.__getitem__)
        starts = rng.permutation(range(0, len(bucket), size)).tolist()
        batches += [bucket[begin : begin + size] for begin in starts]
    return batches


def by_list(
    lists: Sequence[Sequence[GradedPair]], size: int, unrelated: int, rng: np.random.Generator
) -> list[list[int]]:
    """The pairs of lists, those of one list next to each other, without most of those that are unrelated."""
    starts, order = list(itertools.accumulate(map(len, lists), initial=0)), list[int]()
    for number in rng.permutation(len(lists)).tolist():
        related = [any(grade >= 1 for grade in each.grades) for each in lists[number]]
        others = rng.permutation([place for place, is_related in enumerate(related) if not is_related])
        places = [place for place, is_related in enumerate(related) if is_related]
        places += others[:unrelated].astype(int).tolist()
        order += [starts[number] + place for place in rng.permutation(places).tolist()]
    return [order[first : first + size] for first in range(0, len(order), size)]


def in_triplets(
    lists: Sequence[Sequence[GradedPair]],
    facets: Sequence[int],
    size: int,
    count: int,
    rng: np.random.Generator,
) -> list[list[int]]:
    """So many triplets of each list at random, each two neighbours: a better and a worse candidate by one of
    the facets, in turn.
    """
    starts, drawn = itertools.accumulate(map(len, lists), initial=0), list[Places]()
    for start, pairs in zip(starts, lists, strict=False):
        twos = list(itertools.permutations(enumerate(pairs, start), 2))
        by_facet = [
            [(one, two) for (one, best), (two, other) in twos if best.grades[facet] > other.grades[facet]]
            for facet in facets
        ]
        in_turn = itertools.cycle([each for each in by_facet if each])
        drawn += [some[int(rng.integers(len(some)))] for some in itertools.islice(in_turn, count)]
    order = [place for each in rng.permutation(len(drawn)).tolist() for place in drawn[each]]
    step = 2 * max(1, size // 2)
    return [order[first : first + step] for first in range(0, len(order), step)]
