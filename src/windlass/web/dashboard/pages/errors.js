// Errors, one line per fingerprint: what, where, how many, and what became of the jobs; retry the group.

import { bulkAct, capital, count, empty, get, go, h, href, many, MOST, only, panel, relative, remember, repeat, segment, skeleton, spark, state } from "../core/kit.js";

const RANGES = [["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"]];

export async function open({ params, draw, allows }) {
	const since = params.get("since") ?? "24h";
	let opened = params.get("open");
	let groups = [];
	const samples = new Map();
	const read = async () => {
		groups = (await get("errors", { since })).errors;
		draw();
		const group = groups.find((each) => each.fingerprint === opened);
		if (!group || samples.has(opened)) return;
		samples.set(opened, await get(`jobs/${group.newest}`, { largest: MOST }).catch(() => null));
		draw();
	};
	await read();
	const stop = repeat(read, 10000);
	const show = ({ fingerprint }) => {
		opened = opened === fingerprint ? null : fingerprint;
		remember({ open: opened });
		read();
	};
	const shares = (title, rows, whole) => rows.length > 0 && h("div", { key: title }, h("div.quiet.small", title), rows.map((row) => h("div", { key: row.name }, h("bdi", row.name), " ", h("span.quiet", `${count(row.count)}${rows.length === 1 && whole > 1 ? ", all of them" : ""}`))));
	const detail = (group) => {
		const sample = samples.get(group.fingerprint);
		const filter = `fingerprint:${group.fingerprint}`;
		const act = (verb, name) => group.states[name] > 0 && h("button", { key: verb, class: verb === "replay" ? "primary" : "", ...only(allows, "operator", () => bulkAct(verb, `${filter} state:${name}`, read)) }, `${capital(verb)} ${count(group.states[name])} ${name}…`);
		return h("div.body.stack",
			h("div.row.wrap", h("a.button", { href: href("jobs", { filter }) }, `Show ${count(group.count)} jobs`), act("retry", "failed"), act("replay", "dead")),
			sample === undefined ? skeleton(3) : sample?.error?.traceback && h("div.traceback", h("pre.small", sample.error.traceback)),
			h("div.row.wrap.shares", ["Types", "Queues", "Tenants", "Workers"].map((title) => shares(title, group[title.toLowerCase()], group.count))));
	};
	const became = (group) => ["dead", "failed", "succeeded"].filter((name) => group.states[name] > 0).map((name) => h("span", { key: name }, state(name, `${count(group.states[name])} ${name === "succeeded" ? "went on" : name}`)));
	const view = (group) => h("section.panel", { key: group.fingerprint },
		h("header.opens", () => show(group),
			h("div.grow", h("button.plain.text", { "aria-expanded": String(opened === group.fingerprint) }, h("span", h("strong", h("bdi", group.type)), " ", h("bdi", group.message))),
				h("div.quiet.small", h("bdi", group.types.map((each) => each.name).join(", ")), ` · first ${relative(group.first)}, last ${relative(group.last)}`)),
			h("span.wide-only.course", spark(group.points, "failures over the range", true)),
			h("strong", many(group.count, "job", group.counted)),
			h("span.row.wrap.small", became(group))),
		opened === group.fingerprint && detail(group));
	return {
		title: "Errors",
		close: stop,
		bar: () => segment("Range", RANGES, since, (value) => go(href("errors", { since: value }))),
		view: () => (groups.length ? groups.map(view) : panel(null, null, empty("check", "No error in this range", ["A job that fails appears here with the others that fail in the same way."]))),
	};
}
