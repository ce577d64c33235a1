// Schedules in plain words: when they fire next, what became of the last ticks; run now, pause.

import {
	allows, ask, bdi, byWhom, commandButton, countdown, draw, empty, fireNow, get, h, icon, jobHref, json, mark, moment, notice, operate, panel,
	post, quiet, REASON, reasonOf, relative, remember, repeat, say, shortId, span, table, tickLine, two,
} from "../core/kit.js";

const SAMPLE = 'app.schedule("nightly", report.call(), cron="0 3 * * *", tz="Europe/Berlin")';
const OUTCOMES = {
	fired: ["succeeded", "check"], skipped: ["queued", "cancelled"], missed: ["dead", "alert"], "by hand": ["running", "play"],
};
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const HEADS = ["Schedule", "When", "24 h ago, now, in 24 h", "Next", "~Last", "State", ""];

const worse = (a, b) => (b.late ?? 0) - (a.late ?? 0) || ((a.next[0] ?? "9") < (b.next[0] ?? "9") ? -1 : 1);

function stateMark({ paused, late, next }) {
	if (paused) return mark("plain", "pause", "paused");
	if (late) return mark("dead", "alert", `late ${span(late)}`);
	return next.length ? mark("plain", "check", "on", false) : mark("plain", "cancelled", "over");
}

const jobLink = (id, text) => h("a", { href: jobHref(id) }, text);

export async function open({ params }) {
	let rows = [];
	let opened = params.get("name");
	let ticks = [];
	const read = async () => {
		rows = (await get("schedules", { ticks: true })).schedules.sort(worse);
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
	const change = async (path, { name }, more) => {
		const answer = await post(`schedules/${path}`, { name, ...more });
		read();
		return answer;
	};
	const pause = (row) => ask(
		{ title: `Pause ${row.name}?`, text: ["No tick fires until it is resumed. A deploy does not resume it."], fields: [REASON], button: "Pause" },
		(typed) => change("pause", row, reasonOf(typed)), `${row.name} is paused.`);
	const resume = async (row) => {
		await change("resume", row);
		say(`${row.name} goes on with its next tick.`);
	};
	const fire = async ({ name, type }) => (await fireNow(name, `It enqueues ${type}. Its ticks do not change.`)) && read();
	const edit = (row) => ask({
		title: `Edit ${row.name}`, text: ["This overrides what the program declares, until it is reset."], button: "Save",
		fields: [["cron", "Cron expression", row.cron], ["queue", "Queue", row.queue]],
	}, (typed) => change("edit", row, Object.fromEntries(Object.entries(typed).filter(([name, value]) => value && value !== row[name]))), "Saved.");

	const tickRow = (tick) => [tick.at + tick.noted_at, moment(tick.at),
		mark(...(OUTCOMES[tick.outcome] ?? ["queued", "queued"]), tick.outcome, false),
		tick.job ? jobLink(tick.job, shortId(tick.job)) : quiet(tick.reason)];
	const part = (title, ...shown) => h("div", h("h2", title), shown);
	const detail = (row) => h("tr", { key: `${row.name}-more` }, h("td.full", { colspan: HEADS.length }, h("div.with-side",
		h("div.stack",
			part(`Next five, in ${ZONE}`, row.next.slice(0, 5).map((at) => h("p", { key: at }, moment(at), " ", quiet(countdown(at))))),
			part("Last ticks", ticks.length ? table(["", "", ""], ticks.map(tickRow)) : h("p.quiet", "None yet."))),
		h("div.stack",
			part("Input", json(row.input)),
			row.edited.length > 0 && h("p", h("strong", `Edited by ${row.edited_by}: `), row.edited.join(", "), " ",
				operate("Undo edits", () => change("reset", row))),
			allows("operator") && h("div", operate([icon("pen"), "Edit…"], () => edit(row)))))));
	const line = (row) => h("tr.hoverable", { key: row.name },
		h("td", h("button.plain.slim.text", { "aria-expanded": String(opened === row.name), onclick: () => show(row) }, h("bdi.strong.nowrap", row.name)),
			h("bdi.two", row.type)),
		h("td", bdi(row.when)),
		h("td.full", tickLine(row.ticks, row.coming)),
		h("td.nowrap", row.paused || !row.next.length ? "—" : [countdown(row.next[0]), two(moment(row.next[0]))]),
		h("td.wide-only.nowrap", row.last_at
			? [row.last_job ? jobLink(row.last_job, relative(row.last_at)) : relative(row.last_at), two(moment(row.last_at))]
			: "—"),
		h("td", stateMark(row), row.paused && h("bdi.two", byWhom(row.paused_by, row.reason))),
		h("td.right", h("span.row.end", operate("Run now…", () => fire(row)),
			row.paused ? operate("Resume", () => resume(row)) : operate("Pause…", () => pause(row)))));

	const lateNotice = ([first, ...others]) => first && notice("late", mark("dead", "alert", "", false),
		`${first.name} is ${span(first.late)} late.`, others.length > 0 && `${others.length} more are late, too.`);
	const list = () => [
		lateNotice(rows.filter((row) => row.late && !row.paused)),
		h("section.panel", table(HEADS, rows.flatMap((row) => [line(row), opened === row.name && detail(row)]), "cards schedules"),
			h("footer.wide-only", "a bar fired, a diamond was skipped or missed, a ring is to come"))];
	return { title: "Schedules", close: stop, view: () => (rows.length ? list() : panel(null, null, empty("clock", "No schedule is declared", [h("code", SAMPLE)],
		[commandButton(SAMPLE, "Copy Python", { class: "primary" })]))) };
}
