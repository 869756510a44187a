// The page: navigation between views, refresh, sign-in, keyboard shortcuts.

import {Refused, confinedTo, follow, forget, get, remember, takeFromAddress, token} from "./api.js";
import {budgets} from "./budgets.js";
import {decoded, el, plain} from "./dom.js";
import {flavor, queue, workload} from "./details.js";
import {queues, workloads} from "./lists.js";
import {overTime} from "./overtime.js";
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
let requested = 0;
let answered = 0;
let streamState = "connecting";
let watching = null;
let due = 0;
let retry = 0;
let announced = 0;

// --- Views -----------------------------------------------------------------------------------------------------------

/** The view of the current address. */
function currentView() {
  const [path, text = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decoded);
  const query = Object.fromEntries(new URLSearchParams(text));
  switch (parts[0]) {
    case "": return confinedTo() ? workloads(query) : overview();
    case "queues": return queues(query);
    case "workloads": return workloads(query);
    case "overtime": return overTime(query);
    case "budgets": return budgets();
    case "queue": return queue(parts[1] ?? "");
    case "flavor": return flavor(parts[1] ?? "");
    case "workload": return workload(parts[1] ?? "", parts[2] ?? "");
    default: return {title: "Not found", view: "", load: async () => ({}), render: () => [el("p", {class: "hint"}, "Page not found.")]};
  }
}

async function navigate() {
  if (!token()) return login();
  const before = view?.view;
  view = currentView();
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

/** Load the view again and render it if the data changed. The focus is kept, and old content stays until there is an answer. */
async function refresh() {
  const loaded = view;
  const request = ++requested;
  // An answer that arrives after the answer to a later request is dropped.
  const isOvertaken = () => loaded !== view || request < answered;
  let content;
  try {
    const data = await loaded.load();
    if (isOvertaken()) return;
    answered = request;
    stale = false;
    light();
    const text = JSON.stringify(data);
    if (text === shown) return;
    shown = text;
    content = loaded.render(data);
  } catch (error) {
    if (isOvertaken()) return;
    if (error instanceof Refused && error.code === 401) return login(error.message);
    const isTransient = !(error instanceof Refused) || error.code >= 500;
    if (isTransient) {
      clearTimeout(retry);
      retry = setTimeout(() => { if (loaded === view) refresh(); }, AGAIN);
    }
    if (isTransient && shown) {
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
  const title = code === 403 ? "Access denied" : code === 404 ? "Not found" : "Request failed";
  return [el("h1", {}, title), el("p", {class: "hint"}, code ? error.message : "The server cannot be reached; the page retries automatically."),
    code === 403 && el("p", {}, "To see one namespace only, name it when you sign in.")];
}

// --- Live ------------------------------------------------------------------------------------------------------------

function watch() {
  watching?.abort();
  watching = new AbortController();
  follow(changed, light, watching.signal);
}

function changed(update) {
  if (update.refused) return login(update.refused.message);
  announce(update);
  if (due || document.hidden) return;
  due = setTimeout(() => { due = 0; if (token()) refresh(); }, REFRESH / 4);
}

/** Update the status indicator: `state` is the state of the stream; stale content shows as reconnecting. */
function light(state = streamState) {
  streamState = state;
  live.textContent = stale && state === "live" ? "reconnecting" : state;
  live.classList.toggle("on", live.textContent === "live");
}

function announce({totals}) {
  if (!totals || Date.now() - announced < ANNOUNCE) return;
  announced = Date.now();
  document.getElementById("announcement").textContent = `${totals.Pending} pending, ${totals.Admitted} admitted`;
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
    el("p", {}, "The dashboard shows the objects that you have permission to read. Paste a bearer token of the cluster, or open the link that ", el("code", {}, "pykueue up"), " prints."),
    el("label", {}, el("span", {}, "Token"), el("input", {name: "token", type: "password", required: true, autocomplete: "off", autofocus: true})),
    el("label", {}, el("span", {}, "Namespace, if you have access to one only"), el("input", {name: "namespace", autocomplete: "off", spellcheck: "false"})),
    el("button", {type: "submit"}, "Sign in"),
    el("p", {class: "dim"}, "The token is kept in this tab until you close it, and is sent to this server only."));
  main.replaceChildren(form);
  form.querySelector("input").focus();
}

async function enter(event) {
  event.preventDefault();
  const fields = new FormData(event.currentTarget);
  remember(String(fields.get("token")), String(fields.get("namespace")));
  if (!token()) return login("a bearer token is required");
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
