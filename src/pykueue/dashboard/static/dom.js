// Building elements. Names and messages come from any user who can create objects, so text is only set as text.

// Characters that change how others are rendered: controls, and marks of the writing direction.
const TRICKS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** Text that is safe to show: invisible characters are spelled out. */
export function plain(text) {
  return String(text).replace(TRICKS, (mark) => `⟨U+${mark.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** An element: el("a", {href, class: "name"}, "text", other, …). Functions are listeners, `style` is an object. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : plain(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : plain(child));
  }
}

/** A decoded part of an address; returned unchanged if it is not a valid escape. */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** An address within the page; every part is escaped. */
export function to(parts, query = {}) {
  const set = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  const text = set.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join("&");
  return `#/${parts.map(encodeURIComponent).join("/")}${text && `?${text}`}`;
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

/** How long ago, in one unit; the moment itself is in the title. */
export function ago(moment) {
  const time = Date.parse(moment);
  if (Number.isNaN(time)) return el("span", {class: "dim"}, "–");
  const seconds = Math.max(0, Math.round((Date.now() - time) / 1000));
  const [size, unit] = UNITS.find(([least]) => seconds >= least) ?? [1, "s"];
  return el("time", {datetime: moment, title: moment}, `${Math.floor(seconds / size)}${unit}`);
}

// Up to this distance in hours, times are rounded up to a multiple of these minutes, as `pykueue queue --eta` does.
const ROUNDING = [[1, 1], [4, 5], [12, 15], [48, 60]];

/** A future time with the precision that its distance deserves: 14:20, Tue 09:00, Sunday, 24 Nov. */
export function moment(text) {
  const at = new Date(text);
  const hours = (at - Date.now()) / 3600e3;
  const named = (options) => at.toLocaleDateString("en-GB", options);
  const [, minutes] = ROUNDING.find(([limit]) => hours <= limit) ?? [0, 0];
  if (!minutes) return hours <= 144 ? named({weekday: "long"}) : named({day: "numeric", month: "short"});
  if (at.getSeconds() || at.getMilliseconds()) at.setMinutes(at.getMinutes() + 1, 0, 0);
  at.setMinutes(Math.ceil(at.getMinutes() / minutes) * minutes);
  const clock = at.toLocaleTimeString("en-GB", {hour: "2-digit", minute: "2-digit"});
  return at.toDateString() === new Date().toDateString() ? clock : `${named({weekday: "short"})} ${clock}`;
}

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
