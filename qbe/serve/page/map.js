// The hits as circles on two axes: how alike the problem is, and how alike the method.

import { byId, make, makeSvg } from "./dom.js";
import { gradeBars } from "./why.js";

const WIDTH = 360;
const HEIGHT = 290;
const LEFT = 40;
const BOTTOM = 40;
const EDGE = 14;
const MOST = 3; // the best grade
const LEAST_RADIUS = 9;
const GROWTH = 2; // of the radius, a grade of the result

const across = (grade) => LEFT + EDGE + (grade / MOST) * (WIDTH - LEFT - 2 * EDGE);
const up = (grade) => HEIGHT - BOTTOM - EDGE - (grade / MOST) * (HEIGHT - BOTTOM - 2 * EDGE);

let active = null; // the id of the paper whose circle the Tab key reaches

/** Draws hits that have grades; `onChoose` is called with the id of one that is clicked. */
export function showMap(hits, onChoose) {
  const graded = hits.filter((hit) => hit.grades);
  byId("map").hidden = !graded.length;
  if (!graded.length) return;
  const isInUse = byId("map-plot").contains(document.activeElement) && graded.some((hit) => hit.paper_id === active);
  if (!isInUse) active = graded[0].paper_id;
  const circles = placed(graded).map((circle) => drawn(circle, onChoose));
  const plot = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "Map of these papers; arrow keys move" });
  // Later circles cover earlier ones, so that the best are drawn last; the order of keys is that of ranks.
  plot.append(...axes(), ...[...circles].reverse());
  plot.addEventListener("keydown", (event) => moved(event, circles));
  byId("map-plot").replaceChildren(plot);
  about(graded.find((hit) => hit.paper_id === active));
}

/** Emphasizes the circle of a paper (null: none). */
export function emphasize(paperId) {
  for (const circle of byId("map-plot").querySelectorAll(".circle")) {
    circle.classList.toggle("emphasized", circle.dataset.paper === paperId);
  }
}

function axes() {
  const left = LEFT + EDGE / 2;
  const bottom = HEIGHT - BOTTOM - EDGE / 2;
  const lines = [0, 1, 2, 3].flatMap((grade) => [
    makeSvg("line", { class: "grid", x1: across(grade), x2: across(grade), y1: EDGE / 2, y2: bottom }),
    makeSvg("line", { class: "grid", x1: left, x2: WIDTH - EDGE / 2, y1: up(grade), y2: up(grade) }),
    text(across(grade), HEIGHT - BOTTOM + 8, grade, "middle"),
    text(LEFT - 2, up(grade) + 4, grade, "end"),
  ]);
  const method = text(0, 0, "Same method →", "middle");
  method.setAttribute("transform", `translate(12 ${(HEIGHT - BOTTOM) / 2}) rotate(-90)`);
  return [...lines, text((LEFT + WIDTH) / 2, HEIGHT - 6, "Same problem →", "middle"), method];
}

const text = (x, y, content, anchor) =>
  makeSvg("text", { x, y, "text-anchor": anchor, "aria-hidden": "true" }, String(content));

/** Where circles stand: at their grades, moved apart where they cover each other. */
function placed(hits) {
  const circles = hits.map((hit) => ({
    hit,
    x: across(hit.grades.background ?? 0),
    y: up(hit.grades.method ?? 0),
    radius: LEAST_RADIUS + GROWTH * (hit.grades.result ?? 0),
  }));
  for (let round = 0; round < 40; round += 1) {
    circles.forEach((one, place) => circles.slice(0, place).forEach((other) => part(one, other, place)));
    for (const circle of circles) {
      circle.x = Math.min(Math.max(circle.x, LEFT + EDGE), WIDTH - EDGE);
      circle.y = Math.min(Math.max(circle.y, EDGE), HEIGHT - BOTTOM - EDGE);
    }
  }
  return circles;
}

function part(one, other, place) {
  let [dx, dy] = [one.x - other.x, one.y - other.y];
  let distance = Math.hypot(dx, dy);
  if (distance < 0.01) [dx, dy, distance] = [Math.cos(place), Math.sin(place), 1];
  const overlap = 0.85 * (one.radius + other.radius) - distance;
  if (overlap <= 0) return;
  const step = overlap / 4 / distance;
  one.x += dx * step;
  one.y += dy * step;
  other.x -= dx * step;
  other.y -= dy * step;
}

function drawn({ hit, x, y, radius }, onChoose) {
  const grades = `problem ${inWords(hit.grades.background)}, method ${inWords(hit.grades.method)}, findings ${inWords(hit.grades.result)}`;
  const group = makeSvg(
    "g",
    {
      class: "circle",
      role: "button",
      tabindex: hit.paper_id === active ? "0" : "-1",
      "aria-label": `${hit.rank}. ${hit.title || hit.paper_id}; ${grades} of ${MOST}`,
      "data-paper": hit.paper_id,
      "data-focus": `circle ${hit.paper_id}`,
      onclick: () => onChoose(hit.paper_id),
      onpointerenter: () => about(hit),
      onfocus: () => about(hit),
    },
    makeSvg("circle", { cx: x, cy: y, r: radius }),
    makeSvg("text", { x, y: y + 4, "text-anchor": "middle", "aria-hidden": "true" }, String(hit.rank)),
  );
  return group;
}

const inWords = (grade) => (typeof grade === "number" ? grade.toFixed(1) : "unknown");

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

function moved(event, circles) {
  const here = event.target.closest(".circle");
  const place = circles.indexOf(here);
  if (place < 0) return;
  if (event.key === "Enter" || event.key === " ") {
    here.dispatchEvent(new MouseEvent("click"));
  } else if (event.key in STEPS) {
    const next = circles[(place + STEPS[event.key] + circles.length) % circles.length];
    here.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    active = next.dataset.paper;
    next.focus();
  } else return;
  event.preventDefault();
}

function about(hit) {
  byId("map-about").replaceChildren(
    make("p", { class: "map-title" }, make("strong", {}, `${hit.rank}. `), hit.title || hit.paper_id, hit.year ? ` (${hit.year})` : ""),
    gradeBars(hit.grades) ?? "",
    make(
      "p",
      { class: "hint" },
      "Further right: the problem is more alike. Further up: the method is. Larger: the findings are. " +
        "Circles that would cover each other stand a little apart. Click one to go to its paper.",
    ),
  );
}
