// What several pages do with jobs: a row's cells, the actions that its state allows, and bulk actions.

import { life } from "./charts.js";
import { get, post } from "./data.js";
import { bdi, draw, h, icon, mark, quiet, STATES, two } from "./dom.js";
import { ago, count, countdown, many, moment, now, relative, span } from "./format.js";
import { ask, comboProps, confirm, listbox, operate, progressBar, say } from "./ui.js";

const GONE = "gone for good; the audit keeps who did it.";

/** The actions on jobs: what was done, what is being done, what it means for many. Two ask first. */
const ACTIONS = {
	retry: ["retried", "Retrying", "Each is tried again at once."],
	replay: ["replayed", "Replaying", "Each starts over with all its attempts."],
	resume: ["resumed", "Resuming", "Each goes back to its queue."],
	cancel: ["cancelled", "Cancelling", "Running ones are asked to stop."],
	discard: ["discarded", "Discarding", `They are ${GONE}`],
};
export const ALL_VERBS = Object.keys(ACTIONS);
export const destroys = (verb) => verb === "cancel" || verb === "discard";

export const VERBS = {
	queued: ["cancel"],
	running: ["cancel"],
	waiting: ["cancel"],
	failed: ["retry", "cancel"],
	dead: ["replay", "discard"],
	cancelled: ["resume"],
	succeeded: [],
};
export const verbOf = (state, ...verbs) => VERBS[state].find((verb) => verbs.includes(verb));
export const capital = (word) => word[0].toUpperCase() + word.slice(1);

export const labelOf = (verb) => (verb === "retry" ? "Retry now" : capital(verb) + (destroys(verb) ? "…" : ""));

export async function act({ id, type }, verb) {
	if (destroys(verb)) {
		const meaning = verb === "discard" ? `It is ${GONE}` : "A running job is asked to stop. Its children of the same tenant are cancelled, too.";
		const label = capital(verb);
		if (!(await confirm({ title: `${label} this job?`, text: [`${type} ${id}`, meaning], button: `${label} it`, danger: true }))) return null;
	}
	const answer = await post(`jobs/${id}/${verb}`);
	say(answer.state === "running" ? "Asked to stop." : `Job ${ACTIONS[verb][0]}.`);
	return answer;
}

/** Open a gate after asking; `at` says which one as the API does. */
export const openGate = (at, text = "Its jobs start at once.") => ask(
	{ title: `Open ${at.name ? `${at.name} again` : "everything"}?`, text: [text], button: `Open ${at.name ?? "everything"}` },
	() => post("gates/resume", at), `${capital(at.name ?? "everything")} is open.`);

export const fireNow = (name, text) =>
	ask({ title: `Run ${name} now?`, text: [text], button: "Run now" },
		async () => ((await post("schedules/fire", { name })).existing ? "Its job is there already." : "Enqueued."));

// Bulk actions run on the server: closing a page stops none, and every page shows those that run.

let actions = new Map();
const watched = new Map(); // by the id of an action that this page has begun or seen: {after, known}

/** Count exactly, ask, and begin; what comes of it is said when it ends. */
export async function bulkAct(verb, chosen, after) {
	const able = STATES.filter((name) => VERBS[name].includes(verb)); // others would be counted, and then refuse
	const filter = `${chosen} state:${able}`.trim();
	const { matched, states } = await post("jobs/bulk", { verb, filter, dry_run: true });
	const [done, , meaning] = ACTIONS[verb];
	if (!matched) return say(`No job that matches can be ${done}.`);
	const counted = Object.entries(states).map(([name, number]) => `${count(number)} ${name}`).join(", ");
	const sure = await confirm({
		title: `${capital(verb)} ${many(matched, "job")}?`, text: [`${counted}. ${meaning}`, `They match ${filter}`],
		button: `${capital(verb)} ${count(matched)}`, number: matched, danger: destroys(verb),
	});
	if (!sure) return;
	const begun = await post("bulk", { verb, filter, expected: matched });
	watched.set(begun.id, { after, known: false });
	learnActions(new Map([[begun.id, begun], ...actions])); // the stream may have told its end already
}

const moved = ({ refused }, more = "") => (refused ? `, ${count(refused)} had moved on${more}` : "");

function endOf(action) {
	const number = count(action.changed + action.asked);
	const [done, doing] = ACTIONS[action.verb];
	if (action.state === "failed") return `${doing} stopped after ${number} of ${count(action.matched)}: ${action.problem}`;
	return action.state === "stopped" ? `Stopped: ${number} were ${done}.` : `${number} ${done}${moved(action, " and were left alone")}.`;
}

export function learnActions(rows) {
	actions = new Map(rows);
	for (const [id, row] of actions) {
		if (row.state === "running") watched.set(id, { after: watched.get(id)?.after, known: true });
		else if (watched.has(id)) {
			say(endOf(row), 10);
			watched.get(id).after?.();
			watched.delete(id);
		}
	}
	for (const [id, { known }] of watched) {
		if (!known || actions.has(id)) continue;
		watched.delete(id);
		say("The server was restarted, and a bulk action stopped with it. The audit has what was done.", 20);
	}
}

function runningAction(row) {
	const tried = row.changed + row.asked + row.refused;
	const passed = (now() - new Date(row.began_at)) / 1000;
	const left = tried > 0 && passed > 1 ? `about ${span((passed * (row.matched - tried)) / tried)}` : "";
	const sofar = `${count(row.changed + row.asked)} done${moved(row)}, ${count(row.matched - tried)} to go`;
	return h("div.notice.raised", { key: row.id, role: "region", label: "Bulk action" },
		mark("running", "running", "", false), h("strong", `${ACTIONS[row.verb][1]} ${many(row.matched, "job")}`),
		h("span.second", sofar, h("bdi.two", { title: row.filter }, `${row.actor}: ${row.filter || "everything"}`.slice(0, 90))),
		progressBar(tried, row.matched), h("span.quiet", left), operate("Stop", () => post(`bulk/${row.id}/stop`)));
}

export const runningActions = () => [...actions.values()].filter((row) => row.state === "running").map(runningAction);

export const dueCell = ({ due, queued, counted }) =>
	[h("strong", count(due, counted)), queued > due && two(`${count(queued - due, counted)} later`)];

/** What is next for a job, over its time: retries in 38 s, ended 2 m ago, why it waits. */
export function next({ state, run_at, started_at, updated_at, finished_at, why }) {
	const cell = (said, at) => h("span.nowrap", { title: at }, said, two(moment(at)));
	if (state === "failed") return cell(["retries ", h("strong", countdown(run_at))], run_at);
	if (finished_at) return cell(`ended ${relative(finished_at)}`, finished_at);
	if (state === "queued") return cell(h("strong", countdown(run_at)), run_at);
	if (state === "running") return cell(`runs for ${ago(started_at)}`, started_at);
	return cell(why?.until ? countdown(why.until) : relative(updated_at), updated_at);
}

export function lifeOf({ state, life: told }) {
	if (!told) return null;
	const total = told.total ?? Math.max(0, now() - new Date(told.began_at));
	const done = told.parts.reduce((sum, [, part]) => sum + (part ?? 0), 0);
	const parts = told.parts.map(([kind, part]) => [kind, part ?? Math.max(0, total - done)]); // null: until now
	const length = span(total / 1000);
	return [life(parts, state, told.text || `${state}, ${length} in all`), two(length)];
}

// The filter of a page: terms as tokens, a field for the next one, and suggestions from the server.

/** A term of a filter: white space is between them, except inside quotes. */
const TERM = /(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g;

export const terms = (text) => text.match(TERM) ?? [];
export const withoutTerm = (text, term) => terms(text).filter((each) => each !== term).join(" ");

const termOf = (text, field) => terms(text).find((term) => term.startsWith(`${field}:`));

export const valuesOf = (text, field) => termOf(text, field)?.slice(field.length + 1).split(",") ?? [];

/** Put a value to a field's term, or take it away: state:failed and state:dead become state:failed,dead. */
export function toggleValue(text, field, value) {
	const values = valuesOf(text, field);
	const next = values.includes(value) ? values.filter((each) => each !== value) : [...values, value];
	const rest = terms(text).filter((term) => term !== termOf(text, field));
	return [...rest, ...(next.length ? [`${field}:${next.join(",")}`] : [])].join(" ");
}

/** The bar of a filter; `fixed` is the page's own part, `change(filter)` opens another. */
export function filterBar({ filter, fixed = "", change }) {
	let typed = "";
	let suggested = [];
	let chosen = -1;
	let open = false;
	let abort = null;

	const set = (next) => {
		filter = next;
		typed = "";
		open = false;
		change(next);
	};
	const close = () => {
		open = false;
		draw();
	};
	const suggest = async () => {
		abort?.abort();
		abort = new AbortController();
		try {
			const text = (filter ? `${filter} ` : "") + typed;
			suggested = (await get("suggestions", { text }, abort.signal)).suggestions;
			open = true;
			chosen = -1;
			draw();
		} catch {
			suggested = [];
		}
	};
	const accept = (text) => {
		typed = text;
		if (text.endsWith(":")) suggest();
		else set([...new Set([...terms(filter), text])].join(" "));
		draw();
	};
	/** The suggestion that Enter takes: the chosen one, else the first one that goes on from what is typed. */
	const offered = () => {
		if (!open) return null;
		return suggested[chosen] ?? suggested.find(({ text, kind }) => typed && kind !== "mistake" && text.startsWith(typed));
	};
	const keydown = (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		if (step && suggested.length) {
			open = true;
			chosen = (chosen + step + suggested.length) % suggested.length;
			draw();
		} else if (event.key === "Tab" && !event.shiftKey && typed && offered()) accept(offered().text);
		else if (event.key === "Enter") {
			if (offered()) accept(offered().text);
			else if (typed.trim()) set([filter, typed.trim()].filter(Boolean).join(" "));
		} else {
			if (event.key === "Backspace" && !typed && filter) set(terms(filter).slice(0, -1).join(" "));
			else if (event.key === "Escape") close();
			return;
		}
		event.preventDefault();
	};
	/** The term with the mistake, whose place is one in the whole filter. */
	const wrongTerm = ({ position }) => {
		const place = position - (fixed ? fixed.length + 1 : 0);
		return [...filter.matchAll(TERM)].find(({ index, 0: term }) => index <= place && place < index + term.length)?.[0];
	};
	const field = () => h("input", {
		...comboProps("suggestions", "Filter", open, chosen),
		key: "field", "data-filter": true, value: typed, placeholder: filter ? "" : "Add a filter, or paste an id",
		oninput: (event) => { typed = event.target.value; suggest(); },
		onfocus: suggest, onblur: () => setTimeout(close, 200), onkeydown: keydown,
	});
	const suggestion = ({ text, said, count: number }) => [bdi(text), said && quiet(said),
		number != null && h("span.count", count(number, 10000))];
	const view = (problem, side) => {
		const wrong = problem && wrongTerm(problem);
		const token = (term) => h("span.term", { key: term, class: term === wrong ? "wrong" : "" }, h("bdi.clip", term),
			h("button.bare", { label: `Remove ${term}`, onclick: () => set(withoutTerm(filter, term)) }, icon("cross")));
		return h("div.filterbar",
			h("div.box", icon("search"), terms(filter).map(token), field(), side),
			problem && h("p.mistake", { role: "alert" }, problem.message),
			open && suggested.length > 0 && h("div.suggestions",
				listbox("suggestions", "Suggestions", suggested, chosen, ({ text }) => accept(text), suggestion)));
	};
	return { set, view };
}
