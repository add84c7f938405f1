"""Networks that trainings share: encoders whose layers are all trained, and late interaction of vectors."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from qbe.errors import ModelError
from qbe.index.vectors import Vectors
from qbe.models.cards import TOKENIZER
from qbe.models.export.pytorch import load_encoder, positions
from qbe.models.tokenizer import Window
from qbe.train.fit import Weights
from qbe.train.losses import FACETS, PaperVectors
from qbe.types import Facet, Paper

T = TypeVar("T")
WEIGHTS = "model.safetensors"
TERMS, START_WEIGHT = 4, 4.0
LENGTH_MULTIPLE = 16  # of the tokens of a batch, with padding: oneDNN compiles its products for each shape
_LOWEST = -2.0  # less than any cosine


class PaperTable(NamedTuple):
    """Papers as padded tensors, one row a paper."""

    ids: Tensor  # (papers, tokens) of first windows
    lengths: Tensor  # (papers,)
    begins: Tensor  # (papers, sentences) of the tokens of each, 0 for padding
    ends: Tensor
    marked: Tensor  # (papers, sentences, facets) bool; all where a paper has none of a facet

    def to(self, device: torch.device | str) -> PaperTable:
        return PaperTable(*(part.to(device) for part in self))


def table_of(windows: Sequence[Window], papers: Sequence[Paper] | None = None) -> PaperTable:
    """A table of windows, with the facets of ``papers`` (None: all)."""
    ids, spans = zip(*windows, strict=True)
    shape = len(ids), max(map(len, spans))
    table = PaperTable(
        torch.zeros(len(ids), max(map(len, ids)), dtype=torch.int32),
        torch.tensor([len(each) for each in ids]),
        torch.zeros(shape, dtype=torch.int64),
        torch.zeros(shape, dtype=torch.int64),
        torch.zeros(*shape, FACETS, dtype=torch.bool),
    )
    for row, (each, some) in enumerate(zip(ids, spans, strict=True)):
        table.ids[row, : len(each)] = torch.tensor(each)
        table.begins[row, : len(some)], table.ends[row, : len(some)] = torch.tensor(some).view(-1, 2).T
        for place, facet in enumerate(Facet):
            of_facet = papers[row].facet_positions(facet)[0] if papers else ()
            inside = [position for position in of_facet if position < len(some)]
            table.marked[row, inside or slice(0, len(some)), place] = True
    return table


def pooled(states: Tensor, begins: Tensor, ends: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Means of states (papers, tokens, dimension) over each sentence, and over all tokens of each paper."""
    places = torch.arange(states.shape[1], device=states.device)
    begins = torch.cat([begins, begins.new_zeros(len(begins), 1)], 1)[..., None]
    ends = torch.cat([ends, lengths[:, None].to(ends.dtype)], 1)[..., None]
    inside = ((places >= begins) & (places < ends)).float()
    means = (inside / inside.sum(2, keepdim=True).clamp(min=1)) @ states
    return means[:, :-1], means[:, -1]


# Layers of BERT and MPNet, faster in training than those of transformers, without dropout.


class Shape(NamedTuple):
    """Sizes of an encoder."""

    dimension: int
    heads: int
    layers: int
    epsilon: float


_HEADS = ("attention.self.query", "attention.self.key", "attention.self.value")
_PARTS = {
    "out": "attention.output.dense",
    "norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "last": "output.LayerNorm",
}  # BERT's names of the parts of `Layer`
_MPNET = {
    **dict(zip(_HEADS, ("attention.attn.q", "attention.attn.k", "attention.attn.v"), strict=True)),
    "attention.output.dense": "attention.attn.o",
    "attention.output.LayerNorm": "attention.LayerNorm",
}


def _layer_names(kind: str, layers: int) -> dict[str, str]:
    """The names of the layers' weights in BERT, and in the files of an encoder of the ``kind``."""
    renamed = _MPNET if kind == "mpnet" else {}
    return {
        f"encoder.layer.{layer}.{part}.{leaf}": f"encoder.layer.{layer}.{renamed.get(part, part)}.{leaf}"
        for layer in range(layers)
        for part in (*_HEADS, *_PARTS.values())
        for leaf in ("weight", "bias")
    }


def position_bias(distances: Tensor, length: int) -> Tensor:
    """The bias (heads, length, length) of the attention of each token for each other, by MPNet's
    ``distances`` (buckets, heads) (Raffel et al., 2020, section 2.1).
    """
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    places = torch.arange(length, device=distances.device)
    steps = places[None, :] - places[:, None]
    buckets = MPNetEncoder.relative_position_bucket(steps, len(distances))  # type: ignore[no-untyped-call]
    return distances[buckets].permute(2, 0, 1)


class Layer(nn.Module):
    """One layer of BERT (Devlin et al., 2019) or MPNet, post-normalized; products run in the states' type."""

    def __init__(self, shape: Shape, weights: Mapping[str, Tensor], number: int) -> None:
        super().__init__()
        self.shape = shape

        def part(name: str, leaf: str) -> Tensor:
            return weights[f"encoder.layer.{number}.{name}.{leaf}"].float()

        self.parts = nn.ParameterDict()
        for leaf in ("weight", "bias"):
            self.parts[f"heads_{leaf}"] = torch.cat([part(name, leaf) for name in _HEADS])
            self.parts.update({f"{own}_{leaf}": part(name, leaf) for own, name in _PARTS.items()})

    def forward(self, states: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
        """The layer's states (papers, tokens, dimension) float32; ``mask`` is added to attention's logits."""
        papers, length, dimension = states.shape
        flat = self._linear("heads", states.to(dtype))
        split = flat.view(papers, length, 3, self.shape.heads, dimension // self.shape.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        projected = self._linear("out", attended.transpose(1, 2).flatten(2))
        middle = self._norm("norm", states + projected.to(states.dtype))
        wide = F.gelu(self._linear("up", middle.to(dtype)))
        return self._norm("last", middle + self._linear("down", wide).to(states.dtype))

    def _linear(self, name: str, states: Tensor) -> Tensor:
        weight, bias = (self.parts[f"{name}_{leaf}"] for leaf in ("weight", "bias"))
        return F.linear(states, weight.to(states.dtype), bias.to(states.dtype))

    def _norm(self, name: str, states: Tensor) -> Tensor:
        weight, bias = (self.parts[f"{name}_{leaf}"] for leaf in ("weight", "bias"))
        return F.layer_norm(states, states.shape[-1:], weight, bias, self.shape.epsilon)


class TrainedEncoder(nn.Module):
    """An encoder of BERT or MPNet whose layers are all trained, its embeddings not; products in ``dtype``."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """Raises ModelError for another architecture."""
        super().__init__()
        config = json.loads((folder / "config.json").read_text())
        sizes = ("hidden_size", "num_attention_heads", "num_hidden_layers", "layer_norm_eps")
        self.shape, self.dtype = Shape(*(config[name] for name in sizes)), dtype
        self.kind, weights = config.get("model_type", "bert"), load_file(folder / WEIGHTS)
        self.first_position, distances = 0, None  # of a text's tokens; (buckets, heads) bias of attention
        if self.kind == "mpnet":  # whose layers are renamed as BERT's (Song et al., 2020)
            distances = weights["encoder.relative_attention_bias.weight"].float()
            names = {other: name for name, other in _layer_names(self.kind, self.shape.layers).items()}
            weights = {names.get(name, name): part for name, part in weights.items()}
            # Tokens are at the positions behind that of padding (create_position_ids_from_input_ids).
            self.first_position = int(config["pad_token_id"]) + 1
        elif self.kind != "bert":
            raise ModelError(
                f"{folder}: expected an encoder of the kind bert or mpnet, found {self.kind}; give another"
            )

        def fixed(name: str) -> nn.Parameter:
            return nn.Parameter(weights[f"embeddings.{name}"].float(), requires_grad=False)

        self.words, self.places = (fixed(f"{kind}_embeddings.weight") for kind in ("word", "position"))
        # A paper is one segment: its type is that of the first (BERT; MPNet has none).
        types = weights.get("embeddings.token_type_embeddings.weight", torch.zeros(1, self.shape.dimension))
        self.types = nn.Parameter(types.float(), requires_grad=False)
        self.norm_weight, self.norm_bias = fixed("LayerNorm.weight"), fixed("LayerNorm.bias")
        longest = len(self.places) - self.first_position
        bias = None if distances is None else position_bias(distances, longest)
        self.position_bias: Tensor | None
        self.register_buffer("position_bias", bias, persistent=False)
        self.layers = nn.ModuleList(Layer(self.shape, weights, each) for each in range(self.shape.layers))

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Final states (papers, tokens, dimension) float32 of padded token ids (papers, tokens) int64."""
        papers, length = ids.shape
        places = torch.arange(length, device=ids.device)
        summed = self.words[ids] + self.places[places + self.first_position] + self.types[0]
        size = (self.shape.dimension,)
        states = F.layer_norm(summed, size, self.norm_weight, self.norm_bias, self.shape.epsilon)
        mask = torch.zeros(papers, 1, 1, length, dtype=self.dtype, device=ids.device)
        mask = mask.masked_fill(~(places < lengths[:, None])[:, None, None], -10000.0)
        mask = mask.expand(-1, -1, length, -1)
        if self.position_bias is not None:
            mask = mask + self.position_bias[:, :length, :length].to(self.dtype)
        for layer in self.layers:
            states = layer(states, mask, self.dtype)
        return states

    def merged(self, base: Weights, trained: Weights) -> dict[str, Tensor]:
        """The weights ``base`` of the encoder's files with its ``trained`` layers in their place."""
        names, merged = _layer_names(self.kind, self.shape.layers), dict(base)
        for layer in range(self.shape.layers):
            for leaf in ("weight", "bias"):
                own = f"layers.{layer}.parts."
                parts = dict(zip(_HEADS, trained[f"{own}heads_{leaf}"].chunk(3), strict=True))
                parts |= {name: trained[f"{own}{part}_{leaf}"] for part, name in _PARTS.items()}
                for part, values in parts.items():
                    name = names[f"encoder.layer.{layer}.{part}.{leaf}"]
                    merged[name] = values.cpu().to(base[name].dtype).contiguous()
        return merged


class GradedEncoder(TrainedEncoder):
    """An encoder with, for each facet, a projection of its vectors and weights of the similarities."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(folder, dtype)
        self.weights = nn.Parameter(torch.full((FACETS, TERMS), START_WEIGHT))
        self.projections = nn.Parameter(torch.eye(self.shape.dimension).repeat(FACETS, 1, 1))

    def encode(self, table: PaperTable, rows: Tensor, chunks: int = 1) -> PaperVectors:
        """Vectors of the papers of some rows of a table, in ``chunks`` of similar lengths."""
        lengths = table.lengths[rows]
        order = torch.argsort(lengths)
        longest = lengths[order].tolist()
        # Chunks of about equally many tokens: those of longer papers have fewer.
        bounds, total, begin = [0], sum(longest), 0
        for place, length in enumerate(longest):
            begin += length
            if begin >= total * len(bounds) / chunks and place + 1 < len(longest):
                bounds.append(place + 1)
        bounds.append(len(longest))
        most = int((table.ends[rows] > 0).sum(1).max())
        parts = []
        for first, last in itertools.pairwise(bounds):
            some = rows[order[first:last]]
            length = min(-(-longest[last - 1] // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, table.ids.shape[1])
            states = self.states(table.ids[some, :length].long(), table.lengths[some])
            places = table.begins[some, :most], table.ends[some, :most]
            parts.append(pooled(states, *places, table.lengths[some]))
        sentences, whole = (torch.cat(same) for same in zip(*parts, strict=True))
        back = torch.argsort(order)
        present = table.ends[rows, :most] > 0
        return PaperVectors(sentences[back], present, whole[back], table.marked[rows, :most])

    def terms(self, queries: PaperVectors, candidates: PaperVectors, *, plain: bool = False) -> Tensor:
        """Similarities (facets, terms, queries, candidates) of `vector_terms`; ``plain`` projects nothing."""
        facets = []
        for facet, matrix in enumerate(self.projections):
            sides = []
            for papers in (queries, candidates):
                both = (each if plain else each @ matrix.T for each in (papers.sentences, papers.whole))
                sentences, whole = (F.normalize(each, dim=-1) for each in both)
                mean = F.normalize((sentences * papers.marked[..., facet, None]).sum(1), dim=-1)
                sides.append((sentences, whole, mean))
            (asked, *alike_query), (sentences, *alike) = sides
            shape = len(queries.whole), -1, *candidates.present.shape
            cosines = (asked.flatten(0, 1) @ sentences.flatten(0, 1).T).view(shape)
            lists = (candidates.present, candidates.marked[..., facet])
            best = torch.stack([cosines.masked_fill(~inside, _LOWEST).amax(-1) for inside in lists])
            inside = queries.marked[..., facet]
            share = (inside / inside.sum(1, keepdim=True))[None, :, :, None]
            rest = torch.stack([one @ other.T for one, other in zip(alike_query, alike, strict=True)])
            facets.append(torch.cat([(best * share).sum(2), rest]))
        return torch.stack(facets)

    def scores(self, queries: PaperVectors, candidates: PaperVectors) -> Tensor:
        """Scores (queries, candidates, facets)."""
        return torch.einsum("ft,ftqc->qcf", self.weights, self.terms(queries, candidates))


class CocitationEncoder(nn.Module):
    """A BERT-family encoder of transformers; all parameters are trained but its pooler, which no vector uses.

    Matrix products run in ``dtype``, all else in single precision; ``unit`` scales vectors to length 1.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, *, unit: bool = False) -> None:
        from transformers.utils.logging import disable_progress_bar

        super().__init__()
        disable_progress_bar()  # type: ignore[no-untyped-call]  # it would take a second
        torch.manual_seed(0)  # for the random weights of a pooler that the folder lacks
        self.bert = load_encoder(folder, "`encoder`")
        self.dtype, self.unit, self.max_tokens = dtype, unit, positions(self.bert)
        for name, part in self.bert.named_parameters():
            part.requires_grad_("pooler" not in name)

    def forward(self, table: PaperTable) -> PaperVectors:
        """Vectors of papers, float32."""
        longest = table.ids.shape[1]
        length = min(-(-longest // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, self.max_tokens)
        device = next(self.parameters()).device
        table = table._replace(ids=F.pad(table.ids, (0, length - longest))).to(device)
        mask = (torch.arange(length, device=device) < table.lengths[:, None]).long()
        with torch.autocast(device.type, torch.bfloat16, enabled=self.dtype is torch.bfloat16):
            states = self.bert(input_ids=table.ids.long(), attention_mask=mask).last_hidden_state
        vectors = pooled(states.float(), table.begins, table.ends, table.lengths)
        sentences, whole = (F.normalize(each, dim=-1) if self.unit else each for each in vectors)
        return PaperVectors(sentences, table.ends > 0, whole, table.marked)


def write_pretrained(model: Any, tokenizer: Path, folder: Path, export: Callable[[Path], T]) -> T:
    """Write a model of transformers, its tokenizer and, beside them, what ``export`` writes into a folder."""
    model.save_pretrained(folder)
    (folder / WEIGHTS).chmod(0o644)  # transformers makes it private
    shutil.copyfile(tokenizer, folder / TOKENIZER)
    exported = folder / "exported"
    metadata = export(exported)
    for file in exported.iterdir():
        file.replace(folder / file.name)
    exported.rmdir()
    return metadata


# Late interaction of stored vectors.


class StoredVectors:
    """Vectors of unit length: of sentences (those of paper i begin at ``starts[i]``) and of whole papers."""

    def __init__(self, sentences: Vectors, whole: Vectors, starts: NDArray[np.int64]) -> None:
        self.sentences, self.whole = (
            F.normalize(torch.tensor(each.astype(np.float32)), dim=-1) for each in (sentences, whole)
        )
        self.starts = torch.tensor(starts)

    def rows(self, papers: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the papers' sentences, and for each the place of its paper among them."""
        counts = self.starts[papers + 1] - self.starts[papers]
        places = torch.repeat_interleave(torch.arange(len(papers)), counts)
        first = torch.cumsum(counts, 0) - counts
        return (self.starts[papers] - first)[places] + torch.arange(len(places)), places


class ProjectedPapers(NamedTuple):
    """Papers as a facet's projection gives them, all vectors of unit length."""

    sentences: Tensor  # (sentences, dimension)
    places: Tensor  # (sentences,) int64, of their papers
    marked: Tensor  # (sentences,) bool, those of the facet
    means: Tensor  # (papers, dimension) of these
    whole: Tensor  # (papers, dimension)

    @classmethod
    def of(cls, vectors: StoredVectors, papers: Tensor, marked: Tensor, matrix: Tensor) -> ProjectedPapers:
        """Stored papers projected by a matrix; of all stored sentences those of the facet are ``marked``."""
        rows, places = vectors.rows(papers)
        marked = marked[rows]
        sentences = F.normalize(vectors.sentences[rows] @ matrix.T, dim=-1)
        sums = sentences.new_zeros(len(papers), sentences.shape[1])
        sums = sums.index_add(0, places[marked], sentences[marked])
        whole = F.normalize(vectors.whole[papers] @ matrix.T, dim=-1)
        return cls(sentences, places, marked, F.normalize(sums, dim=-1), whole)


def vector_terms(queries: ProjectedPapers, candidates: ProjectedPapers) -> Tensor:
    """The similarities (4, queries, candidates) of `qbe.search.projections.Space.terms`."""
    owners, counts = queries.places[queries.marked], (len(queries.whole), len(candidates.whole))
    cosines = queries.sentences[queries.marked] @ candidates.sentences.T
    best = best_within(cosines, candidates.places, counts[1])
    of_facet = best_within(cosines[:, candidates.marked], candidates.places[candidates.marked], counts[1])
    means = [mean_by_paper(each, owners, counts[0]) for each in (best, of_facet)]
    return torch.stack([*means, queries.whole @ candidates.whole.T, queries.means @ candidates.means.T])


def best_within(cosines: Tensor, places: Tensor, papers: int) -> Tensor:
    """The best cosine of each row (m, sentences) within each paper, (m, papers), by the sentences' papers."""
    lowest = cosines.new_full((len(cosines), papers), _LOWEST)
    return lowest.scatter_reduce(1, places.expand(len(cosines), -1), cosines, "amax")


def mean_by_paper(rows: Tensor, places: Tensor, papers: int) -> Tensor:
    """Means of the rows (n, columns) of each paper: (papers, columns)."""
    sums = rows.new_zeros(papers, rows.shape[1]).index_add(0, places, rows)
    return sums / torch.bincount(places, minlength=papers)[:, None]


# Small heads over features (`qbe.models.heads`).


class Standardization(NamedTuple):
    """The ``mean`` (F,) and the ``scale`` (F,), a standard deviation, of each of F features."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, features: NDArray[np.float64]) -> Standardization:
        """That of features (candidates, F), over those that are known (not NaN)."""
        return cls(np.nanmean(features, axis=0), np.maximum(np.nanstd(features, axis=0), 1e-6))

    def inputs(self, features: NDArray[np.float64]) -> Tensor:
        """Features (candidates, F) brought to mean 0 and deviation 1, float32; one that is NaN becomes 0."""
        return torch.tensor(np.nan_to_num((features - self.mean) / self.scale), dtype=torch.float32)


def as_array(parameter: Tensor) -> NDArray[np.float64]:
    """A copy of a parameter for a `Head`."""
    return parameter.detach().double().numpy().copy()
