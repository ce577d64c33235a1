// Errors, one line per fingerprint: what, where, how many, and what became of the jobs; retry the group.

import { get } from "../core/api.js";
import { spark } from "../core/charts.js";
import { h } from "../core/dom.js";
import { count, relative } from "../core/format.js";
import { bulkAct } from "../core/jobs.js";
import { repeat } from "../core/live.js";
import { state } from "../core/marks.js";
import { go, href } from "../core/router.js";
import { empty, only, panel, skeleton } from "../core/ui.js";

const RANGES = [["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"]];

export async function open({ params, draw, allows }) {
  const since = params.get("since") ?? "24h";
  let opened = params.get("open");
  let answer = null;
  let samples = new Map();
  const read = async () => {
    answer = await get("errors", { since });
    draw();
  };
  await read();
  const stop = repeat(read, 10000);
  const show = async (group) => {
    opened = opened === group.fingerprint ? null : group.fingerprint;
    draw();
    if (opened && !samples.has(opened)) {
      samples.set(opened, await get(`jobs/${group.newest}`).catch(() => null));
      draw();
    }
  };
  const shares = (title, rows, whole) => rows.length > 0 && h("div", { key: title }, h("div.quiet.small", title), rows.map((row) => h("div", { key: row.name }, h("bdi", row.name), " ", h("span.quiet", `${count(row.count)}${rows.length === 1 && whole > 1 ? ", all of them" : ""}`))));
  const detail = (group) => {
    const sample = samples.get(group.fingerprint);
    const filter = `fingerprint:${group.fingerprint}`;
    const act = (verb, name, number) => number > 0 && h("button.button", { key: verb, type: "button", class: verb === "replay" ? "primary" : "", ...only(allows, "operator"), onclick: () => bulkAct(verb, `${filter} state:${name}`, read) }, `${verb === "retry" ? "Retry" : "Replay"} ${count(number)} ${name}…`);
    return h("div.body.stack",
      h("div.row.wrap", h("a.button", { href: href("jobs", { filter }) }, `Show ${count(group.count)} jobs`), act("retry", "failed", group.states.failed), act("replay", "dead", group.states.dead)),
      sample === undefined ? skeleton(3) : sample?.error?.traceback && h("div.traceback", h("pre.small", sample.error.traceback)),
      h("div.row.wrap", { style: { gap: "32px", "align-items": "flex-start" } }, shares("Types", group.types, group.count), shares("Queues", group.queues, group.count), shares("Tenants", group.tenants, group.count), shares("Workers", group.workers, group.count)));
  };
  return {
    title: "Errors",
    close: stop,
    bar: () => h("span.segment", { role: "group", "aria-label": "Range" }, RANGES.map(([value, name]) => h("button.button", { key: value, type: "button", "aria-pressed": String(value === since), onclick: () => go(href("errors", { since: value })) }, name))),
    view: () => {
      const groups = answer.errors;
      if (!groups.length) return panel(null, null, empty("check", "No error in this range", ["A job that fails appears here with the others that fail in the same way."]));
      return groups.map((group) => h("section.panel", { key: group.fingerprint },
        h("header", { onclick: () => show(group), style: { cursor: "pointer" } },
          h("div.grow", h("button.button.plain", { type: "button", "aria-expanded": String(opened === group.fingerprint), style: { "justify-content": "flex-start", "white-space": "normal", "text-align": "left" } }, h("span", h("strong", h("bdi", group.type)), " ", h("bdi", group.message))),
            h("div.quiet.small", h("bdi", group.types.map((each) => each.name).join(", ")), " · ", `first ${relative(group.first)}, last ${relative(group.last)}`)),
          h("span.wide-only", { style: { width: "140px" } }, spark(group.points, { bad: true, label: "failures over the range" })),
          h("strong", `${count(group.count, group.counted)} ${group.count === 1 ? "job" : "jobs"}`),
          h("span.row.wrap.small", ["dead", "failed", "succeeded"].map((name) => group.states[name] > 0 && h("span.row", { key: name }, state(name, { label: `${count(group.states[name])} ${name === "succeeded" ? "went on" : name}` }))))),
        opened === group.fingerprint && detail(group)));
    },
  };
}
