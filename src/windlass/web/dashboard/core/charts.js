// Charts as SVG. Each has a text for readers who do not see it.

import { h } from "./dom.js";
import { now, span } from "./format.js";

const W = 600;

/** A sparkline from zero. */
export function spark(points, { bad = false, label = "" } = {}) {
  const values = points.map((value) => value ?? 0);
  const most = Math.max(1e-9, ...values);
  const at = (value, n) => `${((n / Math.max(1, values.length - 1)) * 100).toFixed(1)},${(27 - (value / most) * 24).toFixed(1)}`;
  const line = values.map(at).join(" ");
  return h("svg.spark", { viewBox: "0 0 100 28", preserveAspectRatio: "none", role: "img", "aria-label": label, class: bad ? "s-dead" : "" },
    h("polygon", { class: "area", points: `0,28 ${line} 100,28` }),
    h("polyline", { class: "edge", points: line }));
}

function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value);
}

function axes(top, times, format, height) {
  const marks = [0, top / 2, top].map((value) => {
    const y = height - (value / top) * height;
    return [h("line", { class: "grid", x1: 0, x2: W, y1: y, y2: y }), h("text", { x: W + 6, y: y + 4 }, format(value))];
  });
  const places = [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const time = times[Math.min(times.length - 1, Math.round(part * (times.length - 1)))];
    return h("text", { x: part * W, y: height + 18, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, time ?? "");
  });
  return [marks, places];
}

/** Deploys as dashed lines: {part of the width, text}. And the line under the pointer, which `cross` moves. */
function markers(marks, height) {
  return [marks.map((each) => h("g", { key: each.text }, h("line.deploy", { x1: each.part * W, x2: each.part * W, y1: -6, y2: height }), h("text", { x: each.part * W + (each.part > 0.85 ? -4 : 4), y: 2, "text-anchor": each.part > 0.85 ? "end" : "start" }, each.text.slice(0, 7)))),
    h("line.cross", { x1: -9, x2: -9, y1: 0, y2: height })];
}

/** Move the common line of all charts in an element to the pointer, and say what stands there. `count` 0 hides it. */
export function cross(event, count, said) {
  const over = event.target.closest?.("svg.chart") ?? null;
  if (count && !over) return;
  const box = over?.getBoundingClientRect();
  const part = box && Math.min(1, Math.max(0, ((event.clientX - box.left) / box.width) * (over.viewBox.baseVal.width / W)));
  const at = count ? Math.min(count - 1, Math.floor(part * count)) : -1;
  for (const line of event.currentTarget.querySelectorAll(".cross")) for (const name of ["x1", "x2"]) line.setAttribute(name, count ? ((at + 0.5) / count) * W : -9);
  event.currentTarget.dataset.said = count ? said(at) : "";
}

/** Stacked bars per step: rows of {at, succeeded, failed, dead}. */
export function stacked(rows, times, label, marks = [], height = 130) {
  const kinds = ["succeeded", "failed", "dead"];
  const top = niceTop(Math.max(1, ...rows.map((row) => kinds.reduce((sum, kind) => sum + row[kind], 0))));
  const width = W / Math.max(1, rows.length);
  const bars = rows.map((row, n) => {
    let y = height;
    return kinds.map((kind) => {
      if (!row[kind]) return null;
      const size = (row[kind] / top) * height;
      y -= size;
      return h(`rect.s-${kind}`, { key: `${n}${kind}`, x: n * width + 0.5, y, width: Math.max(1, width - 1), height: Math.max(kind === "succeeded" ? 0.5 : 1.5, size - 0.5), fill: kind === "succeeded" ? "var(--succeeded-area)" : "var(--fill)" });
    });
  });
  return h("svg.chart", { viewBox: `0 -8 ${W + 44} ${height + 32}`, role: "img", "aria-label": label }, axes(top, times, (v) => `${Math.round(v * 10) / 10}`, height), bars, markers(marks, height));
}

/** Lines over one axis of seconds: [{name, tone, points}]. */
export function lines(series, times, label, marks = [], height = 130) {
  const top = niceTop(Math.max(0.001, ...series.flatMap((each) => each.points.map((point) => point ?? 0))));
  const drawn = series.map((each) => {
    const points = each.points.map((value, n) => `${((n / Math.max(1, each.points.length - 1)) * W).toFixed(1)},${(height - ((value ?? 0) / top) * height).toFixed(1)}`);
    return h("polyline", { class: `edge ${each.tone ? `s-${each.tone}` : ""}`, points: points.join(" ") });
  });
  return h("svg.chart", { viewBox: `0 -8 ${W + 52} ${height + 32}`, role: "img", "aria-label": label }, axes(top, times, (v) => (v ? span(v) : "0"), height), drawn, markers(marks, height));
}

/** A bar of a part of a whole. */
export function bar(part, whole, tone = "running") {
  const share = whole ? Math.min(1, part / whole) : 0;
  return h(`span.bar.s-${tone}`, { role: "img", "aria-label": `${part} of ${whole}` }, h("span", { style: { width: `${(share * 100).toFixed(1)}%` } }));
}

/** The life of a job: a thin line waits, a thick bar runs, dashes back off. Parts: [[kind, seconds]…]. */
export function life(parts, state, label) {
  const total = parts.reduce((sum, [, seconds]) => sum + seconds, 0) || 1;
  let x = 0;
  const drawn = parts.map(([kind, seconds], n) => {
    const size = Math.max(0.4, (seconds / total) * 240);
    const from = x;
    x += size;
    if (kind === "run") {
      const last = parts.slice(n + 1).every(([later]) => later !== "run");
      const tone = last && ["running", "succeeded", "dead"].includes(state) ? state : "failed";
      return h(`rect.run.s-${tone}`, { x: from, y: 2, width: Math.max(1.5, size), height: 10 });
    }
    if (kind === "backoff") return h("line", { class: "backoff", x1: from, x2: from + size, y1: 7, y2: 7 });
    return h("rect", { class: kind === "wait" ? "wait" : "hold", x: from, y: 6.2, width: size, height: 1.8 });
  });
  return h("svg.life", { viewBox: "0 0 240 14", preserveAspectRatio: "none", role: "img", "aria-label": label }, drawn);
}

/** The ticks of 24 hours back and on: a bar fired, a diamond did not, a ring is to come. */
export function tickLine(ticks, next, outcomes) {
  const hours = (at) => (new Date(at).getTime() - now()) / 3_600_000;
  const place = (at) => 300 + hours(at) * 12.5;
  const known = ticks.filter((tick) => hours(tick.at) > -24);
  const fired = (tick) => !["dead", "failed"].includes(outcomes[tick.outcome]?.[0]);
  const coming = next.filter((at) => Math.abs(hours(at)) < 24);
  return h("svg.ticks", { viewBox: "0 0 600 34", role: "img", "aria-label":`${known.length} ticks in 24 hours, ${coming.length} to come` },
    h("line.grid", { x1: 0, x2: 600, y1: 10, y2: 10 }), h("line.cross", { x1: 300, x2: 300, y1: 0, y2: 20 }),
    [["24 h ago", 0, "start"], ["now", 300, "middle"], ["in 24 h", 600, "end"]].map(([text, x, anchor]) => h("text", { x, y: 32, "text-anchor": anchor }, text)),
    known.map((tick) => (fired(tick) ? h("rect.wait", { x: place(tick.at) - 1, y: 4, width: 2, height: 12 }) : h("polygon.s-dead", { fill: "var(--fill)", points: `${place(tick.at) - 5},10 ${place(tick.at)},5 ${place(tick.at) + 5},10 ${place(tick.at)},15` }))),
    coming.map((at) => h("circle.coming", { cx: place(at), cy: 10, r: 3.5 })));
}
