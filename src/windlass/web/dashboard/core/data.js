// Requests to the server, and live lists by server-sent events. Every error is a Problem with the server's own words.
// One clock stops everything that is live: while paused, events are kept and nothing changes.

import { now } from "./format.js";

const base = new URL("api/v1/", document.baseURI);

export class Problem extends Error {
	constructor(document, status) {
		super(document.detail ?? `the server answered ${status}`);
		this.status = status;
		this.kind = document.error ?? "";
		Object.assign(this, { path: document.path, position: document.position });
	}
}

export function url(path, params = {}) {
	const made = new URL(path, base);
	for (const [name, value] of Object.entries(params)) {
		for (const each of [value].flat()) if ((each ?? "") !== "") made.searchParams.append(name, each);
	}
	return made;
}

async function request(method, path, { params, body, signal } = {}) {
	const options = { method, signal, credentials: "same-origin", headers: {} };
	if (body !== undefined) Object.assign(options, { body: JSON.stringify(body), headers: { "content-type": "application/json" } });
	let answer, text;
	try {
		answer = await fetch(url(path, params), options);
		text = await answer.text();
	} catch (error) {
		if (error.name === "AbortError") throw error;
		throw new Problem({ error: "Unreachable", detail: "the server does not answer; the connection is lost" }, 0);
	}
	if (answer.status === 204) return null;
	let document;
	try {
		document = parse(text);
	} catch {
		document = { error: "Unreadable", detail: answer.ok ? "the server's answer is no JSON" : text.slice(0, 300) };
	}
	if (!answer.ok || document?.error === "Unreadable") throw new Problem(document ?? {}, answer.status);
	return document;
}

/** JSON whose whole numbers beyond 2^53 keep their digits: JavaScript would change the last ones. */
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

// Live lists

export const live = { state: "live", at: now(), paused: false, lostSince: null, problem: null };

const WINDOWS = 4; // that hold a stream, see below
const POLL = 3000; // milliseconds between two reads of a window without a stream

const listeners = new Set();
const repeated = new Set();
const followed = []; // {name, params, rows, changed}
let held = []; // events that came while paused
let source = null;
let timer = null;
let asked = false; // a connection is on its way
let failures = 0;

export const onLive = (changed) => listeners.add(changed);

function tell() {
	for (const each of listeners) each();
}

/** Follow a list of the server: `changed(rows)` gets a Map of its rows by key after each event. All lists share one stream. */
export function follow(name, params, changed) {
	const mine = { name, params, changed, rows: new Map() };
	followed.push(mine);
	connectSoon();
	return () => {
		const place = followed.indexOf(mine);
		if (place < 0) return;
		followed.splice(place, 1);
		connectSoon();
	};
}

/** Of each name the last one: a page that opened late, and is closed as soon as it has, must not end the list of the next. */
const heard = () => new Map(followed.map((each) => [each.name, each]));

const wanted = () => Object.assign({ list: [...heard().keys()] }, ...followed.map((each) => each.params));

function connectSoon() {
	if (asked) return;
	asked = true;
	queueMicrotask(() => { // a page that changes closes one list and opens another: one connection for both
		asked = false;
		connect();
	});
}

export function connect() {
	disconnect();
	if (!followed.length || resting) return;
	source = new EventSource(url("stream", wanted()));
	source.onopen = () => { failures = 0; hear(); };
	source.onerror = lose;
	for (const kind of ["snapshot", "delta"]) source.addEventListener(kind, (event) => receive(kind, parse(event.data)));
	source.addEventListener("problem", (event) => { live.problem = parse(event.data).detail; tell(); });
	askWindows();
}

function disconnect() {
	clearTimeout(timer);
	source?.close();
	source = null;
}

function hear() {
	live.problem = null;
	if (!live.paused) Object.assign(live, { at: now(), lostSince: null, state: "live" });
	tell();
}

function lose() {
	failures += 1;
	if (!live.paused) {
		live.lostSince ??= now();
		live.state = "lost";
		tell();
	}
	source.close();
	timer = setTimeout(retry, Math.min(15000, 500 * 2 ** Math.min(failures, 5)));
}

async function retry() {
	await get("session").catch((problem) => { if (problem.status === 401) throw problem; }); // a stream does not say that its token has ended
	if (failures >= 3) await read().catch(() => {}); // the next try tells
	connect();
}

async function read() {
	const { lists } = await get("lists", wanted());
	for (const [list, rows] of Object.entries(lists)) receive("snapshot", { list, rows });
}

function receive(kind, event) {
	if (live.paused) return held.push([kind, event]);
	apply(kind, event);
	hear();
}

function apply(kind, { list, rows }) {
	const mine = heard().get(list);
	if (!mine) return;
	if (kind === "snapshot") mine.rows = new Map();
	for (const [key, row] of Object.entries(rows)) {
		if (row === null) mine.rows.delete(key);
		else mine.rows.set(key, row);
	}
	mine.changed(mine.rows);
}

export function setPaused(paused) {
	Object.assign(live, { paused, state: paused ? "paused" : live.lostSince ? "lost" : "live" });
	if (paused) live.at = now();
	else {
		for (const [kind, event] of held) apply(kind, event);
		held = [];
		for (const again of repeated) again();
	}
	tell();
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

// A browser opens six connections to a server for all its windows; beyond them a request waits for ever. So only the
// oldest few visible windows have a stream. They answer a window that asks, and it reads by requests instead.

const born = performance.timeOrigin + Math.random();
const windows = new BroadcastChannel(`windlass ${base}`);
let older = new Set();
let resting = false;

windows.onmessage = ({ data }) => {
	if (data.asks) {
		if (source) windows.postMessage({ streams: born });
	} else if (data.streams < born) {
		older.add(data.streams);
		if (source && older.size >= WINDOWS) {
			disconnect();
			poll();
		}
	}
};

function askWindows() {
	older = new Set();
	windows.postMessage({ asks: true });
}

async function poll() {
	if (source || resting) return;
	if (older.size < WINDOWS) return connect();
	askWindows(); // until the next turn the answers are here
	await read().catch((problem) => { if (problem.status === 401) throw problem; });
	clearTimeout(timer);
	timer = setTimeout(poll, POLL);
}

function see(seen) {
	if (resting !== seen) return;
	resting = !seen;
	if (resting) return disconnect();
	connect();
	for (const again of repeated) again();
}

document.addEventListener("visibilitychange", () => see(!document.hidden));
addEventListener("pagehide", () => see(false));
addEventListener("pageshow", () => see(!document.hidden));
