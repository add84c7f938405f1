// What the server finds for a state of the page, as it comes.

import { get, post, rankings } from "./api.js";

/** A list of papers, or a better one in place of it. `papers` are those of the query, with their sentences;
 * `record` is the server's answer; `note` says in a sentence how far the search is. `options`: see /api.js. */
export function find(state, request, options) {
  return state.view === "cite" ? citations(state, request, options) : similar(request, options);
}

/** The next page of the same list. */
export function findMore(state, request, options) {
  return post(state.view === "cite" ? "api/citations" : "api/search", request, options);
}

async function* similar(request, options) {
  const begin = performance.now();
  let last = null;
  for await (const record of rankings(request, options)) {
    const note = record.is_final
      ? final(record, begin)
      : `${counted(record)} after ${seconds(begin)}; now the best are compared more closely …`;
    last = { record, papers: record.query.papers, note };
    yield last;
  }
  if (!last) throw new Error("The search ended without an answer.");
}

// What counts as a whole is not reranked: the first order is the last one.
const final = (record, begin) =>
  `${counted(record)}${record.stage === "reranked" && record.hits.length ? ", in their final order" : ""} (${seconds(begin)}).`;

async function* citations(state, request, options) {
  const begin = performance.now();
  const [record, papers] = await Promise.all([post("api/citations", request, options), ownPapers(state, options)]);
  yield { record, papers, note: `${counted(record, " to cite")} (${seconds(begin)}).` };
}

async function ownPapers(state, options) {
  if (state.papers.length) {
    return Promise.all(state.papers.map((id) => get(`api/papers?paper_id=${encodeURIComponent(id)}`, options)));
  }
  const paper = await post("api/facets", { text: state.text, title: state.title }, options);
  return [{ ...paper, paper_id: null }];
}

const seconds = (begin) => `${((performance.now() - begin) / 1000).toFixed(1)} s`;

function counted(record, purpose = "") {
  const { length } = record.hits;
  if (!length) return "No paper was found; try wider years, fewer categories, other authors or another technique";
  if (record.has_more) return `The first ${length} papers${purpose}`;
  return `${length === 1 ? "1 paper" : `${length} papers`}${purpose}`;
}
