// Usage, waiting and users of one ClusterQueue over time. The server draws the charts.

import {get} from "./api.js";
import {el, to} from "./dom.js";

const DAYS = ["7", "30", "90", "365"];

export const overTime = (query) => ({
  title: "Over time",
  view: "overtime",
  load: () => get(["overtime"], query),
  render: (data) => [
    el("h1", {}, "Over time", data.clusterQueue && el("span", {class: "dim"}, ` in ${data.clusterQueue}`)),
    el("form", {class: "filters", "aria-label": "Choose a queue", change: (event) => choose(event.currentTarget)},
      choice("clusterQueue", "ClusterQueue", data.queues, data.clusterQueue),
      choice("days", "Days", DAYS.includes(String(data.days)) ? DAYS : [String(data.days), ...DAYS], String(data.days))),
    data.charts.length ? el("div", {class: "charts"}, data.charts.map(chart)) : el("p", {class: "hint"}, "Nothing was recorded in this time."),
    ...(data.users.length ? [users(data.users)] : []),
  ],
});

const choose = (form) => location.replace(to(["overtime"], Object.fromEntries(new FormData(form))));

const choice = (name, label, values, chosen) => el("label", {}, el("span", {}, label), el("select", {name, "data-key": name},
  values.map((value) => el("option", {value, selected: value === chosen}, value))));

/** The text of the server as an element: parsed as XML, in which nothing runs. */
const chart = (text) => document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);

const users = (rows) => el("table", {}, el("caption", {class: "unseen"}, "Users with the most usage"),
  el("thead", {}, el("tr", {}, ["User", "Resource", "Hours"].map((name) => el("th", {scope: "col"}, name)))),
  el("tbody", {}, rows.map((row) => el("tr", {}, el("td", {"data-label": "User"}, row.user), el("td", {"data-label": "Resource"}, row.resource),
    el("td", {class: "number", "data-label": "Hours"}, row.hours.toLocaleString("en"))))));
