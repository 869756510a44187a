// One Workload, one queue, one flavor.

import {Refused, get} from "./api.js";
import {ago, count, el, to} from "./dom.js";
import {bars, legend, pendingLink, stateMark} from "./figures.js";

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
      el("h1", {class: "named"}, name, " ", stateMark(data.state)),
      facts([
        ["Job", data.job],
        ["Queue", data.queue],
        ["ClusterQueue", data.clusterQueue && el("a", {href: to(["queue", data.clusterQueue])}, data.clusterQueue)],
        ["Priority", data.priorityClass ? `${data.priority} (${data.priorityClass})` : String(data.priority)],
        ["Created", el("span", {}, ago(data.created), " ago")],
        ["Pods", data.pods.map((each) => `${each.count} × ${each.name}`).join(", ")],
        ["Asks for", data.requests.map((each) => amounts(each.resources)).filter(Boolean).join("; ")],
        ["Was given", data.given.length ? el("span", {}, data.given.map((each, number) => [number ? "; " : "", given(each)])) : ""],
      ]),
      el("div", {class: "columns"}, panel("Why", why.show(data)), panel("Story", story(data))),
    ],
  };
};

const given = (each) => Object.entries(each.resources).map(([resource, amount], number) => [number ? ", " : "", `${amount} ${resource}`,
  each.flavors[resource] && [" of ", el("a", {href: to(["flavor", each.flavors[resource]])}, each.flavors[resource])]]);

function story(data) {
  return [
    data.note && el("p", {class: "hint"}, data.note),
    el("ol", {class: "story"}, data.story.map((each) => el("li", {class: each.source},
      el("div", {class: "moment"}, el("b", {}, each.what), each.count > 1 && el("span", {class: "dim"}, ` × ${each.count}`),
        el("span", {class: "when"}, ago(each.time), " ago")),
      each.message && el("p", {}, each.message),
      each.reason && each.reason !== each.what && el("p", {class: "dim"}, each.source === "event" ? `${each.reason} event` : each.reason)))),
  ];
}

/** Why a Workload is where it is. Causes come at once; what would help is looked for when somebody asks. */
class Explanation {
  #path;
  #answer = null;
  #place = el("div", {class: "why"});
  #asked = "";
  /** Whether somebody wants to know what would help, and has no answer yet: whoever asks next, asks for that. */
  #wanted = false;
  #questions = 0;

  constructor(namespace, name) {
    this.#path = ["workloads", namespace, name, "explanation"];
  }

  show(data) {
    // The same state and sentence have the same reasons, near enough: a stream of changes elsewhere asks nothing anew.
    const about = `${data.state} ${data.sentence}`;
    if (about !== this.#asked) {
      this.#asked = about;
      this.#ask(this.#wanted);
    }
    return this.#place;
  }

  async #ask(suggestions) {
    const question = ++this.#questions;
    this.#wanted = suggestions;
    this.#place.setAttribute("aria-busy", "true");
    if (!this.#answer) this.#place.replaceChildren(el("p", {class: "hint"}, "Asking the scheduler…"));
    try {
      const answer = await get(this.#path, suggestions ? {suggestions: "true"} : {});
      if (question !== this.#questions) return;
      this.#answer = answer;
      this.#wanted = false;
      this.#render(suggestions);
    } catch (error) {
      if (question !== this.#questions) return;
      const why = error instanceof Refused ? error.message : "The server cannot be reached.";
      const again = el("button", {type: "button", "data-key": "again", click: () => this.#ask(suggestions)}, "Ask again");
      this.#place.replaceChildren(el("p", {class: "hint"}, why), again);
      this.#asked = "";
    }
    this.#place.removeAttribute("aria-busy");
  }

  #render(asked) {
    const {state, position, warnings = [], causes, ahead, holders, startsNext, suggestions, search, note} = this.#answer;
    const waits = state === "Pending";
    this.#place.replaceChildren(...[
      startsNext && el("p", {class: "good"}, "Nothing blocks it: the next scheduling cycle admits it."),
      position && el("p", {}, `Place ${position.inClusterQueue} in its ClusterQueue, ${position.inLocalQueue} in its LocalQueue.`),
      warnings.length ? el("ul", {class: "warnings", "aria-label": "Warnings"}, warnings.map((warning) => el("li", {}, warning))) : null,
      causes.length ? el("ul", {class: "causes"}, causes.map((cause) => el("li", {}, cause))) : null,
      ahead.length ? el("details", {}, el("summary", {}, `${count(ahead.length, "Workload")} ahead of it`),
        el("ul", {}, ahead.map((key) => el("li", {}, workloadLink(key))))) : null,
      holders.length ? el("details", {open: holders.length <= 5}, el("summary", {}, "Held by"),
        el("ul", {}, holders.map((held) => el("li", {}, workloadLink(held.workload), `: ${held.amount} ${held.resource} of ${held.flavor}`,
          held.protectedBy && el("span", {class: "dim"}, ` (${held.protectedBy})`))))) : null,
      note && el("p", {class: "hint"}, note),
      waits && !startsNext && !note && el("div", {class: "help"}, el("h3", {}, "What would let it in"), asked ? ways(suggestions, search) : this.#button()),
    ].filter((each) => each instanceof Node));
  }

  #button() {
    return el("button", {type: "button", "data-key": "ways", click: async (event) => {
      event.currentTarget.disabled = true;
      event.currentTarget.textContent = "Trying changes on a copy…";
      await this.#ask(true);
      this.#place.querySelector(".help h3, .help li")?.scrollIntoView({block: "nearest"});
    }}, "Find out");
  }
}

function workloadLink(key) {
  const [namespace, name] = key.split("/");
  return el("a", {href: to(["workload", namespace, name])}, key);
}

function ways(suggestions, search) {
  const isCut = search === "cut short";
  if (!suggestions.length && !isCut) return el("p", {}, "No single change of quota, priority, order or pods was found that lets it in.");
  const found = el("ol", {class: "ways", tabindex: -1}, suggestions.map((each) => el("li", {}, each.changes.map((part, number) =>
    el("div", {}, number ? `and ${part.change}` : part.change, part.command && command(part.command))),
    each.warning && el("p", {class: "hint"}, `but ${each.warning}`))));
  return isCut ? [found, el("p", {class: "hint"}, "The search was cut short because many Workloads wait in this cohort; pykueue explain --thorough continues it.")] : found;
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
    const waiting = await get(["workloads"], {clusterQueue: name, state: "Pending", sort: "created", limit: 10}).catch(() => null);
    return {...found, waiting};
  },
  render: (data) => [
    el("p", {class: "path"}, el("a", {href: to(["queues"])}, "Queues"), [...data.path].reverse().map((cohort) =>
      [" › ", el("a", {href: to(["queues"], {cohort})}, cohort)])),
    el("h1", {class: "named"}, name, data.problem && el("span", {class: "problem"}, " inactive")),
    data.problem && el("p", {class: "problem"}, data.problem),
    facts([
      ["Pending", pendingLink(data)],
      ["Admitted", String(data.admitted)],
      ["Holding quota", String(data.reserved)],
      ["Strategy", data.strategy],
      ["Stopped", data.stopped === "None" ? "" : data.stopped],
    ]),
    panel("Quota", legend(), bars(data.figures, Infinity),
      el("p", {}, "Flavors: ", [...new Set(data.figures.map((figure) => figure.flavor))].map((flavor, number) =>
        [number ? ", " : "", el("a", {href: to(["flavor", flavor])}, flavor)]))),
    data.waiting && panel("Waiting longest", data.waiting.items.length
      ? el("ul", {class: "plain"}, data.waiting.items.map((each) => el("li", {}, workloadLink(`${each.namespace}/${each.name}`), " ",
        ago(each.created), el("span", {class: "sentence"}, each.sentence))))
      : el("p", {class: "hint"}, "Nobody waits here.")),
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
