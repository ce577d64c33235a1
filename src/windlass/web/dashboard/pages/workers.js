// Workers: who is alive, what they run, and their processors.

import { h } from "../core/dom.js";
import { count, moment, relative } from "../core/format.js";
import { bar } from "../core/charts.js";
import { jobHref } from "../core/jobs.js";
import { mark } from "../core/marks.js";
import { copy, empty, panel } from "../core/ui.js";
import { rowsOf } from "./queues.js";

const MARKS = { busy: ["running", "running"], idle: ["queued", "queued"], silent: ["failed", "alert"], dead: ["dead", "dead"], stopping: ["plain", "drain"] };

export async function open({ shared }) {
  const view = () => {
    const order = ["dead", "silent", "busy", "idle", "stopping"];
    const rows = rowsOf(shared.overview, "worker:").sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state) || (a.name < b.name ? -1 : 1));
    if (!rows.length) return panel(null, null, empty("chip", "No worker has been started", ["Jobs wait until one is."], [h("button.button.primary", { type: "button", onclick: () => copy("windlass worker app.py", "Command copied") }, "Copy start command")]));
    return rows.map((row) => {
      const [tone, shape] = MARKS[row.state] ?? ["plain", "queued"];
      const processors = (row.processors ?? []).filter((each) => each.state !== "idle");
      return panel(h("bdi", row.name), `started ${relative(row.started_at)}${row.version ? `, version ${row.version}` : ""}`, [
        h("dl.facts.body", h("dt", "Slots"), h("dd.row", bar(row.running, row.concurrency), `${count(row.running)} of ${count(row.concurrency)}`), h("dt", "Queues"), h("dd", h("bdi", row.queues ? row.queues.join(", ") : "all")), h("dt", "Types"), h("dd", h("bdi", row.types.join(", ") || "none")), h("dt", "Alive until"), h("dd", `${moment(row.alive_until)}, ${relative(row.alive_until)}`), h("dt", "Id"), h("dd", h("code", row.id))),
        processors.length > 0 && h("table", h("tbody", processors.slice(0, 50).map((each) => h("tr", { key: each.name }, h("td", h("bdi", each.name)), h("td", mark(each.state === "error" ? "dead" : "running", each.state === "error" ? "dead" : "running", each.state, false)), h("td", each.job && h("a", { href: jobHref(each.job) }, h("bdi", each.type ?? each.job))), h("td.right.quiet", each.since ? relative(each.since) : ""))))),
      ], { side: mark(tone, shape, row.state), key: row.id });
    });
  };
  return { title: "Workers", view };
}
