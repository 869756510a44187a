// One Workload, one queue, one flavor.

import {Refused, get} from "./api.js";
import {ago, count, el, to} from "./dom.js";
import {bars, expectedStart, legend, pendingLink, stateMark, troubleMarks} from "./figures.js";

const facts = (pairs) => el("dl", {class: "facts"}, pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined)
  .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

const panel = (name, ...content) => el("section", {class: "panel", "aria-label": name}, el("h2", {}, name), ...content);

const amounts = (resources) => Object.entries(resources).map(([name, amount]) => `${amount} ${name}`).join(", ");

// --- A Workload ------------------------------------------------------------------------------------------------------

export const workload = (namespace, name) => {
  const why = new Explanation(namespace, name);
  return {
    title: name,
    view: "workloads",
    load: () => get(["workloads", namespace, name]),
    render: (data) => [
      el("p", {class: "path"}, el("a", {href: to(["workloads"])}, "Workloads"), " › ",
        el("a", {href: to(["workloads"], {namespace})}, namespace)),
      el("h1", {class: "named"}, name, " ", stateMark(data.state), troubleMarks(data.troubles.map((each) => each.type))),
      ...data.troubles.slice(0, 1).map(() => el("ul", {class: "warnings", "aria-label": "Troubles"}, data.troubles.map((each) =>
        el("li", {}, `${each.type}, since `, ago(each.since), ` ago: ${each.message}`)))),
      facts([
        ["Job", data.job],
        ["Queue", data.queue],
        ["ClusterQueue", data.clusterQueue && el("a", {href: to(["queue", data.clusterQueue])}, data.clusterQueue)],
        ["Priority", data.priorityClass ? `${data.priority} (${data.priorityClass})` : String(data.priority)],
        ["Created", el("span", {}, ago(data.created), " ago")],
        ["Expected start", expectedStart(data.expectedStart, true)],
        ["Pods", data.pods.map((each) => `${each.count} × ${each.name}`).join(", ")],
        ["Requests", data.requests.map((each) => amounts(each.resources)).filter(Boolean).join("; ")],
        ["Assigned", data.assignments.length ? el("span", {}, data.assignments.map((each, number) => [number ? "; " : "", assignment(each)])) : ""],
      ]),
      el("div", {class: "columns"}, panel("Explanation", why.show(data)), panel("History", timeline(data))),
    ],
  };
};

const assignment = (each) => Object.entries(each.resources).map(([resource, amount], number) => [number ? ", " : "", `${amount} ${resource}`,
  each.flavors[resource] && [" of ", el("a", {href: to(["flavor", each.flavors[resource]])}, each.flavors[resource])]]);

function timeline(data) {
  return [
    data.note && el("p", {class: "hint"}, data.note),
    el("ol", {class: "history"}, data.history.map((each) => el("li", {class: each.source},
      el("div", {class: "moment"}, el("b", {}, each.title), each.count > 1 && el("span", {class: "dim"}, ` × ${each.count}`),
        el("span", {class: "when"}, ago(each.time), " ago")),
      each.message && el("p", {}, each.message),
      each.reason && each.reason !== each.title && el("p", {class: "dim"}, each.source === "event" ? `${each.reason} event` : each.reason)))),
  ];
}

/** Why a Workload is in its state. Causes are loaded at once; suggestions are computed when the user clicks. */
class Explanation {
  #path;
  #answer = null;
  #place = el("div", {class: "why"});
  #explained = "";
  /** Whether suggestions were requested and have not arrived: the next request includes them. */
  #wanted = false;
  #requests = 0;

  constructor(namespace, name) {
    this.#path = ["workloads", namespace, name, "explanation"];
  }

  show(data) {
    // The same state and message have nearly the same causes, so changes of other Workloads cause no new request.
    const about = `${data.state} ${data.message}`;
    if (about !== this.#explained) {
      this.#explained = about;
      this.#load(this.#wanted);
    }
    return this.#place;
  }

  async #load(suggestions) {
    const request = ++this.#requests;
    this.#wanted = suggestions;
    this.#place.setAttribute("aria-busy", "true");
    if (!this.#answer) this.#place.replaceChildren(el("p", {class: "hint"}, "Loading the explanation…"));
    try {
      const answer = await get(this.#path, suggestions ? {suggestions: "true"} : {});
      if (request !== this.#requests) return;
      this.#answer = answer;
      this.#wanted = false;
      this.#render(suggestions);
    } catch (error) {
      if (request !== this.#requests) return;
      const why = error instanceof Refused ? error.message : "The server cannot be reached.";
      const again = el("button", {type: "button", "data-key": "again", click: () => this.#load(suggestions)}, "Retry");
      this.#place.replaceChildren(el("p", {class: "hint"}, why), again);
      this.#explained = "";
    }
    this.#place.removeAttribute("aria-busy");
  }

  #render(withSuggestions) {
    const {state, position, warnings = [], causes, ahead, holders, startsNext, suggestions, search, note} = this.#answer;
    const isPending = state === "Pending";
    this.#place.replaceChildren(...[
      startsNext && el("p", {class: "good"}, "Nothing blocks it: the next scheduling cycle admits it."),
      position && el("p", {}, `Position ${position.inClusterQueue} in the ClusterQueue, ${position.inLocalQueue} in the LocalQueue.`),
      warnings.length ? el("ul", {class: "warnings", "aria-label": "Warnings"}, warnings.map((warning) => el("li", {}, warning))) : null,
      causes.length ? el("ul", {class: "causes"}, causes.map((cause) => el("li", {}, cause))) : null,
      ahead.length ? el("details", {}, el("summary", {}, `${count(ahead.length, "Workload")} ahead`),
        el("ul", {}, ahead.map((key) => el("li", {}, workloadLink(key))))) : null,
      holders.length ? el("details", {open: holders.length <= 5}, el("summary", {}, "Quota held by"),
        el("ul", {}, holders.map((held) => el("li", {}, workloadLink(held.workload), `: ${held.amount} ${held.resource} of ${held.flavor}`,
          held.protectedBy && el("span", {class: "dim"}, ` (${held.protectedBy})`))))) : null,
      note && el("p", {class: "hint"}, note),
      isPending && !startsNext && !note && el("div", {class: "help"}, el("h3", {}, "What would admit it"), withSuggestions ? ways(suggestions, search) : this.#button()),
    ].filter((each) => each instanceof Node));
  }

  #button() {
    return el("button", {type: "button", "data-key": "ways", click: async (event) => {
      event.currentTarget.disabled = true;
      event.currentTarget.textContent = "Simulating changes…";
      await this.#load(true);
      this.#place.querySelector(".help h3, .help li")?.scrollIntoView({block: "nearest"});
    }}, "Find suggestions");
  }
}

function workloadLink(key) {
  const [namespace, name] = key.split("/");
  return el("a", {href: to(["workload", namespace, name])}, key);
}

function ways(suggestions, search) {
  const isCut = search === "cut short";
  if (!suggestions.length && !isCut) return el("p", {}, "No single change of quota, priority, order or pods was found that would admit it.");
  const found = el("ol", {class: "ways", tabindex: -1}, suggestions.map((each) => el("li", {}, each.changes.map((part, number) =>
    el("div", {}, number ? `and ${part.change}` : part.change, part.command && command(part.command))),
    each.warning && el("p", {class: "hint"}, `but ${each.warning}`))));
  return isCut ? [found, el("p", {class: "hint"}, "The search was cut short because many Workloads are pending in this cohort; run pykueue explain --thorough for a full search.")] : found;
}

function command(text) {
  return el("div", {class: "command"}, el("code", {}, text), el("button", {type: "button", class: "quiet", click: async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  }}, "Copy"));
}

// --- A queue, a flavor -----------------------------------------------------------------------------------------------

export const queue = (name) => ({
  title: name,
  view: "queues",
  load: async () => {
    const found = await get(["queues", name]);
    const pending = await get(["workloads"], {clusterQueue: name, state: "Pending", sort: "created", limit: 10}).catch(() => null);
    return {...found, pendingWorkloads: pending};
  },
  render: (data) => [
    el("p", {class: "path"}, el("a", {href: to(["queues"])}, "Queues"), [...data.path].reverse().map((cohort) =>
      [" › ", el("a", {href: to(["queues"], {cohort})}, cohort)])),
    el("h1", {class: "named"}, name, data.problem && el("span", {class: "problem"}, " inactive")),
    data.problem && el("p", {class: "problem"}, data.problem),
    facts([
      ["Pending", pendingLink(data)],
      ["Admitted", String(data.admitted)],
      ["Quota reserved", String(data.reserved)],
      ["Strategy", data.strategy],
      ["Stopped", data.stopped === "None" ? "" : data.stopped],
    ]),
    panel("Quota", legend(), bars(data.figures, Infinity),
      el("p", {}, "Flavors: ", [...new Set(data.figures.map((figure) => figure.flavor))].map((flavor, number) =>
        [number ? ", " : "", el("a", {href: to(["flavor", flavor])}, flavor)]))),
    data.pendingWorkloads && panel("Longest pending", data.pendingWorkloads.items.length
      ? el("ul", {class: "plain"}, data.pendingWorkloads.items.map((each) => el("li", {}, workloadLink(`${each.namespace}/${each.name}`), " ",
        ago(each.created), el("span", {class: "message"}, each.message))))
      : el("p", {class: "hint"}, "No pending Workloads.")),
  ],
});

export const flavor = (name) => ({
  title: name,
  view: "queues",
  load: () => get(["flavors", name]),
  render: (data) => [
    el("p", {class: "path"}, el("a", {href: to(["queues"])}, "Queues"), " › flavors"),
    el("h1", {class: "named"}, name),
    facts([
      ["Node labels", Object.entries(data.nodeLabels).map(([label, value]) => `${label}=${value}`).join(", ") || "none"],
      ["Topology", data.topology],
      ["Offered by", count(data.total, "queue")],
    ]),
    legend(),
    el("ul", {class: "plain offers"}, data.queues.map((each) => el("li", {},
      el("a", {href: to(["queue", each.queue])}, each.queue), bars(each.figures, Infinity)))),
    data.total > data.queues.length && el("p", {class: "hint"}, `and ${count(data.total - data.queues.length, "more queue")}`),
  ],
});
