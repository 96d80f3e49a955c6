// The server's JSON interface: questions out, answers or a Problem in words back.

const KEPT_TOKEN = "headstart-token";

/** What went wrong, and how to mend it. */
export class Problem extends Error {
  constructor(what, fix) {
    super(what);
    this.fix = fix;
  }
}

let askForToken = null;

/** Name who asks for the token: a function that is told whether one was refused and gives a promise of another. */
export function tokenFrom(asker) {
  let waiting = null; // several requests may be refused at once; the question is put once
  askForToken = (isRefused) => (waiting ??= asker(isRefused).finally(() => (waiting = null)));
}

/** GET a path, as an object. */
export async function get(path, signal) {
  return await (await answer(path, { signal })).json();
}

/** GET a path, as text. */
export async function getText(path, signal) {
  return await (await answer(path, { signal })).text();
}

/** POST an object to a path; what is undefined is left out. */
export async function post(path, body, signal) {
  return await (await answer(path, posted(body, signal))).json();
}

/** POST an object to a path and hand on every line of the answer as it comes. */
export async function postForLines(path, body, signal, onLine) {
  const response = await answer(path, posted(body, signal));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await readOn(reader);
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) if (line.trim()) onLine(checked(JSON.parse(line)));
    if (done) return;
  }
}

function posted(body, signal) {
  return { method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

async function answer(path, options) {
  for (let isRefused = false; ; isRefused = true) {
    const token = sessionStorage.getItem(KEPT_TOKEN);
    const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const response = await asked(path, { ...options, headers });
    if (response.ok) return response;
    if (response.status !== 401 || !askForToken) throw await problemOf(response);
    // Another request may have been given a token since this one went out.
    if (sessionStorage.getItem(KEPT_TOKEN) === token) {
      sessionStorage.setItem(KEPT_TOKEN, await askForToken(isRefused || Boolean(token)));
    }
  }
}

async function asked(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : gone();
  }
}

async function readOn(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw error.name === "AbortError" ? error : gone();
  }
}

function gone() {
  return new Problem("The server does not answer.", "check that headstart serve is running, and try again");
}

function checked(line) {
  if (line.error) throw new Problem(line.error.what, line.error.fix);
  return line;
}

async function problemOf(response) {
  const body = await response.json().catch(() => ({}));
  const error = body.error ?? { what: `The server answered ${response.status} ${response.statusText}.`, fix: "" };
  return new Problem(error.what, error.fix);
}
