// Errors, one line per fingerprint: what, where, how many, and what became of the jobs; retry the group.

import {
	bdi, bulkAct, capital, count, draw, empty, errorName, get, go, h, href, many, MOST, only, panel, quiet, relative, remember, repeat, segment,
	skeleton, spark, state, STATES, traceback, two,
} from "../core/kit.js";

const RANGES = [["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"]];

export async function open({ params }) {
	const since = params.get("since") ?? "24h";
	let opened = params.get("open");
	let groups = [];
	let unfolded = false;
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
	const show = (fingerprint) => {
		opened = opened === fingerprint ? null : fingerprint;
		unfolded = false;
		remember({ open: opened });
		read();
	};

	const shares = (title, rows, whole) => rows.length > 0 && h("div", { key: title }, h("div.quiet.small", title),
		rows.map(({ name, count: number }) => h("div", { key: name }, bdi(name), " ",
			quiet(count(number), rows.length === 1 && whole > 1 && ", all of them"))));
	const detail = ({ fingerprint, states, count: whole, ...group }) => {
		const sample = samples.get(fingerprint);
		const filter = `fingerprint:${fingerprint}`;
		const act = (verb, name) => states[name] > 0 && h("button", {
			key: verb, class: verb === "replay" ? "primary" : "", ...only("operator", () => bulkAct(verb, `${filter} state:${name}`, read)),
		}, `${capital(verb)} ${count(states[name])} ${name}…`);
		return h("div.body.stack", { key: `${fingerprint}-more` },
			h("div.row.wrap", h("a.button", { href: href("jobs", { filter }) }, `Show ${count(whole)} jobs`), act("retry", "failed"), act("replay", "dead")),
			sample === undefined ? skeleton(3) : sample?.error && traceback(sample.error, unfolded, () => { unfolded = true; draw(); }),
			h("div.row.wrap.shares", ["Types", "Queues", "Tenants", "Workers"].map((title) => shares(title, group[title.toLowerCase()], whole))));
	};
	const line = (group) => {
		const { fingerprint, type, message, types, states, points, first, last } = group;
		const became = STATES.toReversed().filter((name) => states[name] > 0)
			.map((name) => h("div", { key: name }, state(name, `${count(states[name])} ${name === "succeeded" ? "went on" : name}`)));
		const expanded = opened === fingerprint;
		return [h("div.error", { key: fingerprint, onclick: () => show(fingerprint) },
			h("div", h("button.bare", { "aria-expanded": String(expanded) }, h("strong", bdi(errorName(type))), " ", bdi(message)),
				h("bdi.two", types.map((each) => each.name).join(", "))),
			h("span.wide-only", spark(points, "failures over the range", true)),
			h("strong", many(group.count, "job", group.counted)),
			h("div.small", became),
			h("div.small.second.nowrap", `first ${relative(first)}`, two(`last ${relative(last)}`))),
		expanded && detail(group)];
	};
	return {
		title: "Errors",
		close: stop,
		bar: () => h("span.range", segment("Range", RANGES, since, (value) => go(href("errors", { since: value })))),
		view: () => panel(null, null, groups.length ? h("div.errors", groups.map(line)) : empty("check", "No error in this range", ["Jobs that fail in the same way are one line."])),
	};
}
