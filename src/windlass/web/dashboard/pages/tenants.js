// Tenants and budgets: weights, what waits, what it cost, and how much is left.

import {
	allows, ask, bar, cents, count, del, draw, dueCell, empty, get, h, jobsOf, mark, moment, named, operate, panel, put, repeat, span, table,
	two,
} from "../core/kit.js";

export async function open() {
	let tenants = [];
	let budgets = [];
	const read = async () => {
		[{ tenants }, { budgets }] = await Promise.all([get("tenants"), get("budgets")]);
		draw();
	};
	await read();
	const stop = repeat(read, 5000);
	const change = async (question, send, said) => (await ask(question, send, said)) && read();
	const weigh = ({ tenant, weight }) => change({
		title: `Weight of ${tenant}`, text: ["A tenant of weight 2 gets twice the share of one of weight 1 where both wait."],
		fields: [["weight", "Weight", String(weight)]], button: "Set",
	}, (typed) => put("tenants/weight", { tenant, weight: Number(typed.weight) }), "Set.");
	const budget = (row) => change({
		title: row ? `Budget of ${row.name}` : "Set a budget", text: ["When it is spent, jobs wait for the next window."], button: "Set",
		fields: [...(row ? [] : [["name", "Tenant"]]), ["cents", "Cents", String(row?.cents ?? "")],
			["per", "Per", "day", ["hour", "day", "week", "month"]]],
	}, ({ name, cents, per }) => put("budgets", { kind: row?.kind ?? "tenant", name: row?.name ?? name, cents: Number(cents), per }), "Set.");
	const drop = ({ kind, name }) => change({
		title: `Remove the budget of ${name}?`, text: ["Its jobs are no longer held by their cost."], button: "Remove", danger: true,
	}, () => del("budgets", { kind, name }), "Removed.");
	const button = (label, does) => operate(label, does, "admin");

	const tenantLine = (row) => [row.tenant, named(jobsOf("tenant", row.tenant), row.tenant), String(row.weight), dueCell(row),
		count(row.running, row.counted), count(row.parked, row.counted), span(row.lag), row.cents ? cents(row.cents) : "—",
		button("Weight…", () => weigh(row))];
	const budgetLine = (row) => [row.kind + row.name,
		[h("bdi.strong", row.name), two(row.kind)],
		[bar(row.spent, row.cents || 1, row.open ? "queued" : "failed"), two(`${cents(row.spent)} of ${count(row.cents)}`)],
		row.open ? mark("plain", "check", `${cents(row.left)} left`, false) : mark("failed", "hold", `spent, opens ${moment(row.until)}`),
		h("span.row.end", button("Change…", () => budget(row)), button("Remove…", () => drop(row)))];
	const heads = ["Tenant", ">Weight", ">Due", ">Running", ">~Parked", ">Oldest due", ">Cost, 24 h", ">"];

	return {
		title: "Tenants, budgets",
		close: stop,
		bar: () => allows("admin") && h("button", () => budget(), "Set a budget…"),
		view: () => [
			panel("Tenants", "of the last 24 hours",
				tenants.length ? table(heads, tenants.map(tenantLine), "cards") : empty("people", "No tenant has a job")),
			panel("Budgets", null, budgets.length ? table(["Budget", "Spent", "Left", ">"], budgets.map(budgetLine), "cards") : empty("people", "No budget is set", ["A budget says what a tenant or a queue may cost per day."])),
		],
	};
}
