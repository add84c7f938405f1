"""What a recommendation is configured with: defaults, tags, and what is refused."""

import pytest

from qbe.cite.config import FIRST_STAGES, CiteConfig
from qbe.errors import UsageError
from qbe.search.filters import PaperFilter


def test_a_record_says_what_was_chosen():
    default = {"first_stage": "citation", "depth": 1000, "rerank": "citation", "links": True, "filter": None}
    assert CiteConfig().record() == default
    config = CiteConfig(depth=20, links=False, filter=PaperFilter(before="query"))
    assert config.record() == default | {"depth": 20, "links": False, "filter": {"before": "query"}}


@pytest.mark.parametrize("stage", FIRST_STAGES)
def test_tags_name_the_stages(stage):
    assert CiteConfig(first_stage=stage).run_tag == f"qbe-cite-{stage}+rerank"
    assert CiteConfig(first_stage=stage, rerank="none").run_tag == f"qbe-cite-{stage}"


@pytest.mark.parametrize(
    ("parameters", "error", "name"),
    [
        ({"depth": "5"}, TypeError, "depth"),
        ({"depth": True}, TypeError, "depth"),
        ({"filter": {"before": 2018}}, TypeError, "filter"),
        ({"links": None}, TypeError, "links"),
        ({"model": 5}, TypeError, "model"),
        ({"first_stage": "lucene"}, UsageError, "first_stage"),
        ({"first_stage": None}, UsageError, "first_stage"),
        ({"rerank": "mean-max"}, UsageError, "rerank"),
        ({"depth": 0}, UsageError, "depth"),
        ({"links": False, "rerank": "none"}, UsageError, "links"),
    ],
)
def test_values_that_are_not_possible(parameters, error, name):
    with pytest.raises(error, match=f"`{name}`"):
        CiteConfig(**parameters)
