// Charts as SVG. Each has a text for readers who do not see it.

import { h } from "./dom.js";
import { now, span } from "./format.js";

const W = 600;
const H = 130;

const drawing = (name, box, label, more, ...kids) => h(`svg.${name}`, { viewBox: box, role: "img", label: label, ...more }, kids);
const stretched = { preserveAspectRatio: "none" };

/** Values over a width, from zero, as steps of a path: it begins anew after a value that is missing. */
function pathOf(values, top, width, height, foot = height) {
	const step = (value, n) => {
		if (value === null) return "";
		const x = ((n / Math.max(1, values.length - 1)) * width).toFixed(1);
		const joined = n > 0 && values[n - 1] !== null;
		return `${joined ? "L" : "M"}${x} ${(foot - (value / top) * height).toFixed(1)}${joined ? "" : "h3"}`;
	};
	return values.map(step).join("");
}

export function spark(values, label, bad = false) {
	const known = values.map((value) => value ?? 0);
	const d = pathOf(known, Math.max(1e-9, ...known), 100, 24, 27);
	return drawing("spark", "0 0 100 28", label, { ...stretched, class: bad ? "s-dead" : "" },
		h("path.area", { d: `${d}L100 28L0 28` }), h("path.edge", { d }));
}

function niceTop(value) {
	const power = 10 ** Math.floor(Math.log10(value));
	return [1, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value);
}

/** The frame of a chart: axes, the marks of deploys and gates, {part of the width, kind, text}, and the line under the pointer. */
function chart(label, top, times, format, marks, drawn) {
	const levels = [0, top / 2, top].map((value) => {
		const y = H - (value / top) * H;
		return [h("line.grid", { x1: 0, x2: W, y1: y, y2: y }), h("text", { x: W + 6, y: y + 4 }, format(value))];
	});
	const time = (part, anchor) => h("text", { x: part * W, y: H + 20, "text-anchor": anchor }, times[Math.round(part * (times.length - 1))] ?? "");
	const places = [time(0, "start"), ...[0.25, 0.5, 0.75].map((part) => time(part, "middle")), time(1, "end")];
	const lines = marks.map(({ part, kind, text }) => {
		const late = part > 0.8;
		const x = part * W;
		const label = { x: x + (late ? -4 : 4), y: kind === "gate" ? 18 : 2, "text-anchor": late ? "end" : "start" };
		return h(`g.${kind}`, { key: text }, h("line", { x1: x, x2: x, y1: -6, y2: H }), h("text", label, text));
	});
	const cross = h("line.cross", { x1: -9, x2: -9, y1: 0, y2: H });
	return drawing("chart", `0 -8 ${W + 66} ${H + 32}`, label, {}, levels, places, drawn, lines, cross);
}

/** Move the line of all charts in an element to the pointer, and say what is there. `count` 0 hides it. */
export function cross(event, count, said) {
	const over = event.target.closest?.("svg.chart");
	if (count && !over) return;
	const box = over?.getBoundingClientRect();
	const part = box && Math.min(1, Math.max(0, ((event.clientX - box.left) / box.width) * (over.viewBox.baseVal.width / W)));
	const at = count ? Math.min(count - 1, Math.floor(part * count)) : -1;
	const x = count ? ((at + 0.5) / count) * W : -9;
	for (const line of event.currentTarget.querySelectorAll(".cross")) {
		line.setAttribute("x1", x);
		line.setAttribute("x2", x);
	}
	event.currentTarget.dataset.said = count ? said(at) : "";
}

/** Stacked bars per step: rows of {at, succeeded, failed, dead}. */
export function stacked(rows, times, label, marks) {
	const kinds = ["succeeded", "failed", "dead"];
	const top = niceTop(Math.max(1, ...rows.map((row) => kinds.reduce((sum, kind) => sum + row[kind], 0))));
	const width = W / Math.max(1, rows.length);
	const bars = rows.map((row, n) => {
		let y = H;
		return kinds.map((kind) => {
			const size = (row[kind] / top) * H;
			y -= size;
			const least = kind === "succeeded" ? 0.5 : 1.5; // a single failure among thousands is seen
			const wide = Math.max(1, width - 1);
			const place = { x: n * width + 0.5, y, width: wide, height: Math.max(least, size - 0.5) };
			return row[kind] > 0 && h(`rect.${kind}.s-${kind}`, { key: `${n}${kind}`, ...place, "stroke-dasharray": `${wide} 9999` });
		});
	});
	return chart(label, top, times, (v) => `${Math.round(v * 10) / 10}`, marks, bars);
}

export function lines(series, times, label, marks) {
	const top = niceTop(Math.max(0.001, ...series.flatMap((each) => each.points.map((point) => point ?? 0))));
	const drawn = series.map(({ tone, points }) => h(`path.edge.s-${tone}`, { d: pathOf(points, top, W, H) }));
	return chart(label, top, times, (v) => (v ? span(v) : "0"), marks, drawn);
}

export function bar(part, whole, tone = "running") {
	const width = `${whole ? Math.min(100, (100 * part) / whole).toFixed(1) : 0}%`;
	return h(`span.bar.s-${tone}`, { role: "img", label: `${part} of ${whole}` }, h("span", { style: { width } }));
}

/** The life of a job: a thin line waits, a thick bar runs, dashes back off. Parts: [[kind, time]…]; others share the `whole`. */
export function life(parts, state, label, { before = 0, whole } = {}) {
	const total = whole || parts.reduce((sum, [, part]) => sum + part, 0) || 1;
	const last = parts.findLastIndex(([kind]) => kind === "run");
	let x = (before / total) * 240;
	const drawn = parts.map(([kind, part], n) => {
		const width = Math.max(0.4, (part / total) * 240);
		const from = x;
		x += width;
		const ended = parts[n + 1]?.[0] === "backoff" ? "failed" : "succeeded"; // a phase or a wait that follows is no failure
		const tone = n === last && ["running", "failed", "dead", "cancelled"].includes(state) ? state : ended;
		if (kind === "run") return h(`rect.run.s-${tone}`, { x: from, y: 2, width: Math.max(1.5, width), height: 10 });
		if (kind === "backoff") return h("line.backoff", { x1: from, x2: from + width, y1: 7, y2: 7 });
		return h(kind === "wait" ? "rect.wait" : "rect.hold", { x: from, y: 6.2, width, height: 1.8 });
	});
	return drawing("life", "0 0 240 14", label, stretched, drawn);
}

/** The ticks of 24 hours back and on: a bar fired, a diamond did not, a ring is to come. */
export function tickLine(ticks, coming) {
	const place = (at) => 130 + ((new Date(at).getTime() - now()) / 86_400_000) * 125;
	const known = ticks.map(([at, outcome]) => [place(at), outcome]).filter(([x]) => x >= 4);
	const next = coming.map(place).filter((x) => x > 130 && x <= 256);
	const tick = ([x, outcome]) => {
		if (outcome === "fired" || outcome === "by hand") return h("rect.wait", { x: x - 1, y: 4, width: 2, height: 12 });
		return h(`polygon.s-${outcome === "missed" ? "dead" : "queued"}`, { points: `${x - 5},10 ${x},5 ${x + 5},10 ${x},15` });
	};
	return drawing("ticks", "0 0 260 20", `${known.length} ticks in the last 24 hours, ${next.length} to come in the next`, {},
		h("line.grid", { x1: 5, x2: 255, y1: 10, y2: 10 }), h("line.present", { x1: 130, x2: 130, y1: 1, y2: 19 }),
		known.map(tick), next.map((x) => h("circle.coming", { cx: x, cy: 10, r: 3 })));
}
