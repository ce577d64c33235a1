// Workers: who is alive, what they run, and their processors.

import { bar, bdi, commandButton, count, empty, facts, h, mark, moment, panel, relative, rowsOf } from "../core/kit.js";
import { processorTable } from "./queues.js";

const MARKS = {
	dead: ["dead", "dead"], silent: ["failed", "alert"], busy: ["running", "running"], idle: ["queued", "queued"],
	stopping: ["plain", "drain"],
};
const ORDER = Object.keys(MARKS);
const worse = (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || (a.name < b.name ? -1 : 1);

function workerPanel({ id, name, state, started_at, alive_until, version, running, concurrency, queues, types, processors = [] }) {
	const busy = state === "dead" ? [] : processors.filter((each) => each.state !== "idle"); // the jobs of a dead one run elsewhere
	return panel(bdi(name), `started ${relative(started_at)}${version ? `, version ${version}` : ""}`, [
		facts({
			Slots: h("span.row", bar(running, concurrency), `${count(running)} of ${count(concurrency)}`),
			Queues: bdi(queues?.join(", ") ?? "all"),
			Types: bdi(types.join(", ") || "none"),
			[state === "dead" ? "Silent since" : "Alive until"]: `${moment(alive_until)}, ${relative(alive_until)}`,
			Id: h("code", id),
		}),
		processorTable(busy.slice(0, 50)),
	], { side: mark(...(MARKS[state] ?? ["plain", "queued"]), state), key: id });
}

export async function open() {
	const view = () => {
		const rows = rowsOf("worker:").sort(worse);
		return rows.length ? h("div.tiles", rows.map(workerPanel)) : panel(null, null, empty("chip", "No worker has been started", [],
		[commandButton("windlass worker app.py", "Copy start command", { class: "primary" })]));
	};
	return { title: "Workers", view };
}
