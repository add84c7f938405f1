"""Builds described by one value: settings, corpus and threads."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from qbe.corpus.read import AS_IT_COMES
from qbe.corpus.reading import Reading
from qbe.index.building.build import build
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.manifest import Manifest
from qbe.index.parts.build import build_part
from qbe.index.parts.part import BuildShard, PartMetadata


@dataclass(frozen=True)
class Job(BuildSettings):
    """Settings of a build, with its corpus, how that is read, and threads."""

    corpus: tuple[str, ...] = ()
    threads: int = 1
    reading: Reading = AS_IT_COMES

    @property
    def settings(self) -> BuildSettings:
        """The settings only."""
        names = [field.name for field in dataclasses.fields(BuildSettings)]
        return BuildSettings(**{name: getattr(self, name) for name in names})


def build_job(output: Path, job: Job, *, overwrite: bool = False, resume: bool = False) -> Manifest:
    """Build an index."""
    execution = Execution(job.threads)
    return build(
        output,
        job.corpus,
        job.settings,
        reading=job.reading,
        overwrite=overwrite,
        resume=resume,
        execution=execution,
    )


def build_part_job(output: Path, job: Job, part: BuildShard, *, resume: bool = False) -> PartMetadata:
    """Build a part of an index."""
    return build_part(output, job.corpus, job.settings, part, resume=resume)
