// Workers: who is alive, what they run, and their processors.

import { bar, copy, count, empty, h, mark, moment, panel, relative } from "../core/kit.js";
import { processorTable, rowsOf } from "./queues.js";

const MARKS = { dead: ["dead", "dead"], silent: ["failed", "alert"], busy: ["running", "running"], idle: ["queued", "queued"], stopping: ["plain", "drain"] }; // the worst first
const ORDER = Object.keys(MARKS);

function workerPanel(row) {
	const facts = {
		Slots: h("span.row", bar(row.running, row.concurrency), `${count(row.running)} of ${count(row.concurrency)}`),
		Queues: h("bdi", row.queues?.join(", ") ?? "all"),
		Types: h("bdi", row.types.join(", ") || "none"),
		"Alive until": `${moment(row.alive_until)}, ${relative(row.alive_until)}`,
		Id: h("code", row.id),
	};
	return panel(h("bdi", row.name), `started ${relative(row.started_at)}${row.version ? `, version ${row.version}` : ""}`, [
		h("dl.facts.body", Object.entries(facts).map(([name, value]) => [h("dt", name), h("dd", value)])),
		processorTable((row.processors ?? []).filter((each) => each.state !== "idle").slice(0, 50)),
	], { side: mark(...(MARKS[row.state] ?? ["plain", "queued"]), row.state), key: row.id });
}

export async function open({ shared }) {
	const view = () => {
		const rows = rowsOf(shared.overview, "worker:").sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || (a.name < b.name ? -1 : 1));
		return rows.length ? rows.map(workerPanel) : panel(null, null, empty("chip", "No worker has been started", ["Jobs wait until one is."], [h("button.primary", () => copy("windlass worker app.py", "Command copied"), "Copy start command")]));
	};
	return { title: "Workers", view };
}
