// Schedules in plain words: when they fire next, what became of the last ticks; run now, pause.

import { ask, copy, countdown, empty, get, h, icon, jobHref, json, mark, moment, only, panel, post, REASON, reasonOf, relative, remember, repeat, say, shortId, span, table, tickLine } from "../core/kit.js";

const SAMPLE = 'app.schedule("nightly", report.call(), cron="0 3 * * *", tz="Europe/Berlin")';
const OUTCOMES = { fired: ["succeeded", "check"], skipped: ["queued", "cancelled"], missed: ["dead", "alert"], "by hand": ["running", "play"] };
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

export async function open({ params, draw, allows }) {
	let rows = [];
	let opened = params.get("name");
	let ticks = [];
	const read = async () => {
		rows = (await get("schedules", { ticks: true })).schedules.sort((a, b) => (b.late ?? 0) - (a.late ?? 0) || ((a.next[0] ?? "9") < (b.next[0] ?? "9") ? -1 : 1));
		if (opened) ticks = (await get("schedules/ticks", { name: opened, count: 10 }).catch(() => ({ ticks: [] }))).ticks;
		draw();
	};
	await read();
	const stop = repeat(read, 5000);

	const show = ({ name }) => {
		opened = opened === name ? null : name;
		ticks = [];
		remember({ name: opened });
		read();
	};
	const change = async (path, row, more, said) => {
		await post(`schedules/${path}`, { name: row.name, ...more });
		read();
		return said;
	};
	const pause = (row) => ask({ title: `Pause ${row.name}?`, text: ["No tick fires until it is resumed. A deploy does not resume it."], fields: [REASON], button: "Pause" }, (typed) => change("pause", row, reasonOf(typed), `${row.name} is paused.`));
	const resume = async (row) => say(await change("resume", row, {}, `${row.name} goes on with its next tick.`));
	const fire = (row) => ask({ title: `Run ${row.name} now?`, text: [`It enqueues ${row.type}. Its ticks do not change.`], button: "Run now" }, async () => {
		const made = await post("schedules/fire", { name: row.name });
		read();
		return made.existing ? "Its job is there already." : "Enqueued.";
	});
	const edit = (row) => ask({ title: `Edit ${row.name}`, text: ["This overrides what the program declares, until it is reset."], fields: [["cron", "Cron expression", row.cron], ["queue", "Queue", row.queue]], button: "Save" }, (typed) =>
		change("edit", row, Object.fromEntries(Object.entries(typed).filter(([name, value]) => value && value !== row[name])), "Saved."));

	const stateMark = (row) => {
		if (row.paused) return mark("plain", "pause", "paused");
		if (row.late) return mark("dead", "alert", `late ${span(row.late)}`);
		return row.next.length ? mark("plain", "check", "on", false) : mark("plain", "cancelled", "over");
	};
	const tickRow = (tick) => [tick.at + tick.noted_at, moment(tick.at), mark(...(OUTCOMES[tick.outcome] ?? ["queued", "queued"]), tick.outcome, false), tick.job ? h("a", { href: jobHref(tick.job) }, shortId(tick.job)) : h("span.quiet", tick.reason)];
	const detail = (row) => h("tr", { key: `${row.name}-more` }, h("td.full", { colspan: 7 }, h("div.with-side",
		h("div.stack", h("div", h("h2", `Next five, in ${ZONE}`), row.next.slice(0, 5).map((at) => h("p", { key: at }, moment(at), " ", h("span.quiet", countdown(at))))),
			h("div", h("h2", "Last ticks"), ticks.length ? table(["", "", ""], ticks.map(tickRow)) : h("p.quiet", "None yet."))),
		h("div.stack", h("div", h("h2", "Input"), json(row.input)),
			row.edited.length > 0 && h("p", h("strong", `Edited by ${row.edited_by}: `), row.edited.join(", "), " ", allows("operator") && h("button.slim", () => change("reset", row), "Undo edits")),
			allows("operator") && h("div", h("button.slim", () => edit(row), icon("pen"), "Edit…"))))));
	const line = (row) => h("tr.hoverable", { key: row.name },
		h("td", h("button.plain.slim.text", { "aria-expanded": String(opened === row.name), onclick: () => show(row) }, h("bdi.strong", row.name)), h("bdi.two", row.type)),
		h("td", h("bdi", row.when), h("span.two", row.tz ?? "")),
		h("td.full", tickLine(row.ticks, row.coming)),
		h("td.nowrap", row.paused || !row.next.length ? "—" : [countdown(row.next[0]), h("span.two", moment(row.next[0]))]),
		h("td.wide-only", row.last_at ? [row.last_job ? h("a", { href: jobHref(row.last_job) }, relative(row.last_at)) : relative(row.last_at), h("span.two", moment(row.last_at))] : "—"),
		h("td", stateMark(row), row.paused && h("bdi.two", `${row.paused_by ?? ""}${row.reason ? `: “${row.reason}”` : ""}`)),
		h("td.right", h("span.row.end", h("button.slim", only(allows, "operator", () => fire(row)), "Run now…"), h("button.slim", only(allows, "operator", () => (row.paused ? resume : pause)(row)), row.paused ? "Resume" : "Pause…"))));

	return {
		title: "Schedules",
		close: stop,
		view: () => {
			if (!rows.length) return panel(null, null, empty("clock", "No schedule is declared", [h("code", SAMPLE)], [h("button.primary", () => copy(SAMPLE, "Python copied"), "Copy Python")]));
			const late = rows.filter((row) => row.late && !row.paused);
			return [
				late.length > 0 && h("div.notice", { key: "late" }, mark("dead", "alert", "", false), h("strong", `${late[0].name} is ${span(late[0].late)} late.`), late.length > 1 && h("span.second", `${late.length - 1} more are late, too.`)),
				h("section.panel", table(["Schedule", "When", "24 h ago, now, in 24 h", "Next", "~Last", "State", ""], rows.flatMap((row) => [line(row), opened === row.name && detail(row)]), "cards schedules"),
					h("footer.wide-only", "a bar fired, a diamond was skipped or missed, a ring is to come")),
			];
		},
	};
}
