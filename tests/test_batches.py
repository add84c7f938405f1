"""Papers in batches: the same vectors and labels as one by one, from graphs made of int8 and of fp32."""

from itertools import chain

import numpy as np
import pytest

from qbe.errors import UsageError
from qbe.models.cards import state_output
from qbe.models.encoder import Encoder
from qbe.models.encoding import EncodedAspect
from qbe.models.folders import resolve_encoder, resolve_reranker
from qbe.models.gpu import Graph, halve
from qbe.models.tagger import Tagger, TaggingEncoder
from qbe.query import Aspect
from qbe.search.rank import RerankRequest
from qbe.search.rerankers import CrossEncoder, open_reranker
from qbe.types import Paper, Sentence

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def graphs(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QBE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def mixed(papers):
    long = Paper("long", "A long paper", tuple(Sentence(f"Sentence {i} of many in it.") for i in range(70)))
    return [papers[0], long, Paper("short", "No", (Sentence("Yes."),)), *papers[1:3]]


@pytest.fixture(scope="module")
def half(graphs):
    return Encoder(resolve_encoder("facet-encoder", "fp16"), threads=2)


@pytest.fixture(scope="module")
def single(graphs):
    return Encoder(resolve_encoder("facet-encoder", "fp16"), threads=2, half=False, batch_tokens=1024)


@pytest.fixture(scope="module")
def tagged(single, mixed):
    return list(single.encode(mixed, Tagger.open()))


@pytest.mark.parametrize("source", ["shipped", "tiny"])
def test_a_batch_gives_what_each_paper_gives_alone(source, request, mixed):
    if source == "shipped":
        encoder, tagger = request.getfixturevalue("single"), Tagger.open()
        together = request.getfixturevalue("tagged")
    else:  # made of fp32
        files = resolve_encoder(str(request.getfixturevalue("tiny_encoder")), "fp16")
        encoder, tagger = Encoder(files, threads=2, half=False, batch_tokens=1024), None
        together = list(encoder.encode(mixed))
    for paper, vectors in zip(mixed, together, strict=True):
        alone = encoder.encode_paper(paper, tagger)
        # Vectors are rounded to half precision, where a difference in the last place of single may show.
        np.testing.assert_allclose(vectors.sentences, alone.sentences, atol=2**-11)
        np.testing.assert_allclose(vectors.whole, alone.whole, atol=2**-11)
        if tagger:
            np.testing.assert_allclose(vectors.hook_values, alone.hook_values, atol=1e-4)


def test_in_fp32_the_graph_gives_what_the_exported_one_does(tiny_encoder, mixed):
    exported = Encoder(resolve_encoder(str(tiny_encoder), "fp32"))
    batched = Encoder(resolve_encoder(str(tiny_encoder), "fp16"), half=False)
    for paper, vectors in zip(mixed, batched.encode(mixed), strict=True):
        expected = exported.encode_paper(paper)
        np.testing.assert_allclose(vectors.sentences, expected.sentences, atol=2**-11)
        np.testing.assert_allclose(vectors.whole, expected.whole, atol=2**-11)


def test_half_precision_stays_near_single(mixed, half, tagged):
    assert half.batched
    for place in (0, 2):
        rounded, exact = half.encode_paper(mixed[place], Tagger.open()), tagged[place]
        assert (rounded.sentences * exact.sentences).sum(axis=1).min() > 0.999
        assert np.abs(rounded.hook_values - exact.hook_values).max() < 0.1


def test_labels_by_the_merged_graph_are_those_of_the_states(mixed, single):
    tagger, model = Tagger.open(), single.batch_model
    names = ["label_scores", *(state_output(layer, single.files.metadata.layers) for layer in tagger.layers)]
    for window in chain.from_iterable(map(single.windows, mixed)):
        scores, *states = model._session(tagger).run(names, model._feed([window], single.tokenizer.pad))
        by_states = tagger.compute([each[0, : len(window.ids)] for each in states], window.spans)
        merged = scores[0, : len(window.spans)]  # the head alone is quantized on the other side
        np.testing.assert_allclose(merged, by_states, atol=0.5)
        assert (merged.argmax(axis=1) == by_states.argmax(axis=1)).mean() > 0.9


def test_tagging_keeps_order_and_given_labels(papers, half):
    bare = Paper("x", "We route", (Sentence("It is slow."), Sentence("We use trees.")))
    given = [papers[0], bare, papers[1]]
    labelled = list(TaggingEncoder(half, Tagger.open()).encode(iter(given)))
    assert [paper.paper_id for paper, _ in labelled] == [paper.paper_id for paper in given]
    assert [paper.labelled for paper in given] == [True, False, True]
    assert labelled[0][0] is given[0]
    assert all(sentence.probabilities for sentence in labelled[1][0].sentences)


def test_positions_keep_their_precision(tmp_path):
    from onnx import helper

    tables = [helper.make_tensor("words", 1, [2, 2], [1, 2, 3, 4]), helper.make_tensor("eight", 1, [], [8])]
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["states"]),
        helper.make_node("Cast", ["input_ids"], ["numbers"], to=1),
        helper.make_node("Div", ["numbers", "eight"], ["distances"]),
        helper.make_node("Cast", ["distances"], ["buckets"], to=7),
        helper.make_node("Gather", ["words", "buckets"], ["bias"]),
        helper.make_node("Add", ["states", "bias"], ["result"]),
    ]
    ends = ("input_ids", 7, ["n"]), ("result", 1, ["n", 2])
    sides = [helper.make_tensor_value_info(*each) for each in ends]
    model = helper.make_model(helper.make_graph(nodes, "g", sides[:1], sides[1:], tables))
    path = tmp_path / "positions.onnx"
    path.write_bytes(model.SerializeToString())
    graph = Graph(path)
    halve(graph)
    kinds = {name: str(value.dtype) for name, value in graph.values.items()}
    assert kinds == {"words": "float32", "words/half": "float16", "eight": "float32"}


def test_a_pair_reranker_scores_side_by_side(tiny_cross_encoder, papers):
    def scores(reranker, candidates):
        return [each.score for each in reranker.batch_score([RerankRequest(query, candidates)])[0]]

    query = EncodedAspect.of(Aspect(papers[0], None))
    name = str(tiny_cross_encoder)
    half, exact = (CrossEncoder(resolve_reranker(name, precision)) for precision in ("fp16", "fp32"))
    together = scores(half, papers[1:5])
    assert np.std(together) > 0.01
    assert together == pytest.approx(scores(exact, papers[1:5]), abs=0.05)
    assert together == pytest.approx([scores(half, [paper])[0] for paper in papers[1:5]], abs=0.02)


def test_joint_grades_are_refused_a_gpu():
    with pytest.raises(UsageError, match="in which joint grades run, found cuda and int8; drop it"):
        open_reranker(device="cuda")
