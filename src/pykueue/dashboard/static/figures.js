// Bars of quota usage, and marks of Workload states.

import {count, el, moment, to} from "./dom.js";

const SHOWN = 4;
const MARKS = {Pending: "○", QuotaReserved: "◐", Admitted: "●", Evicted: "▲", Inactive: "–", Finished: "✓"};
export const STATES = Object.keys(MARKS);

export function stateMark(state) {
  return el("span", {class: `state ${state.toLowerCase()}`}, el("span", {"aria-hidden": "true"}, MARKS[state] ?? "?"), ` ${state}`);
}

/** A badge for each trouble of a Workload: EvictionLoop, Thrashing, Starving. */
export const troubleMarks = (types) => types.map((type) => el("span", {class: "trouble"}, type));

/** When a Workload is expected to start: in half of the cases, and in 9 of 10; with a mark if its start is planned, and the reason if
 * there is no forecast or an outdated one. */
export function expectedStart(expected, whole = false) {
  if (!expected) return null;
  const {p50, p90, isBeyond, planned, reason} = expected;
  const missing = !p50 && !isBeyond && reason;
  if (missing && !planned) return el("span", {class: "expected dim", title: reason}, whole ? `no forecast: ${reason}` : "no forecast");
  const first = p50 ?? planned;
  const by = p90 && `by ${moment(p90)} in 9 of 10 cases`;
  const latest = planned && `planned: ${moment(planned)} at the latest`;
  const problem = missing ? `no forecast: ${reason}` : reason && `the forecast is not up to date: ${reason}`;
  return el("span", {class: "expected", title: [by, latest, problem].filter(Boolean).join("; ") || null},
    first ? el("time", {datetime: first}, moment(first)) : isBeyond && "in more than 7 days",
    p90 && el("span", {class: "by"}, whole ? `, ${by}` : `by ${moment(p90)}`), planned && el("span", {class: "planned"}, "planned"));
}

/** The bars of a queue or cohort, highest usage first. */
export function bars(figures, shown = SHOWN) {
  const sorted = [...figures].sort((a, b) => share(b) - share(a));
  const rest = sorted.length - shown;
  return el("div", {class: "bars"}, sorted.slice(0, shown).map(bar), rest > 0 && el("span", {class: "dim"}, `and ${rest} more`));
}

const share = ({nominal, used}) => (nominal === null || !used ? 0 : nominal ? used / nominal : Infinity);

function bar(figure) {
  const {text} = figure;
  const unlimited = figure.nominal === null;
  const whole = unlimited ? Math.max(figure.used * 2, 1) : Math.max(figure.nominal, figure.used) || 1;
  const part = (amount) => `${Math.min(100, ((amount ?? 0) / whole) * 100)}%`;
  const own = unlimited ? figure.used : Math.min(figure.used, figure.nominal);
  const parts = [`${text.used} of ${text.nominal} used`];
  if (figure.borrowed) parts.push(`${text.borrowed} borrowed`);
  if (figure.lent) parts.push(`${text.lent} lent`);
  return el("div", {class: "bar", role: "img", "aria-label": `${figure.resource} of ${figure.flavor}: ${parts.join(", ")}`,
    title: parts.join(", ")},
    el("span", {class: "what"}, figure.resource, " ", el("span", {class: "dim"}, figure.flavor)),
    el("span", {class: "track"},
      el("span", {class: "used", style: {width: part(own)}}),
      figure.borrowed ? el("span", {class: "borrowed", style: {width: part(figure.borrowed)}}) : null,
      figure.lent ? el("span", {class: "lent", style: {width: part(figure.lent)}}) : null),
    el("span", {class: "numbers"}, text.used, el("span", {class: "dim"}, ` / ${text.nominal === "<unlimited>" ? "∞" : text.nominal}`)));
}

export function legend() {
  const swatch = (kind, word) => el("span", {}, el("span", {class: `swatch ${kind}`}), ` ${word}`);
  return el("p", {class: "legend"}, swatch("used", "used"), swatch("borrowed", "borrowed"),
    swatch("lent", "lent to others"), swatch("free", "free"));
}

/** The number of pending Workloads of a queue or cohort, as a link to them. */
export function pendingLink(entry, address = to(["workloads"], {state: "Pending", clusterQueue: entry.name})) {
  if (!entry.pending) return el("span", {class: "count dim"}, "0 pending");
  const label = `${count(entry.pending, "pending Workload")} of ${entry.name}`;
  return el("a", {class: "count waiting", href: address, "aria-label": label},
    `${entry.pending.toLocaleString("en")} pending`);
}
