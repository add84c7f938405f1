// The query: its sentences, which can be picked, and what of it should be the same.

import { byId, facetOf, LABELS, make } from "./dom.js";
import { asksForSomething, isWhole } from "./state.js";

/** Choices of one click; all are positions of the two sliders, but for the result and the mix. */
const CHOICES = [
  { shown: "Whole abstract", problem: 0, method: 0, result: false },
  { shown: "Problem", problem: 1, method: 0, result: false },
  { shown: "Method", problem: 0, method: 1, result: false },
  { shown: "Findings", problem: 0, method: 0, result: true },
  { shown: "Same problem, other method", problem: 1, method: -1, result: false },
  { shown: "Same method, other problem", problem: -1, method: 1, result: false },
  { shown: "Competitors: both the same", problem: 1, method: 1, result: false },
  { shown: "A mix of these three", problem: 0, method: 0, result: false, mix: true },
];
const SAME = ["problem", "method", "result", "mix"];

/** Connects sliders and buttons; `onSame` is called with {problem, method, result, mix} and whether it comes of a
 * slider, so that more of the same movement may follow; `onVaried` with how varied the list should be. */
export function connect({ onSame, onVaried }) {
  for (const choice of CHOICES) {
    const { shown, ...same } = { mix: false, ...choice };
    byId("choices").append(make("button", { type: "button", onclick: () => onSame(same, false) }, shown));
  }
  byId("varied").addEventListener("input", () => onVaried(Number(byId("varied").value)));
  for (const name of ["problem", "method"]) {
    byId(name).addEventListener("input", () => {
      const [problem, method] = ["problem", "method"].map((each) => Number(byId(each).value));
      onSame({ problem, method, result: false, mix: false }, true);
    });
  }
}

/** Shows what should be the same; `index` says whether it can grade, which mixed and varied lists need; `question` is
 * what the server read in a question, if the query is one. */
export function showSame(state, index, question) {
  const isPicked = state.sentences.length > 0;
  CHOICES.forEach((choice, place) => {
    const isPressed =
      !isPicked && SAME.every((name) => (choice[name] ?? false) === state[name]);
    const button = byId("choices").children[place];
    button.setAttribute("aria-pressed", String(isPressed));
    button.hidden = Boolean(choice.mix) && index.grades === false;
  });
  for (const name of ["problem", "method"]) {
    byId(name).value = state[name];
    byId(name).setAttribute("aria-valuetext", inWords(state[name]));
    byId(`${name}-value`).textContent = inWords(state[name]);
  }
  byId("varied").value = state.varied;
  byId("varied").setAttribute("aria-valuetext", howVaried(state.varied));
  byId("varied-value").textContent = howVaried(state.varied);
  byId("varied-row").hidden = index.grades === false;
  showSummary(state, question);
}

/** Says what is searched for. */
export function showSummary(state, question) {
  byId("choices").firstElementChild.textContent = question ? "Whole question" : CHOICES[0].shown;
  byId("same-summary").textContent = summary(state, question);
  byId("same-summary").classList.toggle("warning", !asksForSomething(state));
}

function howVaried(varied) {
  if (!varied) return "best match first";
  return varied <= 0.3 ? "a little" : varied <= 0.6 ? "much" : "as much as possible";
}

function inWords(weight) {
  if (weight === 0) return "does not matter";
  const most = Math.abs(weight) === 1 ? "" : Math.abs(weight) >= 0.5 ? "mostly " : "a little ";
  if (weight > 0) return most ? `${most}the same` : "same";
  return most ? `should differ ${most === "mostly " ? "much" : "a little"}` : "must differ";
}

function summary(state, question) {
  if (state.view === "cite") return "Citations are recommended for the whole paper; this does not change them.";
  if (!asksForSomething(state)) return "Move a slider to the right: a search starts from something that is the same.";
  if (state.sentences.length) {
    const many = state.sentences.length === 1 ? "the sentence" : `the ${state.sentences.length} sentences`;
    return `Papers like ${many} that you picked.`;
  }
  if (isWhole(state)) return question ? `${question.heading}.` : "Papers like the whole abstract.";
  if (state.result) return "Papers with similar findings.";
  if (state.mix) return "A mix: same problem and other method, same method and other problem, competitors.";
  const parts = (sign) => ["problem", "method"].filter((name) => state[name] * sign > 0).join(" and the ");
  return `Papers with ${state.problem > 0 && state.method > 0 ? "both the same " : "the same "}${parts(1)}${
    parts(-1) ? ` and another ${parts(-1)}` : ""
  }.`;
}

/** Shows the papers of a query (records with sentences); `onPick` is called with positions of sentences,
 * `onLabel` with the position of a sentence and its right facet, `onDrop` with the id of a paper that is to be
 * dropped out of several. */
export function showPapers(papers, state, question, { onPick, onLabel, onDrop }) {
  const isOne = papers.length === 1;
  byId("query-papers").replaceChildren(
    ...papers.map((paper) =>
      make(
        "article",
        { class: "query-paper" },
        make(
          "div",
          { class: "between" },
          make("h3", {}, question?.text || paper.title || (paper.paper_id ?? pasted(paper))),
          isOne
            ? null
            : make(
                "button",
                { type: "button", class: "link", "data-focus": `drop ${paper.paper_id}`, onclick: () => onDrop(paper.paper_id) },
                "Drop",
                make("span", { class: "unseen" }, ` ${paper.title}`),
              ),
        ),
        question ? asItIs(onPick) : isOne ? sentencesOf(paper, state, onPick, onLabel) : null,
      ),
    ),
  );
  byId("query-hint").textContent = question ? "" : hint(papers, state);
  byId("legend").hidden = !isOne || Boolean(question);
}

const pasted = (paper) => (paper.sentences.length === 1 ? "Pasted text" : "Pasted abstract");

/** What a question names are no sentences of it to pick: it has one. */
function asItIs(onPick) {
  const attributes = { type: "button", class: "link", "data-focus": "as it is", onclick: () => onPick([0]) };
  return make("button", attributes, "Search with the text as it is");
}

function sentencesOf(paper, state, onPick, onLabel) {
  const isPicked = state.sentences.length > 0;
  return make(
    "div",
    { class: "sentences", role: "group", "aria-label": "Sentences: pick those that count" },
    paper.sentences.map(({ position, text, label, selected }) => {
      const pressed = state.sentences.includes(position);
      const others = state.sentences.filter((each) => each !== position);
      return make(
        "div",
        { class: "line" },
        labelOf(position, label, onLabel),
        make(
          "button",
          {
            type: "button",
            class: `sentence ${facetOf(label).style}${selected || pressed ? " counts" : ""}`,
            "aria-pressed": String(pressed),
            "data-focus": `sentence ${position}`,
            onclick: () => onPick(pressed ? others : [...others, position].sort((one, two) => one - two)),
          },
          text,
        ),
      );
    }),
    isPicked
      ? make("button", { type: "button", class: "link", "data-focus": "unpick", onclick: () => onPick([]) }, "Pick none")
      : null,
  );
}

/** The label of a sentence, to be corrected where it is wrong. */
function labelOf(position, label, onLabel) {
  const select = make(
    "select",
    {
      class: `tag ${facetOf(label).style}`,
      "aria-label": `What sentence ${position + 1} is about`,
      title: "Wrong? Choose another",
      "data-focus": `label ${position}`,
      onchange: () => onLabel(position, select.value),
    },
    LABELS.map(({ name, shown }) => make("option", { value: name, selected: name === label }, shown)),
  );
  return select;
}

function hint(papers, state) {
  if (papers.length > 1) return `${papers.length} papers are searched for together.`;
  if (!papers.length || state.view === "cite" || state.sentences.length) return "";
  const missing = missingFacet(papers[0], state);
  if (missing) return `No sentence is labelled ${missing}; the likeliest one counts in its place.`;
  return "Click sentences to search with them alone; correct a label where it is wrong.";
}

function missingFacet(paper, state) {
  const labels = new Set(paper.sentences.map(({ facet }) => facet));
  if (state.problem && !labels.has("background")) return "problem";
  if (state.method && !labels.has("method")) return "method";
  return state.result && !labels.has("result") ? "findings" : "";
}
