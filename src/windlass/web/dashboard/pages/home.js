// Home: one sentence, then figures, then rows. Most visits end after the sentence.

import { post } from "../core/api.js";
import { bar, cross, lines, spark, stacked } from "../core/charts.js";
import { h } from "../core/dom.js";
import { count, moment, percent, span } from "../core/format.js";
import { bulkAct } from "../core/jobs.js";
import { Stream } from "../core/live.js";
import { icon, mark } from "../core/marks.js";
import { quote } from "../core/palette.js";
import { go, href } from "../core/router.js";
import { confirm, copy, empty, only, panel, say, skeleton } from "../core/ui.js";


const RANGES = [["15m", "15 min"], ["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"]];
const LEVELS = { bad: ["dead", "dead"], warning: ["failed", "alert"], well: ["succeeded", "succeeded"], idle: ["succeeded", "check"] };
const TROUBLES = { "no worker": ["dead", "alert"], stalled: ["dead", "alert"], errors: ["failed", "failed"], behind: ["failed", "clock"], late: ["dead", "alert"], gate: ["plain", "pause"], budget: ["failed", "hold"] };
const TITLES = { due: "Due now", running: "Running", ended: "Ended", errors: "Error rate", wait: "Wait", run: "Run" };

/** A figure's value and its unit, as they are read. */
function valueOf(figure, slots) {
  const { name, value } = figure;
  if (value === null) return ["—", ""];
  if (name === "due") return [count(Math.round(value), 10000), ""];
  if (name === "running") return [count(Math.round(value), 10000), `of ${count(slots)} slots`];
  if (name === "ended") return [String(Math.round(value * 10) / 10), "per s"];
  if (name === "errors") return [percent(value, 1), "dead of ended"];
  return [span(value), "p95"];
}

function changeOf({ name, value, before }) {
  if (value === null || before === null || value === before) return "";
  const sign = value > before ? "↑" : "↓";
  const size = Math.abs(value - before);
  if (name === "due" || name === "running") return `${sign} ${count(Math.round(size))}`;
  if (name === "wait" || name === "run") return `${sign} ${span(size)}`;
  if (name === "errors") return `${sign} ${(size * 100).toFixed(1)}`;
  return before ? `${sign} ${Math.round((100 * size) / before)} %` : "";
}

/** What a button of a finding does: it shows jobs, opens a gate after asking, or copies the command. */
async function doStep(step, finding) {
  const [kind, name] = (finding?.name ?? "").split(/:(.*)/s);
  if (step.kind === "show") {
    const filter = /jobs list ['"]?(.*?)['"]?$/.exec(step.command)?.[1];
    go(kind === "schedule" ? href("schedules", { name }) : href("jobs", { filter: filter ?? (kind ? `${kind}:${quote(name)}` : "") }));
  } else if (step.kind === "change" && finding?.trouble === "gate" && kind) {
    const sure = await confirm({ title: `Open ${name || "everything"} again?`, text: [finding.evidence, "Its jobs start at once."], button: "Open" });
    if (!sure) return;
    await post("gates/resume", name ? { kind, name } : { kind: "all" });
    say("Open again.");
  } else if (/^windlass jobs (replay|retry) /.test(step.command)) {
    const [, verb, filter] = /^windlass jobs (\w+) ['"]?(.*?)['"]?$/.exec(step.command);
    await bulkAct(verb, filter);
  } else copy(step.command, "Command copied");
}

function steps(actions, finding, allows) {
  return actions.slice(0, 2).map((step, n) => h("button.button", { key: step.label, type: "button", class: [n === 0 && !finding.small ? "primary" : "", finding.small ? "slim" : ""].join(" "), title: step.command, ...(step.kind === "change" ? only(allows, "operator") : {}), onclick: () => doStep(step, finding) }, step.kind === "copy" && icon("copy"), step.label));
}

export async function open({ params, draw, shared, allows }) {
  if (shared.session.tenant !== null) {
    go(href("jobs"), { replace: true });
    return { title: "Home", view: () => skeleton() };
  }
  const range = params.get("range") ?? "1h";
  let rows = null;
  const stream = new Stream({ list: "home", range }, (got) => { rows = Object.fromEntries(got); draw(); },
    async (read) => ({ home: await read("overview", { range }) }));

  const health = () => {
    const { health: said } = rows;
    const [tone, shape] = LEVELS[said.level];
    const worst = said.queues.find((queue) => queue.trouble);
    const top = { name: worst ? `queue:${worst.queue}` : "", trouble: worst?.trouble, evidence: said.evidence };
    return h("section.panel", { key: "health", "aria-live": "polite" },
      h("div.health", h(`span.mark.s-${tone}`, icon(shape)), h("div.grow", h("p.say", h("bdi", said.sentence)), h("p.second", h("bdi", said.evidence))), h("div.push.row.wrap", steps(said.actions, top, allows))),
      said.findings.map((finding) => {
        const [kind, sign] = TROUBLES[finding.trouble] ?? ["plain", "alert"];
        return h("div.finding", { key: finding.trouble + finding.name }, h("span.label", mark(kind, sign, finding.trouble)), h("p.grow", h("strong", h("bdi", finding.sentence)), " ", h("span.second", h("bdi", finding.evidence))), h("span.row", steps(finding.actions.slice(0, 1), { ...finding, small: true }, allows)));
      }));
  };

  const figures = () => {
    const troubles = new Set([...rows.health.findings.map((finding) => finding.trouble), ...rows.health.queues.map((queue) => queue.trouble)]);
    const bad = { due: troubles.has("no worker") || troubles.has("behind"), errors: troubles.has("errors"), wait: troubles.has("behind") };
    return h("section.panel.kpis", { key: "figures", "aria-label": "Figures" }, rows.figures.map((figure) => {
      const [value, unit] = valueOf(figure, rows.slots);
      return h("div.kpi", { key: figure.name }, h("div.row", h("span.second", TITLES[figure.name]), h("span.quiet.small", { style: { "margin-left": "auto" } }, changeOf(figure))),
        h("div.value", value, " ", h("small", unit)), spark(figure.points, { bad: bad[figure.name] && rows.health.level !== "well", label: `${TITLES[figure.name]} over the range` }), h("div.quiet.small.clip", { title: figure.said }, figure.said));
    }));
  };

  const charts = () => {
    const times = rows.steps.map((step) => moment(step.at).replace(/:\d\d$/, "").slice(-5));
    const total = rows.steps.reduce((sum, step) => sum + step.succeeded + step.failed + step.dead, 0);
    const began = new Date(rows.steps[0]?.at).getTime();
    const marks = (rows.deploys ?? []).map((deploy) => ({ part: (new Date(deploy.at).getTime() - began) / 1000 / rows.range, text: `${deploy.version} at ${moment(deploy.at)}` }));
    const said = (n) => {
      const step = rows.steps[n];
      return `${moment(step.at)}: ${count(step.succeeded)} succeeded, ${count(step.failed)} failed, ${count(step.dead)} dead${step.wait_p95 === null ? "" : `; waited p50 ${span(step.wait_p50)}, p95 ${span(step.wait_p95)}`}`;
    };
    return h("div.two-charts", { key: "charts", onpointermove: (event) => cross(event, rows.steps.length, said), onpointerleave: (event) => cross(event, 0) },
      panel("Ended", `per ${span(rows.step)}`, h("div.body", total ? stacked(rows.steps, times, `${count(total)} attempts ended in the range`, marks) : empty("clock", "Nothing ended in this range")), { side: h("span.legend", ["succeeded", "failed", "dead"].map((name) => h(`span.s-${name}`, { key: name }, h("i", { style: name === "succeeded" ? { background: "var(--succeeded-area)" } : {} }), name === "failed" ? "failed, retries" : name))) }),
      panel("Wait before start", null, h("div.body", rows.steps.some((step) => step.wait_p95 !== null) ? lines([{ name: "p95", tone: "dead", points: rows.steps.map((step) => step.wait_p95) }, { name: "p50", points: rows.steps.map((step) => step.wait_p50) }], times, "p95 and p50 of the wait", marks) : empty("clock", "Nothing started in this range")), { side: h("span.legend", h("span.s-dead", h("i", { style: { height: "2px", background: "var(--tone)" } }), "p95"), h("span", h("i", { style: { height: "2px", background: "var(--ink-2)" } }), "p50")) }));
  };

  const gate = (queue) => {
    if (queue.trouble && TROUBLES[queue.trouble] && queue.trouble !== "gate") return mark(...TROUBLES[queue.trouble], queue.trouble);
    return queue.gate === "open" ? mark("plain", "check", "open", false) : mark("plain", "pause", queue.gate);
  };

  const queues = () => panel("Queues", "worst first", rows.queues.length ? h("div.scroll", h("table",
    h("thead", h("tr", h("th", { scope: "col" }, "Queue"), h("th", { scope: "col" }, "Gate"), h("th.right", { scope: "col" }, "Due"), h("th.wide-only", { scope: "col" }, "Depth"), h("th.wide-only", { scope: "col" }, "Running"), ["Per s", "Oldest due", "p95 wait", "Dead", "Empty in"].map((title, n) => h("th.right", { scope: "col", class: n === 0 || n === 2 || n === 3 ? "wide-only" : "" }, title)))),
    h("tbody", rows.queues.map((queue) => h("tr.hoverable", { key: queue.queue },
      h("td", h("a.name", { href: href("jobs", { filter: `queue:${quote(queue.queue)}` }) }, h("bdi", queue.queue))),
      h("td", gate(queue)),
      h("td.right.strong", count(queue.due, queue.counted)),
      h("td.wide-only", { style: { width: "110px" } }, queue.points.length > 1 && spark(queue.points, { bad: Boolean(queue.trouble), label: `depth of ${queue.queue}` })),
      h("td.wide-only.nowrap", h("span.row", bar(queue.running, queue.slots), h("span.quiet.small", queue.slots ? `${count(queue.running)} of ${count(queue.slots)}` : "no slots"))),
      h("td.right.wide-only", String(Math.round(queue.per_second * 10) / 10)),
      h("td.right.nowrap", queue.oldest === null ? "—" : span(queue.oldest)),
      h("td.right.wide-only.nowrap", span(queue.wait_p95)),
      h("td.right.wide-only", queue.dead_share === null ? "—" : percent(queue.dead_share, 1)),
      h("td.right.nowrap", { class: queue.empties === "never" ? "bad" : "" }, queue.empties)))))) : empty("stack", "No queue yet", ["Enqueue a job from your program, or with the button on the page of jobs."]), { key: "queues" });

  const changes = () => panel("What changed", null, rows.changes.length ? h("ul.body.stack", { style: { gap: "12px" } }, rows.changes.map((row) => h("li.row", { key: row.number, style: { "align-items": "flex-start" } }, icon("book"), h("div.grow", h("div", h("bdi", `${row.action.toLowerCase().replaceAll("_", " ")}${row.subject ? `: ${row.subject}` : ""}`)), h("div.quiet.small", h("bdi", [row.actor, row.reason].filter(Boolean).join(": ")))), h("span.quiet.small.nowrap", moment(row.at))))) : h("p.body.quiet", "No operator has changed anything."), { side: h("a", { href: href("audit") }, "Audit"), key: "changes" });

  return {
    title: "Home",
    close: () => stream.close(),
    bar: () => h("span.segment.range", { role: "group", "aria-label": "Range" }, RANGES.map(([value, name]) => h("button.button", { key: value, type: "button", "aria-pressed": String(value === range), onclick: () => go(href("home", { range: value })) }, name))),
    view: () => {
      if (!rows?.health) return h("section.panel", skeleton());
      return [health(), figures(), charts(), h("div.with-side", { key: "rows" }, queues(), changes())];
    },
  };
}

