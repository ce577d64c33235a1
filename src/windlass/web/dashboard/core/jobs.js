// What several pages do with jobs: a row's cells, the actions that its state allows, and bulk actions.

import { post } from "./data.js";
import { count, countdown, many, moment, now, relative, span } from "./format.js";
import { life } from "./charts.js";
import { h, mark } from "./dom.js";
import { confirm, only, progressBar, say } from "./ui.js";

/** The actions that a job's state allows: verb, label, whether it destroys. */
const CANCEL = ["cancel", "Cancel…", true];
export const VERBS = {
	queued: [CANCEL],
	running: [CANCEL],
	waiting: [CANCEL],
	failed: [["retry", "Retry now"], CANCEL],
	dead: [["replay", "Replay"], ["discard", "Discard…", true]],
	cancelled: [["resume", "Resume"]],
	succeeded: [],
};
export const DONE = { cancel: "cancelled", retry: "retried", replay: "replayed", resume: "resumed", discard: "discarded" };
const DOES = { cancel: "Cancelling", retry: "Retrying", replay: "Replaying", resume: "Resuming", discard: "Discarding" };
const MEANS = {
	cancel: "Running ones are asked to stop.",
	retry: "Each is tried again at once.",
	replay: "Each starts over with all its attempts.",
	resume: "Each goes back to its queue.",
	discard: "They are gone for good; the audit keeps who did it.",
};
export const capital = (word) => word[0].toUpperCase() + word.slice(1);
export const destroys = (verb) => verb === "cancel" || verb === "discard";

/** The verb of these that the state allows. */
export const verbOf = (state, ...verbs) => VERBS[state].find(([verb]) => verbs.includes(verb))?.[0];

export async function act(job, verb) {
	if (destroys(verb)) {
		const meaning = verb === "discard" ? "It is gone for good; the audit keeps who did it." : "A running job is asked to stop. Its children are cancelled, too.";
		if (!(await confirm({ title: `${capital(verb)} this job?`, text: [`${job.type} ${job.id}`, meaning], button: `${capital(verb)} it`, danger: true }))) return null;
	}
	const answer = await post(`jobs/${job.id}/${verb}`);
	say(answer.state === "running" ? "Asked to stop." : `Job ${DONE[verb]}.`);
	return answer;
}

// Bulk actions run on the server: a page that is closed does not stop them, and every page shows those that run.

let actions = new Map();
const watched = new Map(); // by the id of an action that this page has begun or seen: {after, known}

/** Count exactly, ask, and begin; what comes of it is said when it ends. */
export async function bulkAct(verb, filter, after) {
	const { matched, states, filter: used } = await post("jobs/bulk", { verb, filter, dry_run: true });
	if (!matched) return say(`No job that matches can be ${DONE[verb]}.`);
	const counted = Object.entries(states).map(([name, number]) => `${count(number)} ${name}`).join(", ");
	const sure = await confirm({ title: `${capital(verb)} ${many(matched, "job")}?`, text: [`${counted}. ${MEANS[verb]}`, `They match ${used || "everything"}`], button: `${capital(verb)} ${count(matched)}`, number: matched, danger: destroys(verb) });
	if (!sure) return;
	const begun = await post("bulk", { verb, filter, expected: matched });
	watched.set(begun.id, { after, known: false });
	learnActions(new Map([[begun.id, begun], ...actions])); // the stream may have told its end already
}

const moved = (action, more = "") => (action.refused ? `, ${count(action.refused)} had moved on${more}` : "");

function endOf(action) {
	const done = count(action.changed + action.asked);
	if (action.state === "failed") return `${DOES[action.verb]} stopped after ${done} of ${count(action.matched)}: ${action.problem}`;
	return action.state === "stopped" ? `Stopped: ${done} were ${DONE[action.verb]}.` : `${done} ${DONE[action.verb]}${moved(action, " and were left alone")}.`;
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

export function runningActions(allows) {
	return [...actions.values()].filter((row) => row.state === "running").map((row) => {
		const tried = row.changed + row.asked + row.refused;
		const passed = (now() - new Date(row.began_at)) / 1000;
		const left = tried > 0 && passed > 1 ? `about ${span((passed * (row.matched - tried)) / tried)}` : "";
		return h("div.notice.raised", { key: row.id, role: "region", "aria-label": "Bulk action" }, mark("running", "running", "", false), h("strong", `${DOES[row.verb]} ${many(row.matched, "job")}`),
			h("span.second", `${count(row.changed + row.asked)} done${moved(row)}, ${count(row.matched - tried)} to go`, h("bdi.two", { title: row.filter }, `${row.actor}: ${row.filter || "everything"}`.slice(0, 90))),
			progressBar(tried, row.matched), h("span.quiet", left),
			h("button.slim", only(allows, "operator", () => post(`bulk/${row.id}/stop`)), "Stop"));
	});
}

/** How many jobs of a queue or tenant are due, and how many come later. */
export function dueCell({ due, queued, counted }) {
	return [h("strong", count(due, counted)), queued > due && h("span.two", `${count(queued - due, counted)} later`)];
}

/** What is next for a job, over its time: retries in 38 s, ended 2 m ago, why it waits. */
export function next(job) {
	const cell = (said, under, title) => h("span.nowrap", { title }, said, h("span.two", under));
	if (job.state === "failed") return cell(["retries ", h("strong", countdown(job.run_at))], moment(job.updated_at), job.run_at);
	if (job.finished_at) return cell(`ended ${relative(job.finished_at)}`, moment(job.finished_at), job.finished_at);
	if (job.state === "queued") return cell(h("strong", countdown(job.run_at)), moment(job.run_at));
	if (job.state === "running") return cell(`runs since ${moment(job.started_at)}`, relative(job.started_at));
	return cell(job.why?.until ? countdown(job.why.until) : relative(job.updated_at), moment(job.updated_at));
}

export function lifeOf(job) {
	if (!job.life) return null;
	const total = job.life.total ?? Math.max(0, now() - new Date(job.life.began_at));
	const done = job.life.parts.reduce((sum, [, part]) => sum + (part ?? 0), 0);
	const parts = job.life.parts.map(([kind, part]) => [kind, part ?? Math.max(0, total - done)]); // null: until now
	return [life(parts, job.state, job.life.text || `${job.state}, ${span(total / 1000)} in all`), h("span.two", span(total / 1000))];
}
