// The audit: how jobs ended, and who changed what, newest first.

import { empty, get, go, h, href, inWords, jobHref, moment, panel, relative, table } from "../core/kit.js";

const FIELDS = { action: "JOB_DEAD", actor: "ann", tenant: "acme", job: "id" };

export async function open({ params, draw }) {
	const chosen = Object.fromEntries(Object.keys(FIELDS).map((name) => [name, params.get(name) ?? ""]));
	const read = (below) => get("audit", { ...chosen, count: 50, below });
	let page = await read();
	let rows = page.audit;
	const older = async () => {
		page = await read(page.next);
		rows = [...rows, ...page.audit];
		draw();
	};
	const search = (event) => {
		event.preventDefault();
		go(href("audit", Object.fromEntries(new FormData(event.target))));
	};
	const line = (row) => [row.number,
		[h("time.nowrap", { datetime: row.at, title: row.at }, relative(row.at)), h("span.two", moment(row.at))],
		inWords(row.action),
		row.job ? [h("a.name", { href: jobHref(row.job) }, h("bdi", row.type ?? row.job)), h("bdi.two", row.queue)] : h("bdi", row.subject),
		row.actor ? h("a", { href: href("audit", { actor: row.actor }) }, h("bdi", row.actor)) : h("span.quiet", "the engine"),
		h("bdi.second", row.reason)];
	return {
		title: "Audit",
		view: () => [
			h("form.row.wrap.search", { onsubmit: search }, Object.entries(FIELDS).map(([name, placeholder]) => h("label.field", { key: name }, name, h("input", { type: "text", name, value: chosen[name], placeholder }))), h("button", { type: "submit" }, "Search")),
			panel(null, null, rows.length ? [table(["When", "What", "Subject", "Actor", "Reason"], rows.map(line)), page.next && h("footer", h("button.slim", older, "Older"))] : empty("book", "Nothing is in the audit", ["What operators do, and how jobs end, is written here."])),
		],
	};
}
