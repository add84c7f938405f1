#!/usr/bin/env bash
# The main job: collection, index, runs of every first stage and facet, table.
# CSFCube where it can be had ($QBE_DATA/csfcube, or downloaded), else the embedded sample.
set -euo pipefail

if python -m qbe.datasets csfcube --output qrels; then
    name=csfcube published=--published
else
    name=sample published=
    python -m qbe.datasets sample --output qrels
    echo "CSFCube could not be had: what follows is the embedded sample, which demonstrates and proves nothing."
fi

# Searches every facet with every first stage: index folder, names of the runs.
search() {
    for stage in bm25 dense fused; do
        for facet in background method result; do
            python -m qbe.search --index "$1" --topics qrels/topics.tsv --pool qrels/pools.tsv \
                --facet "$facet" --first-stage "$stage" --output "runs/$2$stage.$facet.trec"
        done
    done
}

python -m qbe.index --corpus qrels/corpus.jsonl --output "indexes/$name" --overwrite
search "indexes/$name" "$name."

python -m qbe.evaluate --protocol csfcube --qrels qrels/"$name".*.qrels --folds qrels/folds.json \
    --run runs/"$name".{bm25,dense,fused}.*.trec --baseline runs/"$name".bm25.*.trec $published \
    --output runs/report.json

# The same from raw text: abstracts in one string, sentences and facets found by qbe.
python -m qbe.datasets "$name" --raw --output qrels/raw
python -m qbe.index --corpus qrels/raw/corpus.jsonl --output "indexes/$name-raw" --overwrite
search "indexes/$name-raw" "$name-raw."

echo "With predicted facets, from raw text:"
python -m qbe.evaluate --protocol csfcube --qrels qrels/"$name".*.qrels --folds qrels/folds.json \
    --run runs/"$name".fused.*.trec runs/"$name"-raw.{bm25,dense,fused}.*.trec \
    --baseline runs/"$name".fused.*.trec --output runs/report-raw.json
