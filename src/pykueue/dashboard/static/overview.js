// Overview of cohorts and queues, as a tree with keyboard navigation.

import {NO_COHORT, get} from "./api.js";
import {count, el, to} from "./dom.js";
import {STATES, bars, legend, pendingLink, stateMark} from "./figures.js";

const folded = new Set();

export const overview = () => ({
  title: "Overview",
  view: "overview",
  load: () => get(["overview"]),
  render: (data) => [
    el("h1", {class: "unseen"}, "Overview"),
    el("ul", {class: "tiles", "aria-label": "Workloads by state"}, STATES.map((state) => tile(state, data.totals[state] ?? 0))),
    el("div", {class: "heading"}, el("h2", {}, "Cohorts and queues"), legend()),
    data.members.length ? tree(data) : el("p", {class: "hint"}, "There are no ClusterQueues yet."),
    data.queues > loose(data) && more("", "queues without a cohort"),
    data.cohortsLeftOut > 0 && el("p", {class: "hint"}, `${count(data.cohortsLeftOut, "more cohort")}: see Queues.`),
  ],
});

const loose = (data) => data.members.filter((member) => member.kind === "ClusterQueue").length;

function tile(state, number) {
  return el("li", {class: number ? null : "none"}, el("a", {href: to(["workloads"], {state}), "data-key": `tile ${state}`},
    el("strong", {}, number.toLocaleString("en")), stateMark(state)));
}

function tree(data) {
  const root = el("ul", {role: "tree", "aria-label": "Cohorts and queues", class: "tree", keydown: walk},
    data.members.map((member) => item(member, 1)));
  root.querySelector("[role=treeitem]").tabIndex = 0;
  return root;
}

function item(member, level) {
  const isCohort = member.kind === "Cohort";
  const key = `${member.kind} ${member.name}`;
  const shown = isCohort ? member.members.filter((each) => each.kind === "ClusterQueue").length : 0;
  const open = isCohort && !folded.has(key);
  const line = el("div", {class: "line"},
    el("span", {class: "name"},
      isCohort && el("span", {class: "fold", "aria-hidden": "true"}, open ? "▾" : "▸"),
      isCohort ? el("b", {}, member.name) : el("a", {href: to(["queue", member.name]), tabindex: -1}, member.name),
      member.problem && el("span", {class: "problem", title: member.problem}, " inactive")),
    el("span", {class: "counts"}, pendingLink(member, isCohort ? busiest(member.name) : undefined),
      el("span", {class: "count"}, `${member.admitted.toLocaleString("en")} admitted`)),
    bars(member.figures));
  for (const link of line.querySelectorAll("a")) link.tabIndex = -1;
  const label = `${isCohort ? "Cohort" : "Queue"} ${member.name}, ${member.pending} pending, ${member.admitted} admitted`;
  const node = el("li", {role: "treeitem", tabindex: -1, "aria-level": level, "aria-label": label, "data-key": key,
    "aria-expanded": isCohort ? String(open) : null, class: isCohort ? "cohort" : "queue"}, line);
  if (isCohort) {
    line.querySelector(".fold").parentElement.addEventListener("click", () => fold(node, !folded.has(key)));
    node.append(el("ul", {role: "group"}, member.members.map((each) => item(each, level + 1)),
      member.queues > shown && el("li", {role: "none"}, more(member.name, `queues of ${member.name}`))));
  }
  return node;
}

const busiest = (cohort) => to(["queues"], {cohort: cohort || NO_COHORT, sort: "pending", descending: true});

const more = (cohort, what) => el("p", {class: "more"}, el("a", {href: busiest(cohort), tabindex: cohort ? -1 : 0}, `All ${what}`));

function fold(node, isFolded) {
  const key = node.dataset.key;
  if (isFolded) folded.add(key);
  else folded.delete(key);
  node.setAttribute("aria-expanded", String(!isFolded));
  node.querySelector(".fold").textContent = isFolded ? "▸" : "▾";
}

const STEPS = {ArrowDown: 1, ArrowUp: -1};

/** Keys of the tree: up and down move, right and left open and close, Enter follows. */
function walk(event) {
  const here = event.target.closest("[role=treeitem]");
  if (!here || event.altKey || event.ctrlKey || event.metaKey) return;
  const all = [...event.currentTarget.querySelectorAll("[role=treeitem]")].filter((each) => each.offsetParent !== null);
  const isOpen = here.getAttribute("aria-expanded");
  let next = null;
  if (event.key in STEPS) next = all[all.indexOf(here) + STEPS[event.key]];
  else if (event.key === "Home") next = all[0];
  else if (event.key === "End") next = all.at(-1);
  else if (event.key === "ArrowRight" && isOpen === "false") fold(here, false);
  else if (event.key === "ArrowRight" && isOpen === "true") next = here.querySelector("[role=treeitem]");
  else if (event.key === "ArrowLeft" && isOpen === "true") fold(here, true);
  else if (event.key === "ArrowLeft") next = here.parentElement.closest("[role=treeitem]");
  else if (event.key === "Enter" && event.target === here) {
    if (isOpen === null) location.hash = here.querySelector("a").hash;
    else fold(here, isOpen === "true");
  } else return;
  event.preventDefault();
  if (!next) return;
  for (const each of all) each.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
