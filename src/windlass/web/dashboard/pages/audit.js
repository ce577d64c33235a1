// The audit: how jobs ended, and who changed what, newest first.

import { bdi, capital, draw, empty, form, get, go, h, href, inWords, jobHref, moment, named, panel, quiet, relative, table, two } from "../core/kit.js";

const FIELDS = { action: "JOB_DEAD", actor: "ann", tenant: "acme", job: "id" };

export async function open({ params }) {
	const chosen = Object.fromEntries(Object.keys(FIELDS).map((name) => [name, params.get(name) ?? ""]));
	const read = (below) => get("audit", { ...chosen, count: 50, below });
	let page = await read();
	let rows = page.audit;
	const older = async () => {
		page = await read(page.next);
		rows = [...rows, ...page.audit];
		draw();
	};
	const search = ({ target }) => go(href("audit", Object.fromEntries(new FormData(target))));
	const field = ([name, placeholder]) =>
		h("label.field", { key: name }, capital(name), h("input", { type: "text", name, value: chosen[name], placeholder }));
	const line = ({ number, at, action, job, type, queue, subject, actor, reason }) => [number,
		[h("time.nowrap", { datetime: at, title: at }, relative(at)), two(moment(at))],
		inWords(action),
		job ? [named(jobHref(job), type ?? job), h("bdi.two", queue)] : bdi(subject),
		actor ? h("a", { href: href("audit", { actor }) }, bdi(actor)) : quiet("the engine"),
		h("bdi.second", reason)];
	const list = () => [table(["When", "What", "Subject", "Actor", "Reason"], rows.map(line), "cards"),
		page.next && h("footer", h("button.slim", older, "Older"))];
	return {
		title: "Audit",
		view: () => [
			h("div.search", form(search, h("div.row.wrap", Object.entries(FIELDS).map(field), h("button", { type: "submit" }, "Search")))),
			panel(null, null, rows.length ? list() : empty("book", "Nothing is in the audit", ["What operators do, and how jobs end, is written here."])),
		],
	};
}
