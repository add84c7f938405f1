#!/usr/bin/env bash
# Exploration on graded pairs: one facet liked, another disliked, by grades, by grades of stored vectors alone, by
# the liked facet alone, and by BM25. The papers are those of arXiv in $QBE_DATA. PAIRS names the file of pairs.
set -euo pipefail

pairs="${PAIRS:-data/graded-pairs/dev-2.tsv}"
name="$(basename "$pairs" .tsv)"
qbe datasets graded-pairs --source "$pairs" --output "qrels/$name" --overwrite
qbe index --corpus "qrels/$name/corpus.jsonl" --output "indexes/$name" --overwrite

for facet in background method; do
    awk -F '\t' -v facet=$facet 'NR == 1 || $3 == facet' "qrels/$name/topics.tsv" > "qrels/$name/topics.$facet.tsv"
done

search() {  # the name of the run, the facet of its topics, options
    qbe search --index "indexes/$name" --topics "qrels/$name/topics.$2.tsv" --pool "qrels/$name/pools.tsv" \
        --output "runs/$name.$1.trec" "${@:3}"
}

for facet in background method; do
    search "bm25.$facet" "$facet" --first-stage bm25 --rerank none
    search "facet.$facet" "$facet" --rerank cross-encoder
done
for wish in "background method" "method background"; do
    read -r liked disliked <<< "$wish"
    search "vectors.$liked-not-$disliked" "$liked" --like "$liked" --unlike "$disliked" --rerank none
    search "grades.$liked-not-$disliked" "$liked" --like "$liked" --unlike "$disliked"
done

qbe evaluate --protocol exploration --qrels "$pairs" --baseline runs/"$name".facet.*.trec \
    --run runs/"$name".bm25.*.trec runs/"$name".vectors.*.trec runs/"$name".grades.*.trec \
    --output "runs/$name.exploration.json"
