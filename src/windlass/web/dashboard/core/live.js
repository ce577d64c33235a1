// Live lists by server-sent events; when a stream cannot be kept open, the same rows by polling.
// One clock stops all of it: while paused, events are kept and nothing on the page changes.

import { get, parse, url } from "./api.js";
import { now } from "./format.js";

export const live = { state: "live", at: now(), paused: false, lostSince: null, problem: null };

const listeners = new Set();
const streams = new Set();
const repeated = new Set();
const sources = new Set(); // what holds a connection: {rest, wake}

// A browser opens six connections to a server, for all tabs together. A tab that nobody sees gives its own back: with a few
// tabs open, the next one would wait for ever.
let resting = false;

/** Give a connection back while the page is not seen: `rest` closes it, `wake` opens it again. */
export function rests(source) {
  sources.add(source);
  return () => sources.delete(source);
}

function see(seen) {
  if (resting !== seen) return;
  resting = !seen;
  for (const source of sources) resting ? source.rest() : source.wake();
  if (seen) for (const again of repeated) again();
}

document.addEventListener("visibilitychange", () => see(!document.hidden));
addEventListener("pagehide", () => see(false));
addEventListener("pageshow", () => see(!document.hidden));

export function onLive(changed) {
  listeners.add(changed);
  return () => listeners.delete(changed);
}

function tell() {
  for (const each of listeners) each();
}

export function setPaused(paused) {
  live.paused = paused;
  live.state = paused ? "paused" : live.lostSince ? "lost" : "live";
  if (paused) live.at = now();
  else {
    for (const stream of streams) stream.release();
    for (const again of repeated) again();
  }
  tell();
}

export function reconnect() {
  for (const stream of streams) stream.open();
}

function heard() {
  if (live.paused) return;
  live.at = now();
  live.lostSince = null;
  live.state = "live";
}

/** Read again and again, but not while paused. A read that fails leaves what is shown; the stream says what is wrong. */
export function repeat(read, milliseconds) {
  const again = () => {
    if (live.paused || resting) return;
    Promise.resolve(read()).catch((problem) => { if (problem.status === 401 || problem.status === undefined) throw problem; });
  };
  const timer = setInterval(again, milliseconds);
  repeated.add(again);
  return () => {
    clearInterval(timer);
    repeated.delete(again);
  };
}

/** Follow lists of the server: `changed(rows, name, kind)` gets a Map of rows by key after each event. */
export class Stream {
  constructor(params, changed, poll) {
    this.params = params;
    this.changed = changed;
    this.poll = poll;
    this.lists = new Map();
    this.held = [];
    this.failures = 0;
    this.timer = null;
    streams.add(this);
    this.stays = rests(this);
    this.open();
  }

  open() {
    this.source?.close();
    clearTimeout(this.timer);
    if (this.closed || resting) return;
    this.source = new EventSource(url("stream", this.params));
    this.source.onopen = () => this.hear();
    this.source.onerror = () => this.lose();
    for (const kind of ["snapshot", "delta"]) {
      this.source.addEventListener(kind, (event) => this.receive(kind, parse(event.data)));
    }
    this.source.addEventListener("problem", (event) => {
      live.problem = parse(event.data).detail;
      tell();
    });
  }

  hear() {
    this.failures = 0;
    live.problem = null;
    heard();
    tell();
  }

  lose() {
    this.failures += 1;
    if (!live.paused) {
      live.lostSince ??= now();
      live.state = "lost";
      tell();
    }
    this.source.close();
    const wait = Math.min(15000, 500 * 2 ** Math.min(this.failures, 5));
    this.timer = setTimeout(() => this.retry(), wait);
  }

  async retry() {
    await get("session").catch((problem) => { if (problem.status === 401) throw problem; }); // a stream does not say that its token has ended
    if (this.failures >= 3 && this.poll) {
      try {
        const lists = await this.poll(get);
        for (const [name, rows] of Object.entries(lists)) this.receive("snapshot", { list: name, rows });
      } catch {
        // the next try tells
      }
    }
    this.open();
  }

  receive(kind, event) {
    if (live.paused) {
      this.held.push([kind, event]);
      return;
    }
    heard();
    live.problem = null;
    this.apply(kind, event);
    tell();
  }

  release() {
    for (const [kind, event] of this.held) this.apply(kind, event);
    this.held = [];
  }

  apply(kind, event) {
    const rows = kind === "snapshot" ? new Map() : (this.lists.get(event.list) ?? new Map());
    for (const [key, row] of Object.entries(event.rows)) {
      if (row === null) rows.delete(key);
      else rows.set(key, row);
    }
    this.lists.set(event.list, rows);
    this.changed(rows, event.list, kind);
  }

  rest() {
    clearTimeout(this.timer);
    this.source?.close();
  }

  wake() {
    this.open();
  }

  close() {
    this.closed = true;
    this.stays();
    clearTimeout(this.timer);
    this.source?.close();
    streams.delete(this);
  }
}
