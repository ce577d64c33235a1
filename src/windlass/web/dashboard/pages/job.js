// One job: its story, its life, what it started, its attempts, its log; input and output beside it.

import { act, ask, cents, copy, copyButton, count, countdown, download, follow, get, go, h, href, icon, inWords, jobHref, jobsOf, json, life, mark, moment, MOST, now, only, panel, parse, placedIcon, post, progressBar, relative, repeat, shortId, span, state, table, textOf, url, verbOf, VERBS } from "../core/kit.js";
import { rerunDialog } from "./enqueue.js";

const OUTCOMES = { succeeded: ["succeeded", "succeeded"], raised: ["failed", "failed"], dead: ["dead", "died"], crashed: ["dead", "crashed"], released: ["queued", "was given back"], snoozed: ["waiting", "snoozed"], cancelled: ["cancelled", "was cancelled"], waiting: ["waiting", "waits"] };
const LIFE = { wait: "Waited for a processor", run: "Ran", backoff: "Backed off", limit: "Waited at limits", gate: "Behind a gate", hold: "Was held", sleep: "Slept", jobs: "Waited for its jobs", signal: "Waited for a signal", other: "Waited for jobs, a signal or a time", budget: "Waited for its budget", ended: "Was ended" };
const PLAIN = { queued: "It is queued.", running: "It runs.", succeeded: "It succeeded.", failed: "It failed, and is tried again.", dead: "It is dead.", waiting: "It waits.", cancelled: "It was cancelled." };
const LIBRARY = /site-packages|lib\/python|windlass\/runtime/;
const AGAIN = 2000; // milliseconds between two looks at the log of a job that runs

const seconds = (from, to) => (new Date(to) - new Date(from)) / 1000;

/** A traceback with own lines bold, frames of libraries folded until they are asked for, and the message last. */
function traceback(error, whole, unfold) {
	const lines = String(error.traceback ?? "").trimEnd().split("\n");
	const shown = [];
	let folded = 0;
	let library = false;
	for (const [n, line] of lines.slice(0, -1).entries()) {
		if (/^\s*[\^~]+\s*$/.test(line)) continue;
		if (/^\s*File "/.test(line)) {
			library = LIBRARY.test(line);
			if (library && !whole) folded += 1;
		}
		if (!library || whole) shown.push(h("span", { key: n, class: /^\s{4}/.test(line) && !library ? "own" : "" }, line, "\n"));
	}
	return h("div.traceback", h("div", h("bdi.strong", error.type), ": ", h("bdi", String(error.message).slice(0, 400))),
		error.traceback && h("pre.small", shown, folded > 0 && h("button.plain.slim", unfold, `… ${folded} frames of libraries folded`), h("span.last", lines.at(-1))));
}

/** The jobs around a job as the server laid them out, left to right. */
function graph(drawn, current) {
	const [w, gap, height, rise] = [132, 40, 40, 12];
	const nodes = drawn.nodes.map((node) => ({ ...node, left: node.x * (w + gap), top: node.y * (height + rise) }));
	const at = new Map(nodes.map((node) => [node.key, node]));
	const width = Math.max(...nodes.map((node) => node.left)) + w + 4;
	const tall = Math.max(...nodes.map((node) => node.top)) + height + 4;
	const edge = ([from, to], n) => {
		const [a, b] = [at.get(from), at.get(to)];
		const [x1, y1, x2, y2] = [a.left + w, a.top + height / 2, b.left, b.top + height / 2];
		return h("path.link", { key: `e${n}`, d: `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` });
	};
	const box = (node) => h("g.node", { key: node.key, class: [node.current ? "current" : "", node.id ? "opens" : "", `s-${node.state}`].join(" "), onclick: () => node.id && node.id !== current && go(jobHref(node.id)) },
		h("rect", { x: node.left, y: node.top, width: w, height, rx: 6 }), placedIcon(node.state ?? "queued", node.left + 8, node.top + 12),
		h("text.name", { x: node.left + 30, y: node.top + 17 }, String(node.name ?? node.type).slice(0, 16)),
		h("text", { x: node.left + 30, y: node.top + 31 }, node.count > 1 ? `× ${count(node.count)}${node.dead ? `, ${node.dead} dead` : ""}` : (node.state ?? "")));
	return h("div.scroll.body", h("svg", { width, height: tall, viewBox: `-2 -2 ${width} ${tall}`, role: "img", "aria-label": `${nodes.length} jobs as a graph` }, drawn.edges.filter((each) => each.every((key) => at.has(key))).map(edge), nodes.map(box)));
}

export async function open({ rest, draw, allows }) {
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
		const sent = await ask({ title: "Send a signal", fields: [["name", "Name", details?.waits?.signal], ["value", "Value, as JSON", "null"]], button: "Send" }, async (typed) => {
			let { value } = typed;
			try { value = parse(value); } catch { /* it is text */ }
			const answer = await post(`jobs/${id}/signal`, { name: typed.name, value });
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

	const buttons = () => [
		h("button", { key: "edit", ...only(allows, "operator", rerun) }, icon("pen"), "Edit, run again…"),
		job.state === "waiting" && h("button", { key: "signal", ...only(allows, "operator", signal) }, "Send signal…"),
		VERBS[job.state].map(([verb, label, danger]) => h("button", { key: verb, class: danger ? "danger" : verb === "resume" ? "" : "primary", ...only(allows, "operator", () => change(verb)) }, label)),
	];

	const lifePanel = () => {
		const { total, parts, sums = {}, text } = story?.life ?? {};
		return parts && h("section.panel", h("div.body",
			h("div.row", h("strong", `${span(total / 1000)}${job.finished_at ? "" : " so far"}`), h("span.quiet.small.push", `since ${moment(job.created_at)}`)),
			life(parts, job.state, text ?? ""),
			h("div.row.wrap.sums", Object.entries(sums).filter(([, part]) => part > 0).map(([kind, part]) => h("div", { key: kind }, h("div.quiet.small", LIFE[kind] ?? kind), h("strong", span(part / 1000)))))));
	};

	const attempts = () => {
		const entry = (key, at, shape, text, more) => [h("div.when", { key: `${key}-w` }, moment(at), h("br"), relative(at)), h("div", { key: `${key}-i` }, mark(shape, shape, "", false)), h("div", { key: `${key}-t` }, text, more)];
		const number = (attempt) => h("strong", `Attempt ${attempt} of ${job.max_attempts}`);
		const made = (attempt) => {
			const key = `${attempt.attempt}-${attempt.fence}`;
			const [shape, word] = OUTCOMES[attempt.outcome] ?? ["queued", attempt.outcome];
			const ran = attempt.finished_at && attempt.started_at ? ` after ${span(seconds(attempt.started_at, attempt.finished_at))}` : "";
			return entry(key, attempt.started_at ?? attempt.finished_at, shape, [number(attempt.attempt), ` ${word}${ran}`, h("span.quiet", attempt.worker ? ` · fence ${attempt.fence}` : "")],
				attempt.error?.type && traceback(attempt.error, frames.has(key), () => { frames.add(key); draw(); }));
		};
		return panel("Attempts", "newest first", h("div.steps-line",
			job.state === "running" && job.started_at && entry("now", job.started_at, "running", [number(job.attempt), ` runs for ${span((now() - new Date(job.started_at)) / 1000)}`]),
			[...(job.attempts ?? [])].reverse().map(made),
			entry("enqueued", job.created_at, "queued", [h("strong", "Enqueued"), job.key && h("span.quiet", " with key ", h("code", job.key))])));
	};

	const logs = () => {
		const lines = (job.attempts ?? []).flatMap((attempt) => (attempt.log ?? []).map((line) => ({ attempt: attempt.attempt, ...(typeof line === "string" ? { message: line } : line) })));
		if (!lines.length) return null;
		const text = lines.map((line) => `${line.at ?? ""} ${line.level ?? ""} ${line.message ?? ""}`).join("\n");
		const scrolled = ({ target }) => { follows = target.scrollTop + target.clientHeight >= target.scrollHeight - 8; };
		const made = (node) => new MutationObserver(() => { if (follows) node.scrollTop = node.scrollHeight; }).observe(node, { childList: true });
		return panel("Log", `${count(lines.length)} lines`, h("div.log", { tabindex: "0", onscroll: scrolled, made },
			lines.map((line, n) => h("div", { key: n }, h("span.quiet", line.at ? moment(line.at) : `attempt ${line.attempt}`, " ", line.level ?? ""), " ", h("bdi", line.message ?? JSON.stringify(line))))), { side: copyButton(text, "Copy the log") });
	};

	const links = () => {
		const found = story?.links?.length ? story.links : (details?.links ?? []);
		const drawn = story?.graph ?? story?.phases;
		const picture = drawn?.nodes.length > 1 && graph(drawn, job.id);
		if (!found.length && !picture) return null;
		const groups = (story?.groups ?? []).filter((group) => group.count > 1);
		const line = (link) => [link.id, link.state ? state(link.state) : "—", h("a.name", { href: jobHref(link.id) }, h("bdi", link.name || link.type || link.id)), link.life ? life(link.life.parts, link.state, link.life.text ?? "") : h("span.quiet.small", link.id.slice(-12))];
		return panel(found.length ? "Its jobs" : "Its phases", found.length ? count(found.length) : null, [picture, groups.length > 0 && h("p.body.second", groups.map((group) => `${group.name || group.type} × ${count(group.count)} ${group.state ?? ""}`).join(", ")), table(["", "", ""], found.slice(0, 200).map(line))]);
	};

	const facts = () => {
		const other = (id) => h("a", { href: jobHref(id) }, id.slice(-12));
		const known = {
			Id: h("span.row", h("code.clip", job.id), copyButton(job.id, "Copy the id")),
			Queue: [h("a", { href: jobsOf("queue", job.queue) }, h("bdi", job.queue)), job.pipeline && `, phase ${job.phase}`],
			Tenant: h("bdi", job.tenant),
			Priority: String(job.priority),
			Limits: job.limits?.length > 0 && job.limits.map((key) => h("code", { key }, key, " ")),
			Cost: job.cost_cents > 0 && cents(job.cost_cents),
			Trace: job.trace && (job.trace_url ? h("a", { href: job.trace_url, rel: "noreferrer" }, h("code", job.trace)) : h("code", job.trace)),
			Parent: job.parent && other(job.parent),
			"Copy of": job.copied_from && other(job.copied_from),
			Created: `${relative(job.created_at)}, ${moment(job.created_at)}`,
		};
		return h("section.panel", h("dl.facts.body", Object.entries(known).filter(([, value]) => value).map(([name, value]) => [h("dt", { key: name }, name), h("dd", { key: `${name}=` }, value)])));
	};

	const copies = () => {
		const lines = { CLI: `windlass jobs show ${id}`, Python: `app.find("${id}")`, curl: `curl -H "Authorization: Bearer $TOKEN" ${url(`jobs/${id}`)}` };
		if (!job.redacted?.length && !job.left_out?.input) lines.Again = `windlass enqueue -a app.py ${job.type} --input '${JSON.stringify(job.input).replaceAll("'", "'\\''")}'`;
		return panel("Copy as", null, h("div.body", Object.entries(lines).map(([name, text]) => h("div.copyline", { key: name }, h("span", name), h("code.clip.grow", text.slice(0, 300)), copyButton(text, `Copy ${name}`)))));
	};

	const value = (name, more) => {
		const large = job.left_out?.[name];
		const text = large ? "" : textOf(job[name]);
		const save = async () => download(textOf((await whole())[name]), name);
		const shown = large ? h("button", whole, `Show ${count(large)} characters`) : job[name] === null ? h("p.quiet", "None yet.") : json(job[name]);
		return panel(name === "input" ? "Input" : "Output", more, h("div.body", shown), { side: [
			job.redacted?.length > 0 && !revealed && allows("admin") && h("button.plain.slim", reveal, "Reveal"),
			(large || text.length > MOST) && h("button.plain.slim", save, "Download"), !large && copyButton(text, `Copy the ${name}`)] });
	};

	const audit = () => panel("Audit", null, h("div.body", details?.audit?.length ? details.audit.map((row) => h("p", { key: row.number }, h("span.quiet.small", moment(row.at)), ` ${inWords(row.action)}`, row.actor && [" by ", h("bdi", row.actor)], row.reason && [": ", h("bdi", row.reason)])) : h("p.quiet.small", "What operators do to it, and its end, is written here.")));

	const progress = () => {
		const { total, processed, failed } = job.progress ?? {};
		return (total || processed) && h("div.row", h("strong.nowrap", total ? `${count(processed)} of ${count(total)}` : `${count(processed)} done`), total && progressBar(processed, total), failed > 0 && h("span.mark.s-failed", `${count(failed)} failed`));
	};

	return {
		title: job.type,
		close: () => { stop(); leave(); },
		keys: { r: () => change(verbOf(job.state, "retry", "replay", "resume")), c: () => change(verbOf(job.state, "cancel")), e: rerun, y: () => copy(id, "Id copied"), Y: () => copy(`windlass jobs show ${id}`, "Command copied"), u: () => go(href("jobs")) },
		view: () => [
			gone && h("div.notice", { key: "gone" }, icon("cancelled"), h("strong", "This job is gone."), h("span.second", "It was discarded, or its history was deleted. What you see is what was known last.")),
			h("div.row.wrap", { key: "head" }, state(job.state, job.label, true), h("h2.clip.big", h("bdi", job.type)), h("code.quiet", shortId(id)), h("span.row.wrap.push", !gone && buttons())),
			h("p.story", { key: "story" }, h("bdi", story?.story ?? job.why?.text ?? PLAIN[job.state]), job.state === "failed" && [" Retries ", h("strong", countdown(job.run_at)), "."]),
			progress(),
			h("div.with-side.job", { key: "body" },
				h("div.stack", lifePanel(), links(), attempts(), logs()),
				h("div.stack", value("input"), value("output", details?.steps?.length ? `steps remembered: ${details.steps.length}` : null), facts(), copies(), audit())),
		],
	};
}
