// Requests to the API. Every error is a Problem with the server's own words.

export const base = new URL("api/v1/", document.baseURI);

export class Problem extends Error {
  constructor(document, status, retryAfter) {
    super(document.detail ?? `the server answered ${status}`);
    this.status = status;
    this.kind = document.error ?? "";
    this.path = document.path ?? null;
    this.mistakes = document.mistakes ?? [];
    this.retryAfter = retryAfter;
  }
}

export function url(path, params = {}) {
  const made = new URL(path.replace(/^\//, ""), base);
  for (const [name, value] of Object.entries(params)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") made.searchParams.append(name, each);
    }
  }
  return made;
}

export async function request(method, path, { params, body, signal, headers } = {}) {
  const sent = body === undefined ? { ...headers } : { "content-type": "application/json", ...headers };
  const options = { method, headers: sent, signal, credentials: "same-origin" };
  if (body !== undefined) options.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(url(path, params), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ error: "Unreachable", detail: "the server does not answer; the connection is lost" }, 0);
  }
  if (answer.status === 204) return null;
  const text = await answer.text();
  let document;
  try {
    document = parse(text);
  } catch {
    if (answer.ok) throw new Problem({ error: "Unreadable", detail: "the server's answer is no JSON" }, answer.status);
    document = { detail: text.slice(0, 300) };
  }
  if (!answer.ok) throw new Problem(document ?? {}, answer.status, answer.headers.get("retry-after"));
  return document;
}

/** JSON whose whole numbers beyond 2^53 keep their digits, also when they are sent back: JavaScript would change the last ones. */
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const exact = JSON.rawJSON ?? String; // a browser without rawJSON shows them as text
  const large = (source) => /^-?\d{16,}$/.test(source) && !Number.isSafeInteger(Number(source));
  return JSON.parse(text, (key, value, context) => (typeof value === "number" && large(context?.source ?? "") ? exact(context.source) : value));
}

export const get = (path, params, signal) => request("GET", path, { params, signal });
export const post = (path, body) => request("POST", path, { body: body ?? undefined });
export const put = (path, body) => request("PUT", path, { body });
export const del = (path, params) => request("DELETE", path, { params });

/** A bulk action: each report of its progress goes to `onProgress`; the answer is the last one. */
export async function bulk(body, onProgress, signal) {
  const answer = await fetch(url("jobs/bulk"), {
    method: "POST",
    signal,
    credentials: "same-origin",
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Problem(parse(await answer.text()), answer.status);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  let last = null;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return last;
    buffer += value;
    const events = buffer.split("\n\n");
    buffer = events.pop();
    for (const each of events) {
      const kind = /^event: (.*)$/m.exec(each)?.[1];
      const data = /^data: (.*)$/m.exec(each)?.[1];
      if (kind === "problem") throw new Problem(parse(data), 503);
      if (kind === "progress") onProgress((last = parse(data)));
    }
  }
}
