// One job: its story, its life, what it started, its attempts, its log; input and output beside it.

import {
	act, allows, ask, bdi, capital, cents, copy, copyButton, count, countdown, destroys, download, draw, facts, follow, get, go, h, href,
	icon, inWords, jobHref, jobsOf, json, labelOf, life, mark, moment, MOST, named, notice, now, only, panel, parse, percent, placedIcon, post,
	progressBar, quiet, relative, repeat, shared, shell, shortId, small, span, state, table, textOf, traceback, url, verbOf, VERBS,
} from "../core/kit.js";
import { rerunDialog } from "./enqueue.js";

/** The mark and the word of an attempt by its outcome; others are said as they are. */
const OUTCOMES = {
	succeeded: ["succeeded"], raised: ["failed", "failed"], timeout: ["failed", "timed out"], retry: ["failed", "asked for a retry"], dead: ["dead", "died"], crashed: ["dead"], snoozed: ["waiting"],
	released: ["queued", "was given back"], cancelled: ["cancelled", "was cancelled"], waiting: ["waiting", "began to wait"],
};
const LIFE = {
	wait: "Waited for a processor", run: "Ran", backoff: "Backed off", limit: "Waited at limits", gate: "Behind a gate",
	hold: "Was held", sleep: "Slept", jobs: "Waited for its jobs", signal: "Waited for a signal", budget: "Waited for its budget",
	other: "Waited for jobs, signals, times", ended: "Was ended",
};
const COUNTS = /^(.*(?:retries|starts) )in [\d.]+\s[a-z]+(?:\s\d+\s[a-z]+)?(.*)$/is;
const SHOWN = 30; // jobs around a job
const AGAIN = 2000; // milliseconds between two looks at the log of a job that runs

function graph(drawn, current) {
	const [w, gap, height, rise] = [132, 40, 40, 12];
	const nodes = drawn.nodes.map((node) => ({ ...node, left: node.x * (w + gap), top: node.y * (height + rise) }));
	const at = new Map(nodes.map((node) => [node.key, node]));
	const width = Math.max(...nodes.map((node) => node.left)) + w + 4;
	const tall = Math.max(...nodes.map((node) => node.top)) + height + 4;
	const edge = ([from, to], n) => {
		const [a, b] = [at.get(from), at.get(to)];
		const [x1, y1, x2, y2] = [a.left + w, a.top + height / 2, b.left, b.top + height / 2];
		const half = (x1 + x2) / 2;
		return h("path.link", { key: `e${n}`, d: `M${x1} ${y1}C${half} ${y1} ${half} ${y2} ${x2} ${y2}` });
	};
	const box = ({ key, id, name, type, state, count: number, dead, left, top, current: own }) => {
		const shown = h("g.node", { key, class: `s-${state}${own ? " current" : ""}` },
			h("rect", { x: left, y: top, width: w, height, rx: 6 }), placedIcon(state ?? "queued", left + 8, top + 12),
			h("text.name", { x: left + 30, y: top + 17 }, String(name ?? type).slice(0, 16)),
			h("text", { x: left + 30, y: top + 31 }, number > 1 ? `× ${count(number)}${dead ? `, ${dead} dead` : ""}` : (state ?? "")));
		return id && id !== current ? h("a", { key: `a${key}`, href: jobHref(id) }, shown) : shown;
	};
	const edges = drawn.edges.filter((each) => each.every((key) => at.has(key)));
	return h("div.scroll.body", h("svg",
		{ width, height: tall, viewBox: `-2 -2 ${width} ${tall}`, role: "group", label: `${nodes.length} jobs as a graph` },
		edges.map(edge), nodes.map(box)));
}

export async function open({ rest }) {
	const id = rest[0];
	let job = await get(`jobs/${id}`, { largest: MOST });
	let details = null;
	let story = null;
	let gone = false;
	let revealed = false;
	let follows = true; // the log, until it is scrolled up
	const frames = new Set();

	const tell = async () => {
		[details, story] = await Promise.all(["details", "story"].map((part) => get(`jobs/${id}/${part}`).catch(() => null)));
		draw();
	};
	const read = async () => {
		if (revealed) return;
		try {
			job = await get(`jobs/${id}`, { largest: MOST });
			gone = false;
		} catch (problem) {
			if (problem.status === 404) gone = true;
		}
		draw();
		await tell();
	};
	tell();
	// A list of one: its row says that something has changed, and then the whole job is read.
	const version = (row) => row && [row.updated_at, row.state, JSON.stringify(row.progress)].join();
	let seen = version(job);
	const leave = follow("jobs", { filter: `id:${id}` }, (rows) => {
		const known = seen;
		seen = version(rows.get(id));
		if (seen !== known) read();
	});
	const stop = repeat(() => job.state === "running" && read(), AGAIN);

	const change = async (verb) => {
		if (!verb || !allows("operator")) return;
		try {
			if (await act(job, verb)) read();
		} catch (problem) {
			if (problem.status !== 404) {
				read(); // it had moved on
				throw problem;
			}
			gone = true;
			draw();
		}
	};
	const signal = async () => {
		const fields = [["name", "Name", details?.waits?.signal], ["value", "Value, as JSON", "null"]];
		const sent = await ask({ title: "Send a signal", fields, button: "Send" }, async ({ name, value }) => {
			try { value = parse(value); } catch { /* it is text */ }
			const answer = await post(`jobs/${id}/signal`, { name, value });
			return answer.sent ? "Sent." : "The job had a signal of this name already.";
		});
		if (sent) read();
	};
	const reveal = async () => {
		job = await post(`jobs/${id}/reveal`);
		revealed = true;
		draw();
	};
	/** The job with its large values: they come when they are asked for. */
	const whole = async () => {
		if (Object.keys(job.left_out ?? {}).length) job = await get(`jobs/${id}`);
		draw();
		return job;
	};
	const rerun = async () => allows("operator") && rerunDialog(await whole(), read);

	const button = (key, label, does, danger) => {
		const tone = danger ? "danger" : ["retry", "replay"].includes(key) ? "primary" : "";
		return h("button", { key, class: tone, ...only("operator", does) }, label);
	};
	const buttons = () => [
		button("edit", [icon("pen"), "Edit, run again…"], rerun),
		job.state === "waiting" && button("signal", "Send signal…", signal),
		VERBS[job.state].map((verb) => button(verb, labelOf(verb), () => change(verb), destroys(verb))),
	];

	const lifePanel = () => {
		const { total, parts, sums = {}, text } = story?.life ?? {};
		const sum = ([kind, part]) => h("div", { key: kind }, h("div.quiet.small", LIFE[kind] ?? kind), h("strong", span(part / 1000)));
		return parts && h("section.panel", h("div.body",
			h("div.row", h("strong", `${span(total / 1000)}${job.finished_at ? "" : " so far"}`),
				h("span.quiet.small.push", `since ${moment(job.created_at)}`)),
			life(parts, job.state, text ?? ""),
			h("div.row.wrap.sums", Object.entries(sums).filter(([, part]) => part > 0).map(sum))));
	};

	const attempts = () => {
		const entry = (key, at, shape, text, more) => [
			h("div.when", { key: `${key}-w` }, moment(at), h("br"), relative(at)),
			h("div", { key: `${key}-i` }, mark(shape, shape, "", false)),
			h("div", { key: `${key}-t` }, text, more)];
		const number = (attempt) => h("strong", `Attempt ${attempt} of ${job.max_attempts}`);
		const made = ({ attempt, fence, outcome, worker, started_at, finished_at, error }) => {
			const key = `${attempt}-${fence}`;
			const [shape, word = outcome] = OUTCOMES[outcome] ?? ["queued"];
			const ran = finished_at && started_at ? ` after ${span((new Date(finished_at) - new Date(started_at)) / 1000)}` : "";
			const unfold = () => { frames.add(key); draw(); };
			return entry(key, started_at ?? finished_at, shape, [number(attempt), ` ${word}${ran}`, quiet(worker ? ` · ${shared.overview.get(`worker:${worker}`)?.name ?? "a worker"}, fence ${fence}` : "")],
				error?.type && traceback(error, frames.has(key), unfold));
		};
		const running = () => [number(job.attempt), ` runs for ${span((now() - new Date(job.started_at)) / 1000)}`];
		return panel("Attempts", "newest first", h("div.steps-line",
			job.state === "running" && job.started_at && entry("now", job.started_at, "running", running()),
			job.state === "succeeded" && job.attempts?.at(-1)?.fence !== job.fence && made({ ...job, outcome: "succeeded", error: null }),
			[...(job.attempts ?? [])].reverse().map(made),
			entry("enqueued", job.created_at, "queued", [h("strong", "Enqueued"), job.key && quiet(" with key ", h("code", job.key))])));
	};

	const logs = () => {
		const lines = (job.attempts ?? []).flatMap(({ attempt, log = [] }) =>
			log.map((line) => ({ attempt, ...(typeof line === "string" ? { message: line } : line) })));
		if (!lines.length) return null;
		const text = lines.map(({ at = "", level = "", message = "" }) => `${at} ${level} ${message}`).join("\n");
		const onscroll = ({ target }) => { follows = target.scrollTop + target.clientHeight >= target.scrollHeight - 8; };
		const down = (node) => { if (follows) node.scrollTop = node.scrollHeight; };
		const made = (node) => new MutationObserver(() => down(node)).observe(node, { childList: true });
		const line = ({ at, attempt, level, message, ...more }, n) => h("div", { key: n },
			quiet(at ? moment(at) : `attempt ${attempt}`, " ", level), " ", bdi(message ?? JSON.stringify(more)));
		return panel("Log", `${count(lines.length)} lines`, h("div.log", { tabindex: "0", onscroll, made }, lines.map(line)),
			{ side: copyButton(text, "Copy the log") });
	};

	const links = () => {
		const found = story?.links?.length ? story.links : (details?.links ?? []);
		const drawn = story?.graph ?? story?.phases;
		const picture = drawn?.nodes.length > 1 && graph(drawn, job.id);
		if (!found.length && !picture) return null;
		const told = story?.groups ?? [];
		const size = Math.max(found.length, told.reduce((sum, group) => sum + group.count, 0));
		const groups = told.map(({ name, type, count: number, state = "" }) => `${name || type} × ${count(number)} ${state}`).join(", ");
		// All on one axis: from the begin of the first to the end of the last, or now.
		const lives = found.flatMap((link) => link.life ?? []);
		const begin = Math.min(...lives.map((each) => new Date(each.began_at)));
		const length = Math.max(...lives.map((each) => new Date(each.began_at) - begin + each.total));
		const place = (each) => ({ before: new Date(each.began_at) - begin, whole: length });
		const ended = ({ state, total, processed, error, life: told, why }) => (error && ["failed", "dead"].includes(state) && error)
			|| why?.text || (total && state === "running" && percent(processed, total)) || (told && span(told.total / 1000));
		const line = (link) => [link.id, link.state ? state(link.state) : "—", named(jobHref(link.id), link.name || link.type || link.id),
			link.life ? life(link.life.parts, link.state, link.life.text ?? "", place(link.life)) : small(link.id.slice(-12)),
			h("div.small.quiet.clip", { title: link.error }, bdi(ended(link)))];
		return panel(found.length ? "Its jobs" : "Its phases", size > 0 && count(size, 10000),
			[picture, size > SHOWN && h("p.body.second", groups), table(["", "", "", ">"], found.slice(0, SHOWN).map(line), "links"),
			found.length > SHOWN && h("footer", h("a", { href: jobsOf("parent", id) }, "All its children"))]);
	};

	const known = () => {
		const other = (id) => h("a", { href: jobHref(id) }, id.slice(-12));
		const trace = job.trace && h("code", job.trace);
		return h("section.panel", facts({
			Id: h("span.row", h("code.clip", id), copyButton(id, "Copy the id")),
			Queue: [h("a", { href: jobsOf("queue", job.queue) }, bdi(job.queue)), job.pipeline && `, phase ${job.phase}`],
			Tenant: bdi(job.tenant),
			Priority: String(job.priority),
			Limits: job.limits?.length > 0 && job.limits.map((key) => h("code", { key }, key, " ")),
			Cost: job.cost_cents > 0 && cents(job.cost_cents),
			Trace: trace && job.trace_url ? h("a", { href: job.trace_url, rel: "noreferrer" }, trace) : trace,
			Parent: job.parent && other(job.parent),
			"Copy of": job.copied_from && other(job.copied_from),
			Created: `${relative(job.created_at)}, ${moment(job.created_at)}`,
		}));
	};

	const copies = () => {
		const lines = {
			CLI: `windlass jobs show ${id}`, Python: `app.find("${id}")`,
			curl: `curl -H "Authorization: Bearer $TOKEN" ${url(`jobs/${id}`)}`,
		};
		if (!job.redacted?.length && !job.left_out?.input) lines.Again = `windlass enqueue -a app.py ${shell(job.type)} --input ${shell(JSON.stringify(job.input))}`;
		const line = ([name, text]) => h("div.copyline", { key: name }, h("span", name),
			h("code.clip.grow", text.slice(0, 300)), copyButton(text, `Copy ${name}`));
		return panel("Copy as", null, h("div.body", Object.entries(lines).map(line)));
	};

	const value = (name, more) => {
		const large = job.left_out?.[name];
		const text = large ? "" : textOf(job[name]);
		const save = async () => download(textOf((await whole())[name]), name);
		const show = () => h("button", whole, `Show ${count(large)} characters`);
		const shown = large ? show() : job[name] === null ? h("p.quiet", "None yet.") : json(job[name]);
		return panel(capital(name), more, h("div.body", shown), { side: [
			job.redacted?.length > 0 && !revealed && allows("admin") && h("button.plain.slim", reveal, "Reveal"),
			(large || text.length > MOST) && h("button.plain.slim", save, "Download"), !large && copyButton(text, `Copy the ${name}`)] });
	};

	const audit = () => {
		const line = ({ number, at, action, actor, reason }) =>
			h("p", { key: number }, small(moment(at)), ` ${inWords(action)}`, actor && [" by ", bdi(actor)], reason && [": ", bdi(reason)]);
		return panel("Audit", null, h("div.body", details?.audit?.length ? details.audit.map(line)
			: h("p.quiet.small", "Its end and what operators do are written here.")));
	};

	const progress = () => {
		const { total, processed, failed } = job.progress ?? {};
		return (total > 0 || processed > 0) && h("div.row",
			h("strong.nowrap", total ? `${count(processed)} of ${count(total)}` : `${count(processed)} done`),
			total > 0 && [progressBar(processed, total), small(percent(processed, total))], failed > 0 && h("span.mark.s-failed", `${count(failed)} failed`));
	};

	const head = () => h("div.row.wrap", { key: "head" }, state(job.state, job.label, true), h("h2.clip.big", bdi(job.type)),
		h("code.quiet", shortId(id)), h("span.row.wrap.push.actions", !gone && buttons()));
	/** The story; the time to the next start counts down in it. */
	const told = () => {
		const text = story?.story ?? job.why?.text ?? "";
		const [, before, after] = (/failed|queued/.test(job.state) && COUNTS.exec(text)) || [];
		return h("p.story", { key: "story" }, after === undefined ? bdi(text) : [bdi(before), h("strong", countdown(job.run_at)), bdi(after)]);
	};
	const lost = "It was discarded, or its history was deleted. You see what was known.";
	return {
		title: job.type,
		close: () => { stop(); leave(); },
		keys: {
			r: () => change(verbOf(job.state, "retry", "replay", "resume")), c: () => change(verbOf(job.state, "cancel")), e: rerun,
			y: () => copy(id, "Id copied"), Y: () => copy(`windlass jobs show ${id}`, "Command copied"), u: () => go(href("jobs")),
		},
		view: () => [
			gone && notice("gone", icon("cancelled"), "This job is gone.", lost),
			head(), told(), progress(),
			h("div.with-side.job", { key: "body" },
				h("div.stack", lifePanel(), links(), attempts(), logs()),
				h("div.stack", value("input"), value("output", details?.steps?.length > 0 && `remembers ${details.steps.join(", ")}`.slice(0, 80)),
					known(), copies(), audit())),
		],
	};
}
