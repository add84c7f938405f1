"""Stage objects: their parameters, their two written forms (JSON and the command line's), and the default."""

import math
from pathlib import Path

import pytest

import qbe
from qbe.errors import UsageError
from qbe.search.stages import (
    BACKGROUND_PENALTY,
    BM25,
    FIRST_STAGES,
    RERANKERS,
    CrossEncoder,
    Dense,
    Fused,
    Grades,
    Matching,
    Projections,
    Stages,
    default_stages,
    describe_stages,
    parse_first_stage,
    parse_reranker,
    stage_of,
)

EVERY = [
    BM25(),
    BM25("abstract"),
    Dense(nprobe=4),
    Fused(),
    Fused("abstract", 2, {"bm25": 1.0, "whole": 0.5}, 500, 0.0),
    Projections("folder", 1000, 0.25, 1.0),
    CrossEncoder(),
    CrossEncoder("facet-rerankers", weight=1.0),
    Matching(),
    Matching("transport", 20, 0.5, 0.25, 5.0),
    Grades(50),
]


def test_defaults():
    assert Stages() == Stages(Fused(), None)
    assert (Grades().depth, Grades().weight) == (100, 0.75)
    assert (Fused().depth, Fused().background_penalty, Fused().bm25_query) == (300, 0.35, "title+facet")
    for stage in (Projections(), CrossEncoder()):
        assert (stage.depth, stage.weight, stage.background_penalty) == (100, 0.5, BACKGROUND_PENALTY)
    assert (Matching().kind, Matching().depth, Matching().weight) == ("transport", 100, 1.0)


@pytest.mark.parametrize("stage", EVERY, ids=repr)
def test_a_stage_is_read_back_from_its_json(stage):
    assert stage_of(stage.to_json()) == stage
    changed = {**stage.to_json(), "depth": 7} if hasattr(stage, "depth") else {"stage": "grades", "depth": 7}
    assert stage_of(changed) != stage


def test_stages_are_composed_and_read_back():
    stages = Dense() >> Matching("attention")
    assert stages == Stages(Dense(), Matching("attention"))
    assert Stages.from_json(stages.to_json()) == stages
    assert Stages.from_json(Stages(BM25()).to_json()) == Stages(BM25())
    for record in ({}, {**stages.to_json(), "first_stage": {"stage": "splade"}}):
        with pytest.raises(UsageError, match="expected a record of stages"):
            Stages.from_json(record)


def test_run_tags():
    tags = [
        stages.run_tag for stages in (Stages(BM25()), Fused() >> Projections(), Dense() >> CrossEncoder())
    ]
    assert tags == ["qbe-bm25", "qbe-fused+projections", "qbe-dense+cross-encoder"]
    assert (Dense() >> Matching("attention")).run_tag == "qbe-dense+attention"


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("bm25", BM25()),
        ("bm25:query=abstract", BM25("abstract")),
        ("dense:nprobe=8", Dense(8)),
        ("fused:depth=500,background_penalty=0", Fused(depth=500, background_penalty=0)),
        ("fused:weights=bm25:1+whole:0.5", Fused(weights={"bm25": 1, "whole": 0.5})),
    ],
)
def test_first_stages_of_the_command_line(text, stage):
    assert parse_first_stage(text) == stage


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("none", None),
        ("projections:depth=1000", Projections(depth=1000)),
        ("cross-encoder:model=org/name,weight=1", CrossEncoder("org/name", weight=1)),
        ("matching:kind=transport,temperature=0.5", Matching(temperature=0.5)),
        ("models/mine:depth=20", CrossEncoder("models/mine", depth=20)),
        ("org/name", CrossEncoder("org/name")),
    ],
)
def test_rerankers_of_the_command_line(text, stage):
    assert parse_reranker(text) == stage


def test_a_folder_says_itself_what_is_in_it(tmp_path):
    (tmp_path / "facet-projections.json").touch()
    assert parse_reranker(f"{tmp_path}:depth=7") == Projections(str(tmp_path), 7)
    (tmp_path / "facet-projections.json").unlink()
    assert parse_reranker(str(tmp_path)) == CrossEncoder(str(tmp_path))


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_first_stage, "fussed", "`first_stage` of bm25, dense, fused, found 'fussed'; did you mean"),
        (parse_first_stage, "bm25:depth=3", "of query, found 'depth=3'; check `first_stage`"),
        (parse_first_stage, "fused:depth=many", "expected a whole number as `depth`, found 'many'"),
        (parse_first_stage, "fused:depth=1,depth=2", "each once, .*found 'depth=2'"),
        (parse_first_stage, "fused:weights=bm25", "expected a number as `weights`, found ''"),
        (parse_first_stage, "fused:background_penalty=nan", "`background_penalty` from 0 to 1, found nan"),
        (parse_reranker, "projection", "found 'projection'; did you mean projections"),
        (
            parse_reranker,
            "by-facet",
            "expected `rerank` of none, grades, projections, cross-encoder, matching",
        ),
        (parse_reranker, "projections:weight", "found 'weight'; check `rerank`"),
        (parse_reranker, "none:depth=3", "found 'none:depth=3'|found 'none'"),
    ],
)
def test_what_the_command_line_refuses(parse, text, message):
    with pytest.raises(UsageError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("stage", "parameters", "message"),
    [
        (BM25, {"query": "keyterms"}, r"`query` of title\+facet, abstract, words, found 'keyterms'"),
        (Dense, {"nprobe": 0}, "`nprobe` of at least 1, found 0"),
        (Fused, {"depth": -1}, "`depth` of at least 1, found -1"),
        (Fused, {"weights": {"bm25": -1.0}}, r"`weights` from 0 to 1e\+06, not all 0, of bm25, sentences"),
        (Fused, {"weights": {"bm25": 0.0}}, "not all 0"),
        (Fused, {"weights": {}}, "not all 0"),
        (Fused, {"weights": {"colbert": 1.0}}, "facet, whole, found {'colbert': 1.0}"),
        (Fused, {"weights": {"bm25": math.nan}}, "found {'bm25': nan}"),
        (Fused, {"background_penalty": 1.5}, "`background_penalty` from 0 to 1, found 1.5"),
        (Projections, {"depth": 0}, "`depth` of at least 1, found 0"),
        (CrossEncoder, {"weight": math.nan}, "`weight` from 0 to 1, found nan"),
        (Matching, {"kind": "sinkhorn"}, "`kind` of transport, attention, single-match, mean-max"),
        (Matching, {"temperature": 0.0}, "`temperature` above 0, found 0"),
        (Matching, {"kind": "attention", "regularization": 9}, "`regularization` is not read with `kind`"),
        (Grades, {"depth": 0}, "`depth` of at least 1"),
    ],
)
def test_values_out_of_range(stage, parameters, message):
    with pytest.raises(UsageError, match=message):
        stage(**parameters)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fused(depth="3"), r"an int as `depth`, found '3' \(str\)"),
        (lambda: Fused(depth=True), "an int as `depth`"),
        (lambda: Fused(background_penalty="much"), "a number as `background_penalty`, found 'much'"),
        (lambda: Fused(weights="bm25"), "a mapping as `weights`"),
        (lambda: Fused(depth=None), "an int as `depth`, found None"),
        (lambda: Projections(7), "a folder as `model`, found 7"),
        (lambda: CrossEncoder(7), r"a model as `model`: a name, a folder, an object .* found 7 \(int\)"),
        (lambda: Fused() >> 7, "a model as `model`"),
        (lambda: Stages("fused"), r"a first stage such as qbe.Fused\(\), found 'fused'"),
        (lambda: (Fused() >> len).to_json(), "a name or folder as `model` to be written as JSON"),
    ],
)
def test_values_of_another_type(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_help_names_every_parameter():
    for stages in (FIRST_STAGES, RERANKERS):
        text = describe_stages(stages)
        for name, stage in stages.items():
            assert f"{name}: " in text
            assert all(f"  {field}  " in text for field in stage.__dataclass_fields__ if field != "name")


def test_every_stage_is_public():
    for stage in (*FIRST_STAGES.values(), *RERANKERS.values(), Stages):
        assert getattr(qbe, stage.__name__) is stage


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, Fused() >> CrossEncoder()),
        ({"dense": False}, BM25() >> CrossEncoder()),
        ({"bm25": False}, Dense() >> CrossEncoder()),
    ],
)
def test_the_default_follows_what_an_index_has(sample, tiny_encoder, tmp_path, parameters, expected):
    settings = qbe.BuildSettings(encoder=str(tiny_encoder), **parameters)
    with qbe.build_index(tmp_path / "index", sample / "corpus.jsonl", settings) as index:
        assert default_stages(index) == expected


def test_the_default_follows_the_encoder(graded_index):
    with qbe.open_index(graded_index) as index:
        assert default_stages(index) == Fused() >> Grades()


def test_stages_are_light():
    import subprocess
    import sys

    code = "import sys, qbe.search.stages; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)
