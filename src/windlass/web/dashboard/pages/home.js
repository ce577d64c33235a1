// Home: one sentence, then figures, then rows. Most visits end after the sentence.

import {
	bar, bdi, bulkAct, copy, count, cross, draw, empty, fireNow, follow, go, h, href, icon, inWords, jobsOf, lines, mark, moment, named, only,
	openGate, panel, percent, segment, skeleton, small, span, spark, stacked, table, tenth,
} from "../core/kit.js";

const RANGES = [["15m", "15 min"], ["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"]];
const LEVELS = {
	bad: ["dead", "dead"], warning: ["failed", "alert"], well: ["succeeded", "succeeded"], idle: ["succeeded", "check"],
};
const TROUBLES = {
	"no worker": ["dead", "alert"], stalled: ["dead", "alert"], errors: ["failed", "failed"], behind: ["failed", "clock"],
	late: ["dead", "alert"], gate: ["plain", "pause"], budget: ["failed", "hold"],
};

const whole = (value) => count(Math.round(value), 10000);

/** How a figure is read: its title, its value, its unit, and a difference. */
const FIGURES = {
	due: ["Due now", whole, () => "", whole],
	running: ["Running", whole, (slots) => `of ${count(slots)} slots`, whole],
	ended: ["Ended", tenth, () => "per s", (size, before) => (before ? `${Math.round((100 * size) / before)} %` : tenth(size))],
	errors: ["Error rate", (value) => percent(value, 1), () => "of ended", (size) => (size * 100).toFixed(1)],
	wait: ["Wait", span, () => "p95", span],
	run: ["Run", span, () => "p95", span],
};

/** A command of a shell without its quotes. */
const plain = (command) => command.split(`'"'"'`).map((part) => part.replaceAll("'", "")).join("'");

/** What a button of a finding does, by its command: it shows, asks and does it, or copies the command. */
async function doStep({ command }, evidence) {
	const [, verb, rest] = /^windlass (\w+ ?\w*) ?(.*)$/s.exec(plain(command)) ?? [];
	const [, kind, name] = /^--(\w+) ?(.*)$/s.exec(rest) ?? [];
	if (verb === "jobs list") go(href("jobs", { filter: rest }));
	else if (verb === "jobs replay") await bulkAct("replay", rest);
	else if (verb === "gates resume") await openGate(name ? { kind, name } : { kind }, evidence);
	else if (verb === "schedules fire") await fireNow(rest, evidence);
	else if (verb === "budgets set") go(href("tenants"));
	else if (verb === "doctor") go(href("workers"));
	else copy(command, "Command copied");
}

function steps(actions, evidence, size) {
	return actions.map((step, n) => {
		const does = () => doStep(step, evidence);
		const props = step.kind === "change" ? only("operator", does) : { onclick: does };
		const key = { key: step.label, class: size ?? (n === 0 ? "primary" : ""), title: step.command };
		return h("button", { ...key, ...props }, step.kind === "copy" && icon("copy"), step.label);
	});
}

export async function open({ params }) {
	const range = params.get("range") ?? "1h";
	let rows = null;
	const leave = follow("home", { range }, (got) => { rows = Object.fromEntries(got); draw(); });

	const finding = (found) => {
		const { trouble, name, sentence, evidence, actions } = found;
		return h("div.finding", { key: trouble + name },
			h("span.label", mark(...(TROUBLES[trouble] ?? ["plain", "alert"]), trouble)),
			h("p.grow", h("strong", bdi(sentence)), " ", h("span.second", bdi(evidence))), steps(actions.slice(0, 1), evidence, "slim"));
	};
	const health = () => {
		const { level, sentence, evidence, actions, findings } = rows.health;
		return h("section.panel", { key: "health", "aria-live": "polite" },
			h("div.health", mark(...LEVELS[level], "", false), h("div.grow", h("p.say", bdi(sentence)), h("p.second", bdi(evidence))),
				h("div.push.row.wrap", steps(actions.slice(0, 2), evidence))),
			findings.map(finding));
	};

	const figures = () => {
		const { sentence, findings, queues } = rows.health;
		const has = (...names) => [...findings, ...queues].some(({ trouble }) => names.includes(trouble));
		const bad = { due: has("behind", "no worker"), errors: has("errors") || / dies\b/.test(sentence), wait: has("behind") };
		const figure = ({ name, value, before, points, said }) => {
			const [title, shown, unit, difference] = FIGURES[name];
			const same = value === null || before === null || value === before;
			const change = same ? "" : `${value > before ? "↑" : "↓"} ${difference(Math.abs(value - before), before)}`;
			return h("div.kpi", { key: name },
				h("div.row", h("span.second", title), h("span.quiet.small.push", change)),
				h("div.value", value === null ? "—" : [shown(value), " ", h("small", unit(rows.slots))]),
				spark(points, `${title} over the range`, bad[name]), h("div.quiet.small", said));
		};
		return h("section.panel.kpis", { key: "figures", label: "Figures" }, rows.figures.map(figure));
	};

	const charts = () => {
		const { steps, range: length } = rows;
		const times = steps.map((step) => moment(step.at).replace(/:\d\d$/, "").slice(-5));
		const total = steps.reduce((sum, step) => sum + step.succeeded + step.failed + step.dead, 0);
		const marking = (kind, at, text) => ({ part: (new Date(at) - new Date(steps[0]?.at)) / 1000 / length, kind, text });
		const marks = [
			...rows.deploys.map(({ at, version }) => marking("deploy", at, version.slice(0, 7))),
			...rows.gates.map(({ at, said }) => marking("gate", at, said.slice(0, 24)))];
		const said = (n) => {
			const { at, succeeded, failed, dead, wait_p50: p50, wait_p95: p95 } = steps[n];
			const waited = p95 === null ? "" : `; waited p50 ${span(p50)}, p95 ${span(p95)}`;
			return `${moment(at)}: ${count(succeeded)} succeeded, ${count(failed)} failed, ${count(dead)} dead${waited}`;
		};
		const legend = (names, kind) => h(`span.legend.${kind}`,
			Object.entries(names).map(([name, text]) => h(`span.${name}.s-${name}`, { key: name }, h("i"), text)));
		const line = (tone, name) => ({ tone, points: steps.map((step) => step[name]) });
		const waited = steps.some((step) => step.wait_p95 !== null);
		return h("div.two-charts", { key: "charts",
			onpointermove: (event) => cross(event, steps.length, said), onpointerleave: (event) => cross(event, 0) },
		panel("Ended", `per ${span(rows.step)}`, h("div.body", total
			? stacked(steps, times, `${count(total)} attempts ended in the range`, marks)
			: empty("clock", "Nothing ended")),
		{ side: legend({ succeeded: "succeeded", failed: "failed, retries", dead: "dead" }, "bars") }),
		panel("Wait before start", null, h("div.body", waited
			? lines([line("dead", "wait_p95"), line("ink", "wait_p50")], times, "p95 and p50 of the wait", marks)
			: empty("clock", "Nothing started")), { side: legend({ dead: "p95", ink: "p50" }, "lines") }));
	};

	const gate = ({ trouble, gate }) => {
		if (TROUBLES[trouble] && trouble !== "gate") return mark(...TROUBLES[trouble], trouble);
		return gate === "open" ? mark("plain", "check", "open", false) : mark("plain", "pause", gate);
	};
	const line = (queue) => [queue.queue,
		named(jobsOf("queue", queue.queue), queue.queue),
		gate(queue),
		h("strong", count(queue.due, queue.counted)),
		queue.points.length > 1 && h("div.depth", spark(queue.points, `depth of ${queue.queue}`, Boolean(queue.trouble))),
		h("span.row.nowrap", bar(queue.running, queue.slots), small(queue.slots ? `${count(queue.running)} of ${count(queue.slots)}` : "no slots")),
		tenth(queue.per_second), span(queue.oldest), span(queue.wait_p95),
		queue.dead_share === null ? "—" : percent(queue.dead_share, 1),
		h("span.nowrap", { class: queue.empties === "never" ? "bad" : "" }, queue.empties)];
	const heads = ["Queue", "Gate", ">Due", "~Depth", "~Running", ">~Per s", ">Oldest due", ">~p95 wait", ">~Dead", ">Empty in"];
	const queues = () =>
		panel("Queues", "worst first", rows.queues.length ? table(heads, rows.queues.map(line), "dense") : empty("stack", "No queue yet", ["Enqueue a job from your program."]), { key: "queues" });

	const change = ({ number, at, action, subject, actor, reason }) => h("li.row", { key: number }, icon("book"),
		h("div.grow", h("div", bdi(inWords(action) + (subject ? `: ${subject}` : ""))),
			h("div.quiet.small", bdi([actor, reason].filter(Boolean).join(": ")))), h("span.quiet.small.nowrap", moment(at)));
	const changes = () => panel("What changed", null,
		rows.changes.length ? h("ul.body.changes", rows.changes.map(change)) : h("p.body.quiet", "No operator changed anything."),
		{ side: h("a", { href: href("audit") }, "Audit"), key: "changes" });

	const ranges = () => h("span.range", segment("Range", RANGES, range, (value) => go(href("home", { range: value }))));
	const all = () => [health(), figures(), charts(), h("div.with-side.rows", { key: "rows" }, queues(), changes())];
	return { title: "Home", close: leave, bar: ranges, view: () => (rows?.health ? all() : h("section.panel", skeleton())) };
}
