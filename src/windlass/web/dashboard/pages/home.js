// Home: one sentence, then figures, then rows. Most visits end after the sentence.

import { ask, bar, bulkAct, copy, count, cross, empty, follow, go, h, href, icon, inWords, jobsOf, lines, mark, moment, only, panel, percent, post, segment, skeleton, span, spark, stacked, table } from "../core/kit.js";

const RANGES = [["15m", "15 min"], ["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"]];
const LEVELS = { bad: ["dead", "dead"], warning: ["failed", "alert"], well: ["succeeded", "succeeded"], idle: ["succeeded", "check"] };
const TROUBLES = { "no worker": ["dead", "alert"], stalled: ["dead", "alert"], errors: ["failed", "failed"], behind: ["failed", "clock"], late: ["dead", "alert"], gate: ["plain", "pause"], budget: ["failed", "hold"] };

const tenth = (value) => String(Math.round(value * 10) / 10);
const whole = (value) => count(Math.round(value), 10000);

/** How a figure is read: its title, its value, its unit, and a difference. */
const FIGURES = {
	due: ["Due now", whole, () => "", whole],
	running: ["Running", whole, (slots) => `of ${count(slots)} slots`, whole],
	ended: ["Ended", tenth, () => "per s", (size, before) => (before ? `${Math.round((100 * size) / before)} %` : tenth(size))],
	errors: ["Error rate", (value) => percent(value, 1), () => "dead of ended", (size) => (size * 100).toFixed(1)],
	wait: ["Wait", span, () => "p95", span],
	run: ["Run", span, () => "p95", span],
};

/** What a button of a finding does: it shows jobs, opens a gate after asking, or copies the command. */
async function doStep(step, finding) {
	const [kind, name] = (finding.name ?? "").split(/:(.*)/s);
	const [, verb, filter] = /^windlass jobs (\w+) ['"]?(.*?)['"]?$/.exec(step.command) ?? [];
	if (step.kind === "show") {
		if (kind === "schedule") go(href("schedules", { name }));
		else go(verb === "list" ? href("jobs", { filter }) : kind ? jobsOf(kind, name) : href("jobs"));
	} else if (step.kind === "change" && finding.trouble === "gate" && kind) {
		await ask({ title: `Open ${name || "everything"} again?`, text: [finding.evidence, "Its jobs start at once."], button: "Open" }, async () => { await post("gates/resume", name ? { kind, name } : { kind: "all" }); }, "Open again.");
	} else if (verb === "replay" || verb === "retry") await bulkAct(verb, filter);
	else copy(step.command, "Command copied");
}

function steps(actions, finding, allows, size) {
	return actions.map((step, n) => h("button", { key: step.label, class: size ?? (n === 0 ? "primary" : ""), title: step.command, onclick: () => doStep(step, finding), ...(step.kind === "change" ? only(allows, "operator", () => doStep(step, finding)) : {}) }, step.kind === "copy" && icon("copy"), step.label));
}

export async function open({ params, draw, allows }) {
	const range = params.get("range") ?? "1h";
	let rows = null;
	const leave = follow("home", { range }, (got) => { rows = Object.fromEntries(got); draw(); });

	const health = () => {
		const { level, sentence, evidence, actions, queues, findings } = rows.health;
		const [tone, shape] = LEVELS[level];
		const worst = queues.find((queue) => queue.trouble);
		const top = { name: worst ? `queue:${worst.queue}` : "", trouble: worst?.trouble, evidence };
		return h("section.panel", { key: "health", "aria-live": "polite" },
			h("div.health", mark(tone, shape, "", false), h("div.grow", h("p.say", h("bdi", sentence)), h("p.second", h("bdi", evidence))), h("div.push.row.wrap", steps(actions.slice(0, 2), top, allows))),
			findings.map((finding) => h("div.finding", { key: finding.trouble + finding.name }, h("span.label", mark(...(TROUBLES[finding.trouble] ?? ["plain", "alert"]), finding.trouble)), h("p.grow", h("strong", h("bdi", finding.sentence)), " ", h("span.second", h("bdi", finding.evidence))), steps(finding.actions.slice(0, 1), finding, allows, "slim"))));
	};

	const figures = () => {
		const troubles = new Set([...rows.health.findings, ...rows.health.queues].map((each) => each.trouble));
		const bad = { due: troubles.has("no worker") || troubles.has("behind"), errors: troubles.has("errors"), wait: troubles.has("behind") };
		return h("section.panel.kpis", { key: "figures", "aria-label": "Figures" }, rows.figures.map(({ name, value, before, points, said }) => {
			const [title, shown, unit, difference] = FIGURES[name];
			const change = value === null || before === null || value === before ? "" : `${value > before ? "↑" : "↓"} ${difference(Math.abs(value - before), before)}`;
			return h("div.kpi", { key: name }, h("div.row", h("span.second", title), h("span.quiet.small.push", change)),
				h("div.value", value === null ? "—" : [shown(value), " ", h("small", unit(rows.slots))]), spark(points, `${title} over the range`, bad[name] && rows.health.level !== "well"), h("div.quiet.small.clip", { title: said }, said));
		}));
	};

	const charts = () => {
		const { steps, range: length } = rows;
		const times = steps.map((step) => moment(step.at).replace(/:\d\d$/, "").slice(-5));
		const total = steps.reduce((sum, step) => sum + step.succeeded + step.failed + step.dead, 0);
		const place = (at) => (new Date(at) - new Date(steps[0]?.at)) / 1000 / length;
		const marks = [...rows.deploys.map(({ at, version }) => ({ part: place(at), kind: "deploy", text: version.slice(0, 7) })), ...rows.gates.map(({ at, said }) => ({ part: place(at), kind: "gate", text: said.slice(0, 24) }))];
		const said = (n) => {
			const step = steps[n];
			return `${moment(step.at)}: ${count(step.succeeded)} succeeded, ${count(step.failed)} failed, ${count(step.dead)} dead${step.wait_p95 === null ? "" : `; waited p50 ${span(step.wait_p50)}, p95 ${span(step.wait_p95)}`}`;
		};
		const legend = (names, kind) => h(`span.legend.${kind}`, Object.entries(names).map(([name, text]) => h(`span.${name}.s-${name}`, { key: name }, h("i"), text)));
		const waits = ["wait_p95", "wait_p50"].map((name, n) => ({ tone: n ? "ink" : "dead", points: steps.map((step) => step[name]) }));
		return h("div.two-charts", { key: "charts", onpointermove: (event) => cross(event, steps.length, said), onpointerleave: (event) => cross(event, 0) },
			panel("Ended", `per ${span(rows.step)}`, h("div.body", total ? stacked(steps, times, `${count(total)} attempts ended in the range`, marks) : empty("clock", "Nothing ended in this range")), { side: legend({ succeeded: "succeeded", failed: "failed, retries", dead: "dead" }, "bars") }),
			panel("Wait before start", null, h("div.body", steps.some((step) => step.wait_p95 !== null) ? lines(waits, times, "p95 and p50 of the wait", marks) : empty("clock", "Nothing started in this range")), { side: legend({ dead: "p95", ink: "p50" }, "lines") }));
	};

	const gate = (queue) => {
		if (TROUBLES[queue.trouble] && queue.trouble !== "gate") return mark(...TROUBLES[queue.trouble], queue.trouble);
		return queue.gate === "open" ? mark("plain", "check", "open", false) : mark("plain", "pause", queue.gate);
	};
	const line = (queue) => [queue.queue,
		h("a.name", { href: jobsOf("queue", queue.queue) }, h("bdi", queue.queue)),
		gate(queue),
		h("strong", count(queue.due, queue.counted)),
		queue.points.length > 1 && h("div.depth", spark(queue.points, `depth of ${queue.queue}`, Boolean(queue.trouble))),
		h("span.row.nowrap", bar(queue.running, queue.slots), h("span.quiet.small", queue.slots ? `${count(queue.running)} of ${count(queue.slots)}` : "no slots")),
		tenth(queue.per_second), span(queue.oldest), span(queue.wait_p95),
		queue.dead_share === null ? "—" : percent(queue.dead_share, 1),
		h("span.nowrap", { class: queue.empties === "never" ? "bad" : "" }, queue.empties)];
	const queues = () => panel("Queues", "worst first", rows.queues.length ? table(["Queue", "Gate", ">Due", "~Depth", "~Running", ">~Per s", ">Oldest due", ">~p95 wait", ">~Dead", ">Empty in"], rows.queues.map(line)) : empty("stack", "No queue yet", ["Enqueue a job from your program, or with the button on the page of jobs."]), { key: "queues" });

	const changes = () => panel("What changed", null, rows.changes.length ? h("ul.body.changes", rows.changes.map((row) => h("li.row", { key: row.number }, icon("book"), h("div.grow", h("div", h("bdi", inWords(row.action) + (row.subject ? `: ${row.subject}` : ""))), h("div.quiet.small", h("bdi", [row.actor, row.reason].filter(Boolean).join(": ")))), h("span.quiet.small.nowrap", moment(row.at))))) : h("p.body.quiet", "No operator has changed anything."), { side: h("a", { href: href("audit") }, "Audit"), key: "changes" });

	return {
		title: "Home",
		close: leave,
		bar: () => h("span.range", segment("Range", RANGES, range, (value) => go(href("home", { range: value })))),
		view: () => (rows?.health ? [health(), figures(), charts(), h("div.with-side", { key: "rows" }, queues(), changes())] : h("section.panel", skeleton())),
	};
}
