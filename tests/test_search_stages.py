"""Stage objects: their parameters, their two written forms (JSON and the command line's), and the default."""

import json
import math
from types import SimpleNamespace

import pytest
from support.messages import messages_of

import qbe
from qbe import BM25, CrossEncoder, Dense, Fused, Grades, Matching, Projections, Stages, UsageError
from qbe.search.stages import FIRST_STAGES, RERANKERS, describe_stages, parse_first_stage, parse_reranker

EVERY = [
    *(BM25(), BM25("abstract"), BM25("facet", "tfidf"), Dense(nprobe=4), Fused()),
    Fused("abstract", 2, {"bm25": 1.0, "whole": 0.5}, 500, 0.0),
    *(Projections("folder", 1000, 0.25, 1.0), CrossEncoder(), CrossEncoder("joint-grades", weight=1.0)),
    *(Matching(), Matching("transport", 20, 0.5, 0.25, 5.0), Grades(50)),
]


@pytest.mark.parametrize("stage", EVERY, ids=repr)
def test_a_stage_is_read_back_from_its_json(stage):
    stages = Stages(stage) if stage.name in FIRST_STAGES else Stages(reranker=stage)
    assert Stages.from_json(json.loads(json.dumps(stages.to_json()))) == stages


def test_stages_are_composed_and_read_back():
    stages = Dense() >> Matching("attention")
    assert stages == Stages(Dense(), Matching("attention"))
    assert Stages.from_json(stages.to_json()) == stages
    tags = [(Fused() >> each).run_tag for each in (Matching("attention"), Grades(), Grades(joint=20))]
    assert tags == ["qbe-fused+attention", "qbe-fused+grades", "qbe-fused+grades:joint=20"]
    assert Stages(Dense()) >> Matching("attention") == stages
    for record in ({}, {**stages.to_json(), "first_stage": {"stage": "splade"}}):
        with pytest.raises(UsageError, match="expected a record of stages"):
            Stages.from_json(record)


@pytest.mark.parametrize(
    ("parse", "text", "stage"),
    [
        *((parse_first_stage, "bm25", BM25()), (parse_first_stage, "bm25:query=abstract", BM25("abstract"))),
        *((parse_first_stage, "dense:nprobe=8", Dense(8)), (parse_reranker, "none", None)),
        (parse_first_stage, "fused:depth=5,background_penalty=0", Fused(depth=5, background_penalty=0)),
        (parse_first_stage, "fused:weights=bm25:1+whole:0.5", Fused(weights={"bm25": 1, "whole": 0.5})),
        (parse_reranker, "projections:depth=1000", Projections(depth=1000)),
        (parse_reranker, "cross-encoder:model=org/name,weight=1", CrossEncoder("org/name", weight=1)),
        (parse_reranker, "matching:kind=transport,temperature=0.5", Matching(temperature=0.5)),
        (parse_reranker, "models/mine:depth=20", CrossEncoder("models/mine", depth=20)),
        (parse_reranker, "org/name", CrossEncoder("org/name")),
    ],
)
def test_stages_of_the_command_line(parse, text, stage):
    assert parse(text) == stage


def test_a_folder_says_itself_what_is_in_it(tmp_path):
    (tmp_path / "facet-projections.json").touch()
    assert parse_reranker(f"{tmp_path}:depth=7") == Projections(str(tmp_path), 7)
    (tmp_path / "facet-projections.json").unlink()
    assert parse_reranker(str(tmp_path)) == CrossEncoder(str(tmp_path))


WRONG = [
    *(lambda: parse_first_stage("fussed"), lambda: parse_first_stage("bm25:depth=3")),
    *(lambda: parse_first_stage("fused:depth=many"), lambda: parse_first_stage("fused:depth=1,depth=2")),
    lambda: parse_first_stage("fused:weights=bm25"),
    lambda: parse_first_stage("fused:weights=bm25:1+bm25:2"),
    lambda: parse_first_stage("fused:background_penalty=nan"),
    *(lambda: parse_reranker("projection"), lambda: parse_reranker("by-facet")),
    *(lambda: parse_reranker("projections:weight"), lambda: parse_reranker("none:depth=3")),
    *(lambda: BM25("key terms"), lambda: BM25(similarity="cosine")),
    *(lambda: Dense(nprobe=0), lambda: Fused(depth=-1)),
    *(
        lambda weights=weights: Fused(weights=weights)
        for weights in ({"bm25": -1.0}, {"bm25": 0.0}, {}, {"colbert": 1.0}, {"bm25": math.nan}, "bm25")
    ),
    *(lambda: Fused(background_penalty=1.5), lambda: Fused(background_penalty="much")),
    *(lambda depth=depth: Fused(depth=depth) for depth in ("3", True, None)),
    *(lambda: Projections(depth=0), lambda: Projections(7), lambda: CrossEncoder(weight=math.nan)),
    *(lambda: CrossEncoder(7), lambda: CrossEncoder(len, device="cpu")),
    lambda: Fused() >> SimpleNamespace(transform=len),
    *(lambda: Matching("sinkhorn"), lambda: Matching(temperature=0.0)),
    *(lambda: Matching("attention", regularization=9), lambda: Grades(0), lambda: Fused() >> 7),
    *(lambda: Fused() >> Projections() >> Grades(), lambda: BM25(k1=1.2)),  # type: ignore[call-arg]
    *(lambda: Stages("fused"), lambda: (Fused() >> len).to_json()),
]


def test_what_is_refused(told):
    told("stages", messages_of(WRONG, (UsageError, TypeError)))


def test_help_names_every_parameter():
    for stages in (FIRST_STAGES, RERANKERS):
        text = describe_stages(stages)
        for name, stage in stages.items():
            assert f"{name}: " in text
            assert all(f"  {field}  " in text for field in stage.__dataclass_fields__ if field != "name")


def test_the_default_follows_an_index_and_its_encoder(index, graded_index, tiny_encoder, papers, tmp_path):
    assert qbe.default_stages(index) == Fused() >> CrossEncoder()
    for parameters, first in (({"dense": False}, BM25()), ({"bm25": False}, Dense())):
        settings = qbe.BuildSettings(encoder=str(tiny_encoder), **parameters)
        with qbe.build_index(tmp_path / first.name, papers[:5], settings) as other:
            assert qbe.default_stages(other) == first >> CrossEncoder()
    with qbe.open_index(graded_index) as graded:
        assert qbe.default_stages(graded) == Fused() >> Grades(joint=20)
