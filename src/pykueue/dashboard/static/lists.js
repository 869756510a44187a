// Lists of queues and of Workloads. The server sends one page and the total number.

import {NO_COHORT, confinedTo, get} from "./api.js";
import {ago, count, el, to} from "./dom.js";
import {STATES, bars, expectedStart, legend, pendingLink, stateMark, troubleMarks} from "./figures.js";

const PAGE = 50;

/** A table with sortable columns and keyboard navigation. `columns`: [{name, sort, cell, class}]. */
function table(caption, columns, items, address, query) {
  const head = columns.map((column) => {
    const sorted = column.sort && query.sort === column.sort;
    const descending = query.descending === "true";
    if (!column.sort) return el("th", {scope: "col", class: column.class}, column.name);
    const turned = {...query, sort: column.sort, descending: sorted ? String(!descending) : String(Boolean(column.largestFirst)), offset: ""};
    return el("th", {scope: "col", class: column.class, "aria-sort": sorted ? (descending ? "descending" : "ascending") : null},
      el("a", {href: to(address, turned), "data-key": `sort ${column.sort}`}, column.name,
        el("span", {"aria-hidden": "true"}, sorted ? (descending ? " ↓" : " ↑") : "")));
  });
  const rows = items.map((item) => el("tr", {}, columns.map((column) =>
    el("td", {class: column.class, "data-label": column.name}, column.cell(item)))));
  return el("table", {keydown: walk}, el("caption", {class: "unseen"}, caption), el("thead", {}, el("tr", {}, head)),
    el("tbody", {}, rows));
}

function walk(event) {
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  const row = event.target.closest("tbody tr");
  if (!step || !row) return;
  const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
  event.preventDefault();
  next?.querySelector("a")?.focus();
}

function pager(data, address, query) {
  const offset = data.offset;
  const last = Math.min(offset + PAGE, data.total);
  const link = (word, start, on) => on
    ? el("a", {href: to(address, {...query, offset: start || ""}), class: "button", "data-key": word}, word)
    : el("span", {class: "button off", "aria-disabled": "true"}, word);
  return el("nav", {class: "pager", "aria-label": "Pages"},
    el("span", {}, data.total ? `${(offset + 1).toLocaleString("en")}–${last.toLocaleString("en")} of ${data.total.toLocaleString("en")}` : "none"),
    link("Previous", Math.max(0, offset - PAGE), offset > 0), link("Next", offset + PAGE, last < data.total));
}

// --- Queues ----------------------------------------------------------------------------------------------------------

export const queues = (query) => ({
  title: "Queues",
  view: "queues",
  load: () => get(["queues"], {sort: "name", ...query, limit: PAGE}),
  render: (data) => [
    el("div", {class: "heading"}, el("h1", {}, "Queues", query.cohort && el("span", {class: "dim"}, ` ${place(query.cohort)}`)), legend()),
    filters("queues", query, [field("q", "Name or cohort", query.q)]),
    table("ClusterQueues", QUEUES, data.items, ["queues"], {sort: "name", ...query}),
    pager(data, ["queues"], query),
  ],
});

const place = (cohort) => (cohort === NO_COHORT ? "without a cohort" : `of ${cohort}`);

const QUEUES = [
  {name: "Queue", sort: "name", cell: (queue) => [
    el("a", {href: to(["queue", queue.name]), class: "strong", "data-key": `queue ${queue.name}`}, queue.name),
    queue.problem && el("span", {class: "problem", title: queue.problem}, " inactive")]},
  {name: "Cohort", sort: "cohort", cell: (queue) => queue.parent && el("a", {href: to(["queues"], {cohort: queue.parent})}, queue.parent)},
  {name: "Pending", sort: "pending", largestFirst: true, class: "number", cell: (queue) => pendingLink(queue)},
  {name: "Admitted", sort: "admitted", largestFirst: true, class: "number", cell: (queue) => queue.admitted.toLocaleString("en")},
  {name: "Quota", sort: "used", largestFirst: true, class: "wide", cell: (queue) => bars(queue.figures)},
];

// --- Workloads -------------------------------------------------------------------------------------------------------

export const workloads = (query) => {
  const filter = {sort: "created", descending: query.sort ? query.descending : "true", ...query};
  if (confinedTo()) filter.namespace = confinedTo();
  return {
    title: "Workloads",
    view: "workloads",
    load: () => get(["workloads"], {...filter, limit: PAGE}),
    render: (data) => [
      el("h1", {}, "Workloads", query.clusterQueue && el("span", {class: "dim"}, ` in ${query.clusterQueue}`)),
      filters("workloads", query, [
        field("q", "Search", query.q),
        el("label", {}, el("span", {}, "State"), el("select", {name: "state", "data-key": "state"},
          ["", ...STATES].map((state) => el("option", {value: state, selected: state === (query.state ?? "")}, state || "any")))),
        field("namespace", "Namespace", filter.namespace, Boolean(confinedTo())),
      ]),
      table("Workloads", WORKLOADS, data.items, ["workloads"], filter),
      pager(data, ["workloads"], query),
      el("p", {class: "unseen", role: "status"}, `${count(data.total, "Workload")} found`),
    ],
  };
};

const WORKLOADS = [
  {name: "State", sort: "state", cell: (workload) => stateMark(workload.state)},
  {name: "Workload", sort: "name", class: "wide", cell: (workload) => [
    el("a", {href: to(["workload", workload.namespace, workload.name]), class: "strong",
      "data-key": `workload ${workload.namespace}/${workload.name}`},
    el("span", {class: "dim"}, `${workload.namespace}/`), workload.name),
    troubleMarks(workload.troubles), el("span", {class: "message"}, workload.message)]},
  {name: "Queue", sort: "queue", cell: (workload) => workload.queue},
  {name: "Priority", sort: "priority", largestFirst: true, class: "number", cell: (workload) => String(workload.priority)},
  {name: "Expected start", class: "number", cell: (workload) => expectedStart(workload.expectedStart)},
  {name: "Age", sort: "created", largestFirst: true, class: "number", cell: (workload) => ago(workload.created)},
];

// --- Filters ---------------------------------------------------------------------------------------------------------

const field = (name, label, value, fixed = false) => el("label", {}, el("span", {}, label),
  el("input", {name, value: value ?? "", "data-key": name, disabled: fixed, spellcheck: "false", maxlength: 200}));

/** The filters are part of the address, so that it can be shared and the back button works. */
function filters(place, query, fields) {
  const apply = (form) => {
    const fields = Object.fromEntries(new FormData(form));
    location.replace(to([place], {...query, ...fields, offset: ""}));
  };
  let timer = 0;
  return el("form", {
    class: "filters", role: "search", "aria-label": `Filter ${place}`,
    submit: (event) => { event.preventDefault(); apply(event.currentTarget); },
    input: (event) => {
      const form = event.currentTarget;
      clearTimeout(timer);
      timer = setTimeout(() => apply(form), 250);
    },
  }, fields);
}
