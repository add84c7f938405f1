"""The configuration of a search: defaults, what is refused, and how it is told from another."""

import math

import pytest
from qbe.search.config import EQUAL_WEIGHTS, SEPARATE, SearchConfig

from qbe.errors import UsageError


def test_defaults():
    config = SearchConfig()
    first, second = config.first_stage_settings, config.rerank_settings
    assert first == ("fused", "title+facet", "mean-max", "weighted", EQUAL_WEIGHTS, 300, None, SEPARATE)
    assert (second.name, second.depth, second.weight) == ("by-facet", 100, 0.5)
    assert SearchConfig(rerank="transport").rerank_settings.weight == 1.0
    assert SearchConfig(rerank="none").rerank_settings is None


def test_a_budget_limits_a_cascade_in_place_of_its_depth():
    depths = [
        SearchConfig(rerank="cascade", rerank_depth=50, **more).rerank_settings.cascade_depth
        for more in ({}, {"rerank_budget": 1.0}, {"rerank_budget": 1.0, "cascade_depth": 3})
    ]
    assert depths == [20, 50, 3]


def test_run_tags():
    assert SearchConfig().run_tag == SearchConfig(rerank="cross-encoder").run_tag == "qbe-fused+rerank"
    assert SearchConfig(first_stage="bm25", rerank="none").run_tag == "qbe-bm25"
    assert SearchConfig(first_stage="dense", rerank="attention").run_tag == "qbe-dense+attention"


def test_whole_abstracts_are_not_reranked_by_facet():
    assert SearchConfig().for_whole_abstracts() == SearchConfig(rerank="none")
    assert SearchConfig(rerank="cross-encoder").for_whole_abstracts().rerank == "cross-encoder"
    with pytest.raises(UsageError, match="`rerank_depth` is not read with `rerank` none"):
        SearchConfig(rerank_depth=5).for_whole_abstracts()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"first_stage": "splade"}, "expected `first_stage` of bm25, dense, fused, found 'splade'"),
        ({"rerank": "max"}, "expected `rerank` of by-facet, none, cross-encoder, projections, cascade"),
        ({"depth": 0}, "expected `depth` of at least 1, found 0"),
        ({"rerank_weight": math.nan}, "expected `rerank_weight` from 0 to 1, found nan"),
        ({"rerank": "transport", "temperature": 0.0}, "expected `temperature` above 0, found 0"),
        (
            {"weights": {"bm25": -1.0}},
            r"expected `weights` from 0 to 1e\+06, not all 0, of bm25, sentences",
        ),
        ({"weights": {}}, "not all 0"),
        ({"weights": {"colbert": 1.0}}, "of bm25, sentences, facet, whole, found {'colbert': 1.0}"),
        ({"first_stage": "bm25", "weights": {"bm25": 1.0}}, "`weights` is not read with `first_stage` bm25"),
        ({"first_stage": "bm25", "match": "mean-max"}, "drop it or choose dense or fused"),
        ({"temperature": 1.0}, "`temperature` is not read with `rerank` by-facet; drop it or choose transp"),
        ({"rerank": "mean-max", "reranker": "x"}, "`reranker` is not read with `rerank` mean-max"),
    ],
)
def test_what_is_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        SearchConfig(**parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": "9"}, r"expected an int as `depth`, found '9' \(str\)"),
        ({"rerank_depth": True}, "expected an int as `rerank_depth`"),
        ({"rerank_weight": "0.5"}, "expected a number as `rerank_weight`"),
        ({"weights": [1, 2]}, "expected a mapping as `weights`"),
    ],
)
def test_wrong_types_name_the_right_one(parameters, message):
    with pytest.raises(TypeError, match=message):
        SearchConfig(**parameters)


def test_the_record_tells_configurations_apart():
    configs = [
        SearchConfig(),
        SearchConfig(depth=999),
        SearchConfig(rerank="none"),
        SearchConfig(facets="predicted"),
        SearchConfig(weights={"bm25": 1.0}),
        SearchConfig(rerank_weight=0.25),
        SearchConfig(separate=0.25),
    ]
    records = [str(config.record()) for config in configs]
    assert len(set(records)) == len(records)
    assert SearchConfig(depth=300, rerank_depth=100).record() == SearchConfig().record()
