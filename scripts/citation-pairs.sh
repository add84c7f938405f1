#!/usr/bin/env bash
# The tables of Nogueira et al. (BIR 2020) on dev of `citations`: query forms of BM25, and pair rerankers by pretrained
# model, balance of classes and division of tokens. What was interrupted continues.
# TOKENS and EPOCHS make it shorter, VARIANTS names the rerankers to train.
set -euo pipefail

tokens="${TOKENS:-512}" half=$((${TOKENS:-512} / 2)) quarter=$((${TOKENS:-512} / 4))
data=qrels/citations index=indexes/citations out=runs/citation-pairs
declare -A options=(
    [minilm]="--query-tokens $half --candidate-tokens $half"
    [mpnet]="--query-tokens $half --candidate-tokens $half --encoder facet-encoder-large"
    [balanced]="--query-tokens $half --candidate-tokens $half --classes balanced"
    [all-cited]="--query-tokens $half --candidate-tokens $half --classes all-cited"
    [longer-query]="--query-tokens $((tokens - quarter)) --candidate-tokens $quarter"
    [longer-candidate]="--query-tokens $quarter --candidate-tokens $((tokens - quarter))"
)
read -ra variants <<< "${VARIANTS:-minilm mpnet balanced all-cited longer-query longer-candidate}"

qbe datasets citations --output $data
[ -e $index/CURRENT ] || qbe index --corpus $data/papers.jsonl --output $index
mkdir -p $out
runs=()
search() { # the name of the run, options
    qbe search --index $index --topics $data/topics.dev.tsv --year query --output "runs/citations.$1.trec" --overwrite "${@:2}"
    runs+=("runs/citations.$1.trec")
}
cite() {
    qbe cite --index $index --topics $data/topics.dev.tsv --before query --output "runs/citations.$1.trec" --overwrite "${@:2}"
    runs+=("runs/citations.$1.trec")
}

for form in keyterms title abstract; do
    search "bm25.$form" --first-stage "bm25:query=$form" --rerank none
done
search fused --first-stage fused --rerank none
cite text --no-links
for variant in "${variants[@]}"; do
    read -ra chosen <<< "${options[$variant]}"
    qbe train citation-pairs --collection $data --index $index --epochs "${EPOCHS:-1}" "${chosen[@]}" \
        --output "$out/$variant" --work "$out/work-$variant"
    search "bm25+$variant" --first-stage bm25:query=abstract --rerank "$out/$variant:depth=${DEPTH:-100},weight=1"
    cite "text+$variant" --no-links --rerank "$out/$variant:depth=100,weight=0.5"
done
qbe evaluate --protocol citations --qrels $data/dev.qrels --run "${runs[@]}" --baseline runs/citations.fused.trec \
    --published
