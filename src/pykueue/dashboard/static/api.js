// Requests to the server with the bearer token of the user. The token stays in this tab (sessionStorage).

import {decoded} from "./dom.js";

const KEPT = "pykueue-token";
const FOR = "pykueue-namespace";
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 20_000;
const SILENCE = 45_000;
// What a header can have; a pasted token may have invisible characters.
const HEADER = /^[\x21-\x7e]+$/;

/** The name that the server uses for "no cohort". */
export const NO_COHORT = "-";

export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export const token = () => sessionStorage.getItem(KEPT) ?? "";
/** The only namespace that the user has access to; empty for all namespaces. */
export const confinedTo = () => sessionStorage.getItem(FOR) ?? "";

export function remember(given, namespace = "") {
  sessionStorage.setItem(KEPT, given.trim());
  sessionStorage.setItem(FOR, namespace.trim());
}

export function forget() {
  sessionStorage.removeItem(KEPT);
  sessionStorage.removeItem(FOR);
}

/** Move the token from the address into the session: address bar and history do not keep it. */
export function takeFromAddress() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (!given) return;
  remember(decoded(given[1]));
  history.replaceState(null, "", `${location.pathname}#/`);
}

async function request(parts, query = {}, options = {}) {
  const parameters = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null));
  const path = `api/${parts.map(encodeURIComponent).join("/")}${parameters.size ? `?${parameters}` : ""}`;
  if (!HEADER.test(token())) throw new Refused(401, "invalid bearer token: it has characters that no token has");
  const answer = await fetch(path, {
    headers: {Authorization: `Bearer ${token()}`}, cache: "no-store", credentials: "omit", ...options,
  });
  if (answer.ok) return answer;
  let code = answer.status;
  let message = `the server answered ${code}`;
  try {
    const body = await answer.json();
    message = body.message ?? message;
    // A Status is an answer of the API server itself: it starts or stops, and does not serve the dashboard at the moment.
    if (code === 404 && body.kind === "Status") [code, message] = [503, "The dashboard is not served at the moment; the page retries automatically."];
  } catch {
    // Not a JSON answer of the dashboard: the status code has to suffice.
  }
  throw new Refused(code, message);
}

export const get = async (parts, query) => (await request(parts, query)).json();

/** Follow the stream of changes until aborted: `changed(update)` for each, `state(name)` for the status indicator. */
export async function follow(changed, state, signal) {
  let pause = FIRST_PAUSE;
  while (!signal.aborted) {
    try {
      await listen((update) => { pause = FIRST_PAUSE; state("live"); changed(update); }, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.code === 401) return changed({refused: error});
    }
    if (signal.aborted) return;
    state("reconnecting");
    await new Promise((done) => setTimeout(done, pause * (1 + Math.random() / 2)));
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

async function listen(changed, signal) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE);
  try {
    const query = {namespace: confinedTo()};
    const answer = await request(["stream"], query, {signal: AbortSignal.any([signal, silence.signal])});
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE);
      buffer += value;
      for (let end; (end = buffer.indexOf("\n\n")) >= 0; buffer = buffer.slice(end + 2)) {
        const data = buffer.slice(0, end).split("\n").find((line) => line.startsWith("data: "));
        if (data) changed(JSON.parse(data.slice(6)));
      }
    }
  } finally {
    clearTimeout(timer);
  }
}
