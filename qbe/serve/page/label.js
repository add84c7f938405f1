// Grades by hand: one pair at a time, and nothing of how its candidate was found.

import { get, post } from "./api.js";
import { byId, FACETS, make } from "./dom.js";

const GRADES = ["unrelated", "related", "similar", "nearly identical"];

let assessor = ""; // the fragment of the address
let pairs = []; // those seen since the page was opened, with the grades given
let place = 0; // of the pair that is shown

function radios({ name, shown, style }) {
  const choices = GRADES.map((meaning, grade) =>
    make(
      "label",
      {},
      make("input", { type: "radio", name, value: grade, onchange: showMarked }),
      ` ${grade} `,
      make("span", { class: "hint" }, meaning),
    ),
  );
  return make("fieldset", { id: `facet-${name}` }, make("legend", {}, make("span", { class: `tag ${style}` }, shown)), ...choices);
}

const gradeOf = ({ name }) => byId("pair").elements[name].value;
const marked = () => FACETS.find((facet) => gradeOf(facet) === "");

function showMarked() {
  for (const facet of FACETS) byId(`facet-${facet.name}`).classList.toggle("marked", facet === marked());
  byId("save").disabled = marked() !== undefined;
}

function setGrade({ name }, grade) {
  for (const radio of byId("pair").elements[name]) radio.checked = radio.value === grade;
  showMarked();
}

function show() {
  const pair = pairs[place];
  byId("pair").hidden = !pair;
  byId("done").hidden = Boolean(pair);
  if (!pair) return;
  for (const paper of ["query", "candidate"]) {
    byId(`${paper}-title`).textContent = pair[paper].title;
    byId(`${paper}-abstract`).textContent = pair[paper].abstract;
  }
  for (const facet of FACETS) setGrade(facet, String(pair.grades?.[facet.name] ?? ""));
  byId("back").disabled = place === 0;
  window.scrollTo(0, 0);
}

function take(answer) {
  byId("progress").textContent = `${answer.graded} of ${answer.total} pairs`;
  byId("guideline").textContent = answer.guideline;
  if (place === pairs.length && answer.pair) pairs.push(answer.pair);
  show();
}

/** Awaits an answer; says what is wrong with it. */
async function asked(answer) {
  byId("failure").hidden = true;
  try {
    return await answer;
  } catch (error) {
    byId("failure").textContent = error.message;
    byId("failure").hidden = false;
    return null;
  }
}

let saving = false;

async function save() {
  if (saving || marked()) return;
  saving = true;
  const pair = pairs[place];
  const grades = Object.fromEntries(FACETS.map((facet) => [facet.name, Number(gradeOf(facet))]));
  const answer = await asked(
    post("api/labels", { assessor, query_id: pair.query_id, paper_id: pair.paper_id, ...grades }),
  );
  saving = false;
  if (!answer) return;
  pair.grades = grades;
  place += 1;
  take(answer);
}

/** Goes back: within a pair to the last grade given, then to the pair before. */
function back() {
  if (saving) return;
  const given = FACETS.filter((facet) => gradeOf(facet) !== "");
  if (given.length > 0 && !pairs[place].grades) setGrade(given.at(-1), "");
  else if (place > 0) {
    place -= 1;
    show();
  }
}

function press(event) {
  if (byId("pair").hidden || byId("key").open || event.ctrlKey || event.metaKey || event.altKey) return;
  const facet = marked();
  if (/^[0-3]$/.test(event.key) && facet) setGrade(facet, event.key);
  else if (event.key === "Enter" && !event.target.closest("button, summary")) save();
  else if (event.key === "Backspace") back();
  else return;
  event.preventDefault();
}

function named() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // such as "#%"
  }
}

async function begin() {
  assessor = named();
  pairs = [];
  place = 0;
  const answer = assessor && (await asked(get(`api/labels?assessor=${encodeURIComponent(assessor)}`)));
  byId("who").hidden = Boolean(answer);
  if (answer) take(answer);
  else byId("assessor").focus();
}

byId("facets").append(...FACETS.map(radios));
byId("pair").addEventListener("submit", (event) => {
  event.preventDefault();
  save();
});
byId("back").addEventListener("click", back);
byId("who").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = `#${encodeURIComponent(byId("assessor").value.trim())}`;
  if (name === location.hash) begin();
  else location.hash = name;
});
window.addEventListener("hashchange", begin);
document.addEventListener("keydown", press);
begin();
