// What the page shows, as text behind the # of its address, and as requests to the server.

/** A page on which nothing was done yet. `papers` are ids, in place of `text`; `sentences` are the picked
 * ones; `labels` corrects their facets, such as 0:method,2:other; `problem` and `method` go from -1 (must differ) to 1 (same); all zero: the whole abstract counts.
 * `kept`: the JSON of a kept search that the other fields cannot say; `mix`: a list mixed of all shapes; `varied`: from 0 to 1, how much papers should differ from each other. */
export const EMPTY = Object.freeze({
  text: "",
  title: "",
  papers: [],
  sentences: [],
  labels: "",
  problem: 0,
  method: 0,
  result: false,
  mix: false,
  varied: 0,
  view: "similar",
  from: "",
  to: "",
  categories: "",
  authors: "",
  technique: "",
  kept: "",
  since: "",
  sort: "rank",
  not: [],
  seen: [],
  basket: [],
});

const PAGE = 20;
const MOST_SEEN = 1000; // papers that a request can leave out
const LISTS = { papers: "paper", not: "not", seen: "seen", basket: "basket" };
const TECHNIQUE = "technique="; // how a filter by what a paper says begins
const TEXTS = ["text", "title", "from", "to", "categories", "authors", "technique", "since", "kept"];
const CHOICES = { view: ["similar", "cite"], sort: ["rank", "newest", "oldest"] };

/** The state that an address's fragment describes; what it does not describe, or wrongly, is as in EMPTY. */
export function read(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const state = { ...EMPTY };
  for (const name of TEXTS) state[name] = fields.get(name) ?? "";
  for (const [name, field] of Object.entries(LISTS)) state[name] = unique(fields.getAll(field).filter(Boolean));
  for (const [name, values] of Object.entries(CHOICES)) {
    if (values.includes(fields.get(name))) state[name] = fields.get(name);
  }
  for (const name of ["problem", "method"]) state[name] = weight(fields.get(name));
  state.result = fields.has("result");
  state.mix = fields.has("mix");
  state.varied = share(fields.get("varied"));
  state.sentences = unique((fields.get("sentences") ?? "").split(",").filter((part) => /^\d{1,4}$/.test(part)).map(Number));
  state.labels = labelled(fields.get("labels") ?? "");
  if (state.papers.length) state.text = state.title = "";
  if (state.kept && !isSearch(state.kept)) state.kept = "";
  if (!/^\d{4}-\d{2}-\d{2}$/.test(state.since)) state.since = "";
  return state;
}

/** The fragment of a state, "" for EMPTY. */
export function write(state) {
  const fields = new URLSearchParams();
  for (const name of TEXTS) if (state[name]) fields.set(name, state[name]);
  for (const [name, field] of Object.entries(LISTS)) for (const id of state[name]) fields.append(field, id);
  for (const name of Object.keys(CHOICES)) if (state[name] !== EMPTY[name]) fields.set(name, state[name]);
  for (const name of ["problem", "method"]) if (state[name]) fields.set(name, state[name]);
  if (state.result) fields.set("result", "1");
  if (state.mix) fields.set("mix", "1");
  if (state.varied) fields.set("varied", state.varied);
  if (state.sentences.length) fields.set("sentences", state.sentences.join(","));
  if (state.labels) fields.set("labels", state.labels);
  const text = fields.toString();
  return text && `#${text}`;
}

/** Corrections of labels, one a sentence: the last one counts. */
export function labelled(text) {
  const pairs = text.split(",").map((part) => /^(\d{1,4}):(background|aim|method|result|other)$/.exec(part)).filter(Boolean);
  return [...new Map(pairs.map(([, position, facet]) => [position, facet]))].map((pair) => pair.join(":")).join(",");
}

const unique = (values) => [...new Set(values)];

function weight(text) {
  const number = Number(text);
  return Number.isFinite(number) ? Math.min(Math.max(Math.round(number * 4) / 4, -1), 1) : 0;
}

function share(text) {
  const number = Number(text);
  return Number.isFinite(number) ? Math.min(Math.max(Math.round(number * 10) / 10, 0), 1) : 0;
}

export const hasSource = (state) => Boolean(state.text.trim() || state.papers.length);

/** Whether something is asked to be the same: a search starts from that. */
export const asksForSomething = (state) =>
  state.sentences.length > 0 || state.result || state.mix || state.problem > 0 || state.method > 0 || isWhole(state);

/** Whether the whole abstract counts. */
export const isWhole = (state) =>
  !state.sentences.length && !state.result && !state.mix && !state.problem && !state.method;

/** Whether citations can be recommended: for one paper, by a server that says so of its index. */
export const canCite = (state, index) => state.papers.length < 2 && index.citations !== false;

function isSearch(text) {
  try {
    return Object.getPrototypeOf(JSON.parse(text)) === Object.prototype;
  } catch {
    return false;
  }
}

const BESIDE = ["view", "sort", "since", "seen", "basket", "not"];

/** Whether changes of a state are such of a kept search, which then is what the page shows of it. */
export const changesSearch = (changes) => Object.keys(changes).some((name) => !BESIDE.includes(name));

/** The body of a request for this state: of /api/search, or of /api/citations. */
export function requestOf(state) {
  const source = state.papers.length ? { paper_ids: state.papers } : { text: state.text, title: state.title };
  const filters = {
    ...(state.from && { year_from: year(state.from) }),
    ...(state.to && { year_to: year(state.to) }),
    ...(state.categories && { categories: state.categories.split(/[\s,;]+/).filter(Boolean) }),
    ...(state.authors && { authors: state.authors.split(";").map((name) => name.trim()).filter(Boolean) }),
    ...(state.technique && { where: [TECHNIQUE + state.technique] }),
  };
  if (state.view === "cite") {
    return { ...source, ...filters, k: PAGE, cited: state.basket, exclude: leftOut(state) };
  }
  if (state.kept) {
    return { ...JSON.parse(state.kept), k: PAGE, not_paper_ids: state.not, exclude: state.seen.slice(-MOST_SEEN) };
  }
  return {
    ...source,
    ...filters,
    ...counted(state),
    ...(state.varied && { diversity: state.varied }),
    ...(state.labels && state.papers.length < 2 && { labels: state.labels.split(",") }),
    k: PAGE,
    not_paper_ids: state.not,
    exclude: state.seen.slice(-MOST_SEEN),
  };
}

const SHAPES = {
  "same-problem-other-method": { background: 1, method: -1 },
  "same-method-other-problem": { background: -1, method: 1 },
  competitors: { background: 1, method: 1 },
};

/** What of a state a search is, in the form of `requestOf`, that was kept here or by the command line. */
export function stateOf(search) {
  const weights = { ...SHAPES[search.explore], ...(search.facet && { [NAMES[search.facet] ?? search.facet]: 1 }) };
  for (const [sign, list] of [[1, search.like], [-1, search.unlike]]) {
    for (const [facet, most] of (list ?? []).map((each) => each.split(":"))) weights[facet] = sign * Number(most ?? 1);
  }
  const from = { text: search.text ?? "", title: search.title ?? "", papers: search.paper_ids ?? [] };
  const state = {
    ...EMPTY,
    ...from,
    sentences: search.sentences ?? [],
    labels: (search.labels ?? []).join(","),
    problem: weight(weights.background ?? 0),
    method: weight(weights.method ?? 0),
    result: (weights.result ?? 0) > 0,
    mix: false,
    from: String(search.year_from ?? ""),
    to: String(search.year_to ?? ""),
    categories: (search.categories ?? []).join(" "),
    authors: (search.authors ?? []).join("; "),
    technique: (search.where ?? []).find((each) => each.startsWith(TECHNIQUE))?.slice(TECHNIQUE.length) ?? "",
    not: search.not_paper_ids ?? [],
  };
  const { view, sort, since, seen, basket, ...changes } = state;
  return { ...changes, kept: meaning(requestOf(state)) === meaning(search) ? "" : JSON.stringify(search) };
}

/** What a search means, whatever of the ways to state it is used. */
function meaning({ facet, explore, like = [], unlike = [], k, exclude, ...others }) {
  const weights = { ...SHAPES[explore], ...(facet && { [facet]: 1 }) };
  for (const [sign, list] of [[1, like], [-1, unlike]]) {
    for (const [name, most] of list.map((each) => each.split(":"))) weights[NAMES[name] ?? name] = sign * Number(most ?? 1);
  }
  const given = Object.entries({ ...others, weights: sorted(weights) }).filter(([, value]) => value !== "" && String(value) !== "");
  return JSON.stringify(sorted(Object.fromEntries(given)));
}

const NAMES = { problem: "background", findings: "result" };
const sorted = (fields) => Object.fromEntries(Object.entries(fields).sort());

const leftOut = (state) => unique([...state.seen, ...state.not]).slice(-MOST_SEEN);

function counted(state) {
  if (state.sentences.length) return { sentences: state.sentences };
  if (state.result) return { facet: "result" };
  if (state.mix) return { like: Object.keys(SHAPES) };
  const weights = Object.entries({ background: state.problem, method: state.method });
  const named = (sign) =>
    weights.filter(([, each]) => each * sign > 0).map(([facet, each]) => `${facet}:${Math.abs(each)}`);
  return isWhole(state) ? {} : { like: named(1), unlike: named(-1) };
}

// What is no year is sent as it is, so that the server says what it expects.
const year = (text) => (/^\d+$/.test(text) ? Number(text) : text);
