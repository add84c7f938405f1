"""Pairs to be graded by hand, one at a time, and the grades that are given."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from qbe.errors import UsageError
from qbe.label.by_hand import HandGrades, Turn
from qbe.models.llm.grading import default_guideline
from qbe.serve.routes import Service
from qbe.serve.service.records import as_json
from qbe.serve.service.service import SearchService
from qbe.types import Paper

router = APIRouter(prefix="/api")

Name = Annotated[str, Field(max_length=200, description="small letters, digits and hyphens")]
Grade = Annotated[int, Field(ge=0, le=3, strict=True)]


class GivenGrades(BaseModel):
    """The grades of a pair by an assessor."""

    model_config = ConfigDict(extra="forbid")

    assessor: Name
    query_id: str
    paper_id: str
    background: Grade
    method: Grade
    result: Grade


def _hands(request: Request) -> HandGrades:
    hands: HandGrades | None = request.app.state.hands
    if hands is None:
        raise UsageError(
            "expected a server of pairs to grade; start it with qbe serve --pairs FILE --labels DIR"
        )
    return hands


Hands = Annotated[HandGrades, Depends(_hands)]


@router.get("/labels")
def next_pair(hands: Hands, service: Service, assessor: Annotated[Name, Query()]) -> Response:
    """The next pair for an assessor: titles and abstracts alone, with nothing of how it was found."""
    return _answer(service, hands.turn(assessor))


@router.post("/labels")
def give(hands: Hands, service: Service, body: GivenGrades) -> Response:
    """Keep the grades of a pair, in the place of earlier ones; answers with the next pair."""
    grades = (body.background, body.method, body.result)
    return _answer(service, hands.grade(body.assessor, body.query_id, body.paper_id, grades))


def _answer(service: SearchService, turn: Turn) -> Response:
    pair: dict[str, Any] | None = None
    if turn.pair is not None:
        pair = {
            "query_id": turn.pair.query_id,
            "paper_id": turn.pair.paper_id,
            "query": _shown(service.index.paper(turn.pair.query_id)),
            "candidate": _shown(service.index.paper(turn.pair.paper_id)),
        }
    record = {"graded": turn.graded, "total": turn.total, "pair": pair, "guideline": default_guideline()}
    return Response(as_json(record), media_type="application/json")


def _shown(paper: Paper) -> dict[str, str]:
    return {"title": paper.title, "abstract": paper.abstract}
