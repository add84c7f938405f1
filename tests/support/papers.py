"""Papers in the place of an index."""

from qbe.types import Paper


class Papers:
    """As much of an index as presentation reads."""

    def __init__(self, *papers: Paper) -> None:
        self._papers = {paper.paper_id: paper for paper in papers}

    def paper(self, paper_id: str) -> Paper:
        return self._papers[paper_id]
