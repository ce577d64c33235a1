// Icons and state marks: shape and word say the state, colour repeats it.

import { h } from "./dom.js";

const stroke = (d, more = {}) => ["path", { d, fill: "none", stroke: "currentColor", "stroke-width": 1.6, "stroke-linecap": "round", "stroke-linejoin": "round", ...more }];
const fill = (d) => ["path", { d, fill: "currentColor" }];
const cut = (d) => ["path", { d, fill: "none", stroke: "var(--surface)", "stroke-width": 1.7, "stroke-linecap": "round", "stroke-linejoin": "round" }];

const SHAPES = {
  queued: [stroke("M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z")],
  running: [stroke("M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z"), fill("M6.6 5.4v5.2L11 8Z")],
  waiting: [stroke("M4.5 2.5h7M4.5 13.5h7M5 2.5c0 3 3 3.6 3 5.5s-3 2.500-3 5.500M11 2.500c0 3-3 3.600-3 5.500s3 2.500 3 5.500")],
  failed: [stroke("M12.6 5.4A5.300 5.300 0 1 0 13.300 8M13.200 2.600v3h-3")],
  succeeded: [fill("M8 1.800a6.200 6.200 0 1 0 0 12.400A6.200 6.200 0 0 0 8 1.800Z"), cut("m5.400 8.200 1.900 1.900 3.400-3.900")],
  dead: [fill("M5.400 1.700h5.200l3.700 3.700v5.200l-3.700 3.700H5.400l-3.700-3.700V5.400Z"), cut("m5.900 5.900 4.200 4.200M10.100 5.900l-4.200 4.200")],
  cancelled: [stroke("M8 2.500a5.500 5.500 0 1 0 0 11 5.500 5.500 0 0 0 0-11ZM4.200 11.800l7.600-7.600")],
  alert: [stroke("M8 2.300 14.200 13H1.800ZM8 6.500v3M8 11.300v.1")],
  hold: [stroke("M3 2.500v11M13 2.500v11M3 4.500h10M3 8.500h10")],
  pause: [stroke("M5.500 3.500v9M10.500 3.500v9", { "stroke-width": 2.200 })],
  drain: [stroke("M4 3.500v9M7.500 8H13M10.500 5.500 13 8l-2.500 2.500")],
  play: [fill("M5 3.500v9l7-4.500Z")],
  check: [stroke("m3.500 8.500 3 3 6-7")],
  cross: [stroke("m4 4 8 8M12 4l-8 8")],
  search: [stroke("M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9ZM10.300 10.300l3.200 3.200")],
  copy: [stroke("M6 6h7.500v7.500H6ZM10 6V2.500H2.500V10H6")],
  home: [stroke("M2.500 7.500 8 2.500l5.500 5M4 6.500v7h8v-7M6.500 13.500v-4h3v4")],
  list: [stroke("M5.500 4h8M5.500 8h8M5.500 12h8M2.500 4h.1M2.500 8h.1M2.500 12h.1")],
  stack: [stroke("M2.500 3.500h11v3.500h-11ZM2.500 9h11v3.500h-11Z")],
  clock: [stroke("M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2ZM8 4.800V8l2.300 1.500")],
  chip: [stroke("M3 4h10v7.500H3ZM6 2.500V4M10 2.500V4M6 11.500v2M10 11.500v2")],
  inbox: [stroke("M2.500 8.500 4.500 3h7l2 5.500v4h-11ZM2.500 8.500H6l.800 1.500h2.400l.800-1.500h3.500")],
  people: [stroke("M6 3a2.200 2.200 0 1 0 0 4.400A2.200 2.200 0 0 0 6 3ZM2 13c0-2.300 1.800-3.500 4-3.500s4 1.200 4 3.500M10.500 3.300a2 2 0 0 1 0 3.800M12 9.800c1.300.5 2 1.600 2 3.200")],
  book: [stroke("M3.500 2.500h9v11h-9ZM6 5.500h4M6 8h4M6 10.500h2.500")],
  key: [stroke("M5.500 5.500a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM8.300 8.500H14v2.500M11.500 8.500v2")],
  moon: [stroke("M12.500 9.500A5.200 5.200 0 0 1 6.500 3.500a5.200 5.200 0 1 0 6 6Z")],
  sun: [stroke("M8 5.200a2.800 2.800 0 1 0 0 5.600 2.800 2.800 0 0 0 0-5.600ZM8 1.800v1M8 13.200v1M1.800 8h1M13.200 8h1M3.600 3.600l.7.7M11.700 11.700l.7.7M3.600 12.400l.7-.7M11.700 4.300l.7-.7")],
  pen: [stroke("M3 13l.6-2.800 7-7 2.200 2.200-7 7Z")],
  more: [fill("M3 7a1.200 1.200 0 1 0 0 2.400A1.200 1.200 0 0 0 3 7ZM8 7a1.200 1.200 0 1 0 0 2.400A1.200 1.200 0 0 0 8 7ZM13 7a1.200 1.200 0 1 0 0 2.400A1.200 1.200 0 0 0 13 7Z")],
  bolt: [stroke("M9 2 3.500 9H8l-1 5 5.500-7H8Z")],
  right: [stroke("m6 3.500 4.500 4.500L6 12.500")],
  brand: [stroke("M8 4.600a3.400 3.400 0 1 0 0 6.800 3.400 3.400 0 0 0 0-6.800Z"), fill("M8 7a1 1 0 1 0 0 2 1 1 0 0 0 0-2Z"), stroke("M8 1.300v3.200M8 11.500v3.200M1.300 8h3.200M11.500 8h3.200M3.300 3.300l2.200 2.200M10.500 10.500l2.200 2.200M3.300 12.700l2.200-2.200M10.500 5.500l2.200-2.200")],
};

export function icon(name, title) {
  const shapes = (SHAPES[name] ?? SHAPES.queued).map(([tag, props]) => h(tag, props));
  return h("svg.icon", { viewBox: "0 0 16 16", "aria-hidden": title ? null : "true", role: title ? "img" : null, "aria-label": title ?? null }, shapes);
}

export const STATES = ["queued", "running", "failed", "waiting", "dead", "succeeded", "cancelled"];

/** The state of a job: its icon and its word; a type's own label replaces the word. */
export function state(name, { label, tinted } = {}) {
  return h(`span.mark.s-${name}`, { class: tinted ? "tinted" : "" }, icon(name), label ?? name);
}

/** Another mark, with the tone of a state. */
export function mark(tone, shape, text, tinted = true) {
  return h(`span.mark.s-${tone}`, { class: tinted ? "tinted" : "" }, icon(shape), text);
}
