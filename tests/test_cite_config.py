"""What a recommendation is configured with: defaults, tags, and what is refused."""

import pytest

from qbe.cite.config import FIRST_STAGES, CiteConfig
from qbe.errors import UsageError
from qbe.search.filters import PaperFilter


def test_defaults():
    assert CiteConfig().record() == {
        "first_stage": "citation",
        "depth": 1000,
        "rerank": "citation",
        "links": True,
        "filter": None,
    }


def test_a_record_says_what_was_chosen():
    config = CiteConfig(depth=20, links=False, filter=PaperFilter(before="query"))
    assert config.record() == CiteConfig().record() | {
        "depth": 20,
        "links": False,
        "filter": {"before": "query"},
    }


@pytest.mark.parametrize("stage", FIRST_STAGES)
def test_tags_name_the_stages(stage):
    assert CiteConfig(first_stage=stage).run_tag == f"qbe-cite-{stage}+rerank"
    assert CiteConfig(first_stage=stage, rerank="none").run_tag == f"qbe-cite-{stage}"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": "5"}, "expected an int as `depth`, found '5' (str)"),
        ({"depth": 5.0}, "expected an int as `depth`, found 5.0 (float)"),
        ({"depth": True}, "expected an int as `depth`, found True (bool)"),
        ({"filter": {"before": 2018}}, "expected a qbe.PaperFilter as `filter`, found dict"),
    ],
)
def test_values_of_another_type(parameters, message):
    with pytest.raises(TypeError) as raised:
        CiteConfig(**parameters)
    assert str(raised.value) == message


@pytest.mark.parametrize("parameters", [{"links": "no"}, {"links": None}, {"model": 5}])
def test_links_and_a_model_of_another_type(parameters):
    with pytest.raises(TypeError):
        CiteConfig(**parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"first_stage": "lucene"}, "expected `first_stage` of citation, bm25, dense, fused, found 'lucene'"),
        ({"first_stage": None}, "expected `first_stage` of citation, bm25, dense, fused, found None"),
        ({"rerank": "mean-max"}, "expected `rerank` of citation, none, found 'mean-max'"),
        ({"depth": 0}, "expected `depth` of at least 1, found 0"),
        (
            {"links": False, "rerank": "none"},
            "`links` is not read without reranking; drop it, or choose `rerank` citation",
        ),
    ],
)
def test_values_that_are_not_possible(parameters, message):
    with pytest.raises(UsageError) as raised:
        CiteConfig(**parameters)
    assert str(raised.value) == message


def test_parameters_are_named():
    with pytest.raises(TypeError, match="positional"):
        CiteConfig("bm25")
