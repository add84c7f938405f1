#!/usr/bin/env bash
# CSFCube's queries over a whole corpus, without pools: its papers and all records of arXiv in QBE_DATA (507,848).
# Most papers are not judged, so the measures use judged papers only: the recall of relevant ones (grade 2 or 3)
# at 1,000, and nDCG of the judged ones at 20. Takes one to three hours on two cores, and 5 GB of disk.
set -euo pipefail

arxiv="${QBE_DATA:?set QBE_DATA to a folder with arxiv-cs/*.jsonl.xz and csfcube}/arxiv-cs"
index="${1:-indexes/whole}"

qbe datasets csfcube --output qrels
if [ ! -e "$index" ]; then
    qbe index --corpus qrels/corpus.jsonl "$arxiv"/*.jsonl.xz --output "$index" --resume
fi
search() { # name of the run, first stage, reranker
    qbe search --index "$index" --topics qrels/topics.tsv --hits 1000 --run-tag "$1" \
        --output "runs/whole.$1.trec" --overwrite --first-stage "$2" --rerank "$3"
}
search bm25 bm25 none
search dense dense none
search fused fused:background_penalty=0 none

qbe evaluate --qrels qrels/csfcube.*.qrels --run runs/whole.{bm25,dense,fused}.trec \
    --measures 'R(rel=2)@1000' 'nDCG(judged_only=True)@20' 'Judged@20' \
    --baseline runs/whole.fused.trec --output runs/report-whole.json --overwrite
