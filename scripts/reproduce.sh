#!/usr/bin/env bash
# Reproduces the main figures: the collection in the package (mini) and, where it is at hand ($QBE_DATA/csfcube) or can
# be downloaded, CSFCube: indexes, runs of every first stage and facet without and with reranking, one table of each.
# Everything else that it makes stays in runs/.
set -euo pipefail
log=runs/reproduce.log
mkdir -p runs
: > "$log"

quietly() { "$@" < /dev/null >> "$log" 2>&1 || { tail -n 5 "$log" >&2; echo "failed: $* (all output: $log)" >&2; exit 1; }; }
heading() { echo "== $* ==" | tee -a "$log" >&2; }

# Searches by every facet: index, folder of the collection, name of the run, first stage, reranker.
search() {
    quietly qbe search --index "$1" --topics "$2/topics.tsv" --pool "$2/pools.tsv" --run-tag "$3" \
        --output "runs/$3.trec" --overwrite --first-stage "$4" --rerank "$5"
}
plain=fused:background_penalty=0
systems=("bm25 bm25 none" "dense dense none" "fused-without-penalty $plain none"
    "fused+projections fused projections" "fused+grades fused grades" "fused+joint fused grades:joint=20") # name, first stage, reranker

# Indexes a collection, makes its six runs, and writes their tables: its name, its folder, options of the table.
evaluate() {
    local name=$1 folder=$2 index=$3 runs=()
    quietly qbe index --corpus "$folder/corpus.jsonl" --output "$index" --overwrite
    local system first_stage rerank
    while read -r system first_stage rerank; do
        search "$index" "$folder" "$name.$system" "$first_stage" "$rerank"
        runs+=("runs/$name.$system.trec")
    done < <(printf '%s\n' "${systems[@]}")
    local command=(qbe evaluate --protocol csfcube --qrels "$folder/$name".*.qrels --folds "$folder/folds.json"
        --run "${runs[@]}" --baseline "runs/$name.bm25.trec" "${@:4}")
    "${command[@]}" --output "runs/$name.json" --plot "runs/$name.svg" --overwrite > "runs/$name.txt" 2>> "$log"
    "${command[@]}" --details > "runs/$name.details.txt" 2>> "$log"
}

heading "mini, 3,000 arXiv papers and 40 queries by three facets, in the package: a minute"
folder=qrels/mini
quietly qbe datasets mini --output $folder --overwrite
if qbe datasets csfcube --output qrels >> "$log" 2>&1; then
    evaluate mini $folder runs/indexes/mini
    heading "CSFCube, 4,205 papers and 50 queries: three to five minutes"
    evaluate csfcube qrels indexes/csfcube --published
    bash scripts/reproduce-more.sh >> "$log" 2>&1 || { tail -n 5 "$log" >&2; exit 1; }
    names="mini csfcube"
else
    quietly qbe datasets mini --output qrels --overwrite
    evaluate mini $folder indexes/mini
    names=mini
fi

for name in $names; do
    echo
    sed "s/$name\.//g; 1s/^/$name: /" "runs/$name.txt" | grep -v "^dense: \|^fused+projections: \|^fused-without-penalty: "
done
echo "
fused+joint is what qbe search does by default, fused-without-penalty --first-stage $plain --rerank none. A search:
"
index=indexes/mini
[ -e $index/CURRENT ] || index=runs/indexes/mini
qbe search --index $index --paper 1904.00842 --facet method --hits 2 --format table
echo "
The rest is in runs/: NAME.details.txt (all measures and tests), NAME.json, NAME.svg; reproduce.log."
python3 - <<'END'
import hashlib, json, pathlib
published = json.loads(pathlib.Path("runs/published/runs.json").read_text())
runs = {name: pathlib.Path("runs", f"{name}.trec") for name in published}
same = [hashlib.sha256(path.read_bytes()).hexdigest() == published[name]["sha256"] for name, path in runs.items() if path.exists()]
if not same:
    print("CSFCube was not at hand: README's table is of it.")
elif all(same):
    print("All runs of CSFCube are the published ones, to the byte.")
else:
    print(f"{same.count(False)} of {len(same)} runs of CSFCube differ from the published ones: int8 is computed otherwise on this processor")
    print("(qbe doctor says whether it has VNNI); without VNNI sums saturate, and the default has 63.99 / 43.42.")
END
