#!/usr/bin/env bash
# CSFCube's queries over a whole corpus: no pools, its papers among all of arXiv's records of computer science.
# What nobody judged says nothing, so the table is of judged papers: how many of the relevant ones (grade 2 or 3)
# are among 1,000, and in which order the judged ones stand. Takes an hour on two cores, and 2 GB of disk.
set -euo pipefail

arxiv="${QBE_DATA:?set QBE_DATA to a folder with arxiv-cs/arxiv-cs.jsonl.xz and csfcube}/arxiv-cs/arxiv-cs.jsonl.xz"
index="${1:-indexes/whole}"

python -m qbe.datasets csfcube --output qrels
if [ ! -e "$index" ]; then
    python -m qbe.index --corpus qrels/corpus.jsonl "$arxiv" --output "$index" --resume \
        --timings runs/whole-index.json
fi
search() {  # first stage, reranker, name of the runs
    for facet in background method result; do
        python -m qbe.search --index "$index" --topics qrels/topics.tsv --facet "$facet" \
            --first-stage "$1" --rerank "$2" --hits 1000 --output "runs/$3.$facet.trec"
    done
}
for stage in bm25 dense fused; do
    search $stage none "whole.$stage"
done
search fused cross-encoder whole.fused+rerank

python -m qbe.evaluate --qrels qrels/csfcube.*.qrels --run runs/whole.{bm25,dense,fused,fused+rerank}.*.trec \
    --measures 'R(rel=2)@1000' 'nDCG(judged_only=True)@20' 'Judged@20' \
    --baseline runs/whole.fused.*.trec --output runs/report-whole.json
