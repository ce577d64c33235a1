// Queues and phases: what waits, what keeps it, who works on it; gates, limits, tenants.

import {
	ago, allows, ask, bar, bdi, byWhom, capital, commandButton, count, draw, dueCell, empty, get, h, icon, jobHref, jobsOf, many, mark, named,
	openGate, operate, panel, percent, post, quiet, REASON, reasonOf, relative, remember, repeat, rowsOf, shared, shell, shortId, span, table, tell, tenth, two,
} from "../core/kit.js";

const EVERY = 5000;
const PROCESSORS = { idle: ["queued", "queued"], busy: ["running", "running"], error: ["dead", "dead"] };
const OPEN = "open";

function gateMark(row, gate) {
	if (row.gate === OPEN) return !row.workers && row.due ? mark("dead", "alert", "no worker") : mark("plain", "check", OPEN, false);
	const shape = row.gate === "draining" ? "drain" : "pause";
	return [mark("plain", shape, `${row.gate}${gate ? ` ${ago(gate.since)}` : ""}`), gate && h("bdi.two", byWhom(gate.actor, gate.reason))];
}

export function processorTable(processors, more = () => null) {
	const line = (each) => [`${each.worker}${each.name}`,
		[bdi(each.short ?? each.name, { title: each.name }), more(each)],
		mark(...PROCESSORS[each.state], each.state, false),
		each.job && h("a.clip", { href: jobHref(each.job) }, each.short ? h("code", shortId(each.job)) : bdi(each.type ?? shortId(each.job))),
		each.since && each.state !== "idle" && quiet(ago(each.since))];
	return processors.length > 0 && table(["", "", "", ">"], processors.map(line), "processors");
}

/** Who works on a phase: each processor of the workers that live. */
function processorsOf({ phase }, workers) {
	return workers.flatMap(({ name: worker, processors = [] }) => processors.filter((each) => each.phase === phase)
		.map((each) => ({ ...each, worker, short: (each.name ?? "").replace(/^.*-(processor-\d+)$/, "$1") })));
}

function phaseCard(phase, workers) {
	const { busy = 0, idle = 0, error = 0 } = phase;
	const processors = processorsOf(phase, workers);
	const crowd = processors.length > 20;
	const longest = (a, b) => (a.since < b.since ? -1 : 1);
	const shown = crowd ? processors.filter((each) => each.state !== "idle").sort(longest).slice(0, 10) : processors;
	const dot = ({ worker, name, state }) => h(`span.${state}.s-${PROCESSORS[state][0]}`, { key: worker + name, title: `${name} ${state}` });
	return h("section.panel.phase", { key: phase.pipeline + phase.phase },
		h("div.body",
			h("div.row", h("strong", bdi(phase.phase)), phase.queue && h("span.quiet.small.push", "queue ", bdi(phase.queue))),
			h("p.small", h("strong", count(phase.due, 10000)), " due · ", h("strong", tenth(phase.per_minute)),
				" per min · p95 ", h("strong", span(phase.run_p95)),
				phase.error_rate > 0 && [" · ", h("span.bad", `${percent(phase.error_rate, 1)} die`)]),
			h("p.small.quiet", `${percent(phase.success_rate, 1)} of ${many(phase.succeeded + phase.failed + phase.dead, "attempt")} succeeded · `,
				`${count(phase.retries)} retried · ${count(phase.dead)} dead · ${count(phase.in_memory)} in memory`),
			h("div.row", bar(busy, busy + idle + error),
				h("span.small", `${count(busy)} busy, ${count(idle)} idle`, error > 0 && h("span.bad", `, ${error} error`)))),
		crowd && h("div.body.crowd", processors.map(dot)),
		processorTable(shown, ({ worker }) => workers.length > 1 && h("bdi.two", worker)));
}

async function limitDialog(key) {
	remember({ limit: key });
	const use = await get("limits/use", { key });
	const line = (cell) => (job) => [job.id, named(jobHref(job.id), job.type), bdi(job.tenant), quiet(cell(job))];
	const list = (title, jobs, cell) => h("div", h("h3", title),
		jobs.length ? table(["", "", ">"], jobs.slice(0, 10).map(line(cell))) : h("p.quiet", "None."));
	await tell((close) => h("div.stack", { onclick: (event) => event.target.closest("a") && close() }, h("h2", bdi(key)),
		list("Hold it", use.holders, (job) => job.since && relative(job.since)),
		list("Next in line", use.waiters, (job) => relative(job.run_at))));
	remember({ limit: null });
}

/** How bad a queue is: no worker, a closed gate, a lag. */
const badness = (row) => (!row.workers && row.due ? 3 : row.gate !== OPEN ? 2 : row.lag ? 1 : 0);
const worse = (a, b) => badness(b) - badness(a) || (b.lag ?? 0) - (a.lag ?? 0) || (a.queue < b.queue ? -1 : 1);

export async function open({ params }) {
	let [phases, limits, tenants] = [[], [], []];
	const read = async () => {
		const list = (name) => get(name).then((answer) => answer[name], () => []);
		[phases, limits, tenants] = await Promise.all(["phases", "limits", "tenants"].map(list));
		draw();
	};
	await read();
	const stop = repeat(read, EVERY);
	if (params.get("limit")) limitDialog(params.get("limit"));

	const gate = (kind, name) => shared.overview.get(`gate:${kind}:${name}`);
	const pause = (name, text, at, danger) =>
		ask({ title: `Pause ${name}?`, text: [text], fields: [REASON], button: `Pause ${name}`, danger },
			(typed) => post("gates/pause", { ...at, ...reasonOf(typed) }), `${capital(name)} is paused.`);

	const pipeline = (name) => {
		const workers = rowsOf("worker:").filter((worker) => worker.state !== "dead");
		const own = phases.filter((each) => each.pipeline === name);
		const arrow = (n) => n > 0 && h("span.arrow", { key: `arrow${n}`, "aria-hidden": "true" }, icon("right"));
		return panel(["Pipeline ", bdi(name)], `one job moves through ${own.length} phases`,
			h("div.body.phases", own.map((phase, n) => [arrow(n), phaseCard(phase, workers)])), { key: `pipeline-${name}` });
	};
	const pipelines = () => [...new Set(phases.map((each) => each.pipeline))].filter(Boolean).map(pipeline);

	const queueButton = ({ queue, workers, due, gate }) => {
		const at = { kind: "queue", name: queue };
		if (!workers && due) return commandButton(`windlass worker app.py --queue ${shell(queue)}`, "Copy start", { class: "slim primary" });
		if (gate !== OPEN) return operate("Open…", () => openGate(at));
		return operate("Pause…", () => pause(queue, "Running jobs finish, new ones are accepted and wait.", at));
	};
	const queueLine = (row) => [row.queue,
		[named(jobsOf("queue", row.queue), row.queue), two(many(row.workers, "worker"))],
		gateMark(row, gate("queue", row.queue)),
		dueCell(row), ...["running", "failed", "dead"].map((name) => count(row[name], row.counted)), span(row.lag), queueButton(row)];
	const queues = () => {
		const rows = rowsOf("queue:").sort(worse);
		const heads = ["Queue", "Gate", ">Due", ">Running", ">~Failed", ">~Dead", ">Oldest due", ">"];
		return panel("Queues", "worst first", rows.length ? table(heads, rows.map(queueLine), "cards") : empty("stack", "No queue has a job yet", ["A queue appears with its first job."]));
	};

	const pace = ({ burst, period }) => (period < 1 ? `${tenth(burst / period)} per s` : `${burst} per ${span(period)}`);
	/** When there is room; of a rate that jobs wait for, when all of them have started. */
	const room = ({ held, free_in: free, used, period, waiting }, most) => {
		if (held > 0) return mark("failed", "hold", `held ${span(held)}`);
		if (period && waiting) return `all in ${span((waiting * period) / most)}`;
		if (free > 0) return `in ${span(free)}`;
		return used >= most ? "full" : "room";
	};
	const limitLine = (row) => {
		const most = row.most ?? row.burst;
		return [row.key,
			[h("button.plain.slim.text", () => limitDialog(row.key), h("bdi.mono", row.key)),
				two(row.period ? `rate, ${pace(row)}` : `limit ${most}`)],
			[bar(row.used, most ?? 1, row.held > 0 ? "failed" : "running"), two(`${count(row.used)} of ${count(most)}`)],
			h("strong", count(row.waiting)), room(row, most)];
	};
	const limitPanel = () => panel("Limits and rates", "who waits, most first", limits.length
		? table(["Key", "In use", ">Wait", ">Room"], limits.slice(0, 20).map(limitLine))
		: empty("hold", "No limit is in use"));

	const tenantPanel = () => {
		const total = tenants.reduce((sum, row) => sum + row.running, 0);
		const line = (row) => [row.tenant, [named(jobsOf("tenant", row.tenant), row.tenant), two(`weight ${row.weight}`)],
			bar(row.running, total || 1, "queued"), percent(row.running, total), quiet(`${count(row.due, row.counted)} due`)];
		return tenants.length > 1 && panel("Tenants", "running now", table(["", "", ">", ">"], tenants.slice(0, 10).map(line)));
	};

	const all = { kind: "all" };
	const everything = () => ((gate("all", "")?.state ?? OPEN) === OPEN
		? h("button.wide-only", () => pause("everything", "No job starts until it is opened again. Running jobs finish.", all, true), "Pause everything…")
		: h("button", () => openGate(all, "What is paused by itself stays so."), "Open everything…"));
	return {
		title: "Queues and phases",
		close: stop,
		bar: () => allows("operator") && everything(),
		view: () => [pipelines(), h("div.with-side.wide", queues(), h("div.stack", limitPanel(), tenantPanel()))],
	};
}
