// Budgets: what each group has used of its hours in the present period, and what is refused.

import {get} from "./api.js";
import {el} from "./dom.js";

const COLUMNS = [["budget", "Budget"], ["group", "Group"], ["resource", "Resource"], ["spent", "Used hours"], ["limit", "Limit"],
  ["until", "Period until"], ["spentBy", "Spent by"], ["refuses", "Refuses"]];
const NUMBERS = ["spent", "limit"];

export const budgets = () => ({
  title: "Budgets",
  view: "budgets",
  load: () => get(["budgets"]),
  render: (data) => [
    el("h1", {}, "Budgets"),
    ...data.problems.map((text) => el("p", {class: "problem"}, text)),
    data.items.length ? table(data.items) : el("p", {class: "hint"}, "No group has used hours of a Budget in its present period."),
  ],
});

const table = (rows) => el("table", {}, el("caption", {class: "unseen"}, "Used hours by Budget and group"),
  el("thead", {}, el("tr", {}, COLUMNS.map(([, title]) => el("th", {scope: "col"}, title)))),
  el("tbody", {}, rows.map((row) => el("tr", {}, COLUMNS.map(([name, title]) =>
    el("td", {class: NUMBERS.includes(name) ? "number" : null, "data-label": title},
      name === "spent" ? `${row.spent} (${row.percent} %)` : row[name] || "–"))))));
