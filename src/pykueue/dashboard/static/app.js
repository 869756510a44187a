// The page: which view is shown, how it is kept up to date, and the keys.

import {Refused, confinedTo, follow, forget, get, remember, takeFromAddress, token} from "./api.js";
import {decoded, el, plain} from "./dom.js";
import {flavor, queue, workload} from "./details.js";
import {queues, workloads} from "./lists.js";
import {overview} from "./overview.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const search = document.querySelector("#search input");
const REFRESH = 1000;
const ANNOUNCE = 10_000;
const PATIENCE = 500;
const AGAIN = 2000;

let view = null;
let shown = "";
let stale = false;
let asked = 0;
let answered = 0;
let heard = "connecting";
let watching = null;
let due = 0;
let retry = 0;
let announced = 0;

// --- Views -----------------------------------------------------------------------------------------------------------

/** The view that the address asks for. */
function wanted() {
  const [path, text = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decoded);
  const query = Object.fromEntries(new URLSearchParams(text));
  switch (parts[0]) {
    case "": return confinedTo() ? workloads(query) : overview();
    case "queues": return queues(query);
    case "workloads": return workloads(query);
    case "queue": return queue(parts[1] ?? "");
    case "flavor": return flavor(parts[1] ?? "");
    case "workload": return workload(parts[1] ?? "", parts[2] ?? "");
    default: return {title: "Nothing here", view: "", load: async () => ({}), render: () => [el("p", {class: "hint"}, "There is no such page.")]};
  }
}

async function navigate() {
  if (!token()) return login();
  const before = view?.view;
  view = wanted();
  shown = "";
  stale = false;
  document.title = `${plain(view.title)} · pykueue`;
  for (const link of document.querySelectorAll("nav [data-view]")) {
    if (link.dataset.view === view.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const waiting = setTimeout(() => main.setAttribute("aria-busy", "true"), PATIENCE);
  await refresh();
  clearTimeout(waiting);
  main.removeAttribute("aria-busy");
  if (before !== undefined && !main.contains(document.activeElement) && document.activeElement !== search) main.focus({preventScroll: true});
}

/** Ask again, and show it where anything is different. What has the focus keeps it, and what is shown stays while no answer comes. */
async function refresh() {
  const looked = view;
  const question = ++asked;
  // An answer that was overtaken by a later one is as old as what it would replace is new.
  const isOvertaken = () => looked !== view || question < answered;
  let content;
  try {
    const data = await looked.load();
    if (isOvertaken()) return;
    answered = question;
    stale = false;
    light();
    const text = JSON.stringify(data);
    if (text === shown) return;
    shown = text;
    content = looked.render(data);
  } catch (error) {
    if (isOvertaken()) return;
    if (error instanceof Refused && error.code === 401) return login(error.message);
    const passes = !(error instanceof Refused) || error.code >= 500;
    if (passes) {
      clearTimeout(retry);
      retry = setTimeout(() => { if (looked === view) refresh(); }, AGAIN);
    }
    if (passes && shown) {
      stale = true;
      return light();
    }
    shown = "";
    content = trouble(error);
  }
  replace(content);
}

function replace(content) {
  const held = document.activeElement;
  const key = main.contains(held) ? held.dataset.key : null;
  const typed = key && held instanceof HTMLInputElement ? [held.value, held.selectionStart, held.selectionEnd] : null;
  main.replaceChildren(...content.flat().filter((each) => each instanceof Node));
  if (!key) return;
  const again = [...main.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key);
  if (!again) return;
  if (again.getAttribute("role") === "treeitem") {
    for (const each of main.querySelectorAll("[role=treeitem]")) each.tabIndex = -1;
    again.tabIndex = 0;
  }
  again.focus({preventScroll: true});
  if (typed) {
    again.value = typed[0];
    again.setSelectionRange(typed[1], typed[2]);
  }
}

function trouble(error) {
  const code = error instanceof Refused ? error.code : 0;
  const what = code === 403 ? "You may not see this" : code === 404 ? "Not here" : "This could not be read";
  return [el("h1", {}, what), el("p", {class: "hint"}, code ? error.message : "The server cannot be reached; the page tries again by itself."),
    code === 403 && el("p", {}, "A namespace that you may see can be named when signing in.")];
}

// --- Live ------------------------------------------------------------------------------------------------------------

function watch() {
  watching?.abort();
  watching = new AbortController();
  follow(changed, light, watching.signal);
}

function changed(news) {
  if (news.refused) return login(news.refused.message);
  announce(news);
  if (due || document.hidden) return;
  due = setTimeout(() => { due = 0; if (token()) refresh(); }, REFRESH / 4);
}

/** The light in the corner: `word` is how the stream does, and what is shown can be old all the same. */
function light(word = heard) {
  heard = word;
  live.textContent = stale && word === "live" ? "reconnecting" : word;
  live.classList.toggle("on", live.textContent === "live");
}

function announce({totals}) {
  if (!totals || Date.now() - announced < ANNOUNCE) return;
  announced = Date.now();
  document.getElementById("said").textContent = `${totals.Pending} pending, ${totals.Admitted} admitted`;
}

// --- Signing in ------------------------------------------------------------------------------------------------------

function login(why = "") {
  watching?.abort();
  forget();
  view = null;
  document.getElementById("leave").hidden = true;
  light("signed out");
  const form = el("form", {class: "login panel", submit: enter},
    el("h1", {}, "Sign in"),
    why && el("p", {class: "problem", role: "alert"}, why),
    el("p", {}, "The dashboard shows what you may see. Paste a token of the cluster, or follow the link that ", el("code", {}, "pykueue up"), " prints."),
    el("label", {}, el("span", {}, "Token"), el("input", {name: "token", type: "password", required: true, autocomplete: "off", autofocus: true})),
    el("label", {}, el("span", {}, "Namespace, if you may see only one"), el("input", {name: "namespace", autocomplete: "off", spellcheck: "false"})),
    el("button", {type: "submit"}, "Sign in"),
    el("p", {class: "dim"}, "It stays in this tab until you close it, and goes nowhere but to this server."));
  main.replaceChildren(form);
  form.querySelector("input").focus();
}

async function enter(event) {
  event.preventDefault();
  const said = new FormData(event.currentTarget);
  remember(String(said.get("token")), String(said.get("namespace")));
  await start();
}

async function start() {
  if (!token()) return login();
  try {
    await get(["me"]);
  } catch (error) {
    if (error instanceof Refused && error.code === 401) return login(error.message);
  }
  document.getElementById("leave").hidden = false;
  watch();
  await navigate();
}

// --- Keys ------------------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "Escape" && typing) {
    event.target.blur();
    main.focus({preventScroll: true});
  } else if (event.key === "Escape" && /^#\/(workload|queue|flavor)\//.test(location.hash)) {
    history.back();
  }
});

document.getElementById("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  const address = `#/workloads?q=${encodeURIComponent(search.value)}`;
  if (location.hash !== address) location.hash = address;
  else await refresh();
});
document.getElementById("leave").addEventListener("click", () => login());
document.addEventListener("visibilitychange", () => { if (!document.hidden && view) refresh(); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) { takeFromAddress(); start(); } else navigate();
});

takeFromAddress();
start();
