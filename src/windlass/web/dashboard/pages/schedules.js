// Schedules in plain words: when they fire next, what became of the last ticks; run now, pause.

import { get, post } from "../core/api.js";
import { tickLine } from "../core/charts.js";
import { h } from "../core/dom.js";
import { countdown, moment, relative, span } from "../core/format.js";
import { jobHref } from "../core/jobs.js";
import { repeat } from "../core/live.js";
import { icon, mark } from "../core/marks.js";
import { confirm, copy, empty, json, only, panel, say } from "../core/ui.js";

const SAMPLE = 'app.schedule("nightly", report.call(), cron="0 3 * * *", tz="Europe/Berlin")';
const OUTCOMES = { fired: ["succeeded", "check"], skipped: ["queued", "cancelled"], missed: ["dead", "alert"], "by hand": ["running", "play"] };

export async function open({ params, draw, allows }) {
  let rows = [];
  let opened = params.get("name");
  let ticks = [];
  const read = async () => {
    rows = (await get("schedules")).schedules.sort((a, b) => (b.late ?? 0) - (a.late ?? 0) || ((a.next[0] ?? "9") < (b.next[0] ?? "9") ? -1 : 1));
    if (opened) ticks = (await get("schedules/ticks", { name: opened, count: 100 }).catch(() => ({ ticks: [] }))).ticks;
    draw();
  };
  await read();
  const stop = repeat(read, 5000);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

  const stateMark = (row) => {
    if (row.paused) return mark("plain", "pause", "paused");
    if (row.late) return mark("dead", "alert", `late ${span(row.late)}`);
    return row.next.length ? mark("plain", "check", "on", false) : mark("plain", "cancelled", "over");
  };
  const pause = async (row) => {
    if (row.paused) {
      await post("schedules/resume", { name: row.name });
      say(`${row.name} goes on with its next tick.`);
    } else {
      const sure = await confirm({ title: `Pause ${row.name}?`, text: ["No tick fires until it is resumed. A deploy does not resume it."], fields: [{ name: "reason", label: "Reason (shown to all)" }], button: "Pause" });
      if (!sure) return;
      await post("schedules/pause", { name: row.name, ...(sure.reason.trim() ? { reason: sure.reason.trim() } : {}) });
      say(`${row.name} is paused.`);
    }
    read();
  };
  const fire = async (row) => {
    const sure = await confirm({ title: `Run ${row.name} now?`, text: [`It enqueues ${row.type}. Its ticks do not change.`], button: "Run now" });
    if (!sure) return;
    const made = await post("schedules/fire", { name: row.name });
    say(made.existing ? "Its job is there already." : "Enqueued.");
    read();
  };
  const edit = async (row) => {
    const sure = await confirm({ title: `Edit ${row.name}`, text: ["This overrides what the program declares, until it is reset."], fields: [{ name: "cron", label: "Cron expression", value: row.cron ?? "" }, { name: "queue", label: "Queue", value: row.queue }], button: "Save" });
    if (!sure) return;
    const change = { name: row.name };
    if (sure.cron && sure.cron !== row.cron) change.cron = sure.cron;
    if (sure.queue && sure.queue !== row.queue) change.queue = sure.queue;
    await post("schedules/edit", change);
    say("Saved.");
    read();
  };

  const detail = (row) => h("tr", { key: `${row.name}-more` }, h("td", { colspan: 6 }, tickLine(ticks, row.next, OUTCOMES), h("div.with-side",
    h("div.stack", h("div", h("h2", `Next five, in ${zone}`), row.next.slice(0, 5).map((at) => h("p", { key: at }, moment(at), " ", h("span.quiet", countdown(at))))),
      h("div", h("h2", "Last ticks"), ticks.length ? h("table", h("tbody", ticks.slice(0, 10).map((tick) => { const [tone, shape] = OUTCOMES[tick.outcome] ?? ["queued", "queued"]; return h("tr", { key: tick.at + tick.noted_at }, h("td", moment(tick.at)), h("td", mark(tone, shape, tick.outcome.replace("_", " "), false)), h("td", tick.job ? h("a", { href: jobHref(tick.job) }, tick.job.slice(-8)) : h("span.quiet", tick.reason ?? ""))); }))) : h("p.quiet", "None yet."))),
    h("div.stack", h("div", h("h2", "Input"), json(row.input)), row.edited.length > 0 && h("p", h("strong", `Edited by ${row.edited_by}: `), row.edited.join(", "), " ", allows("operator") && h("button.button.slim", { type: "button", onclick: async () => { await post("schedules/reset", { name: row.name }); read(); } }, "Undo edits")), allows("operator") && h("div", h("button.button.slim", { type: "button", onclick: () => edit(row) }, icon("pen"), "Edit…"))))));

  return {
    title: "Schedules",
    close: stop,
    view: () => {
      if (!rows.length) return panel(null, null, empty("clock", "No schedule is declared", [h("code", SAMPLE)], [h("button.button.primary", { type: "button", onclick: () => copy(SAMPLE, "Python copied") }, "Copy Python")]));
      const late = rows.filter((row) => row.late && !row.paused);
      return [
        late.length > 0 && h("div.notice", { key: "late" }, h("span.mark.s-dead", icon("alert")), h("strong", `${late[0].name} is ${span(late[0].late)} late.`), late.length > 1 && h("span.second", `${late.length - 1} more are late, too.`)),
        panel(null, null, h("div.scroll", h("table",
          h("thead", h("tr", ["Schedule", "When", "Next", "Last", "State"].map((title, n) => h("th", { scope: "col", class: n === 3 ? "wide-only" : "" }, title)), h("th"))),
          h("tbody", rows.map((row) => [
            h("tr.hoverable", { key: row.name },
              h("td", h("button.button.plain.slim", { type: "button", "aria-expanded": String(opened === row.name), onclick: () => { opened = opened === row.name ? null : row.name; read(); } }, h("bdi.strong", row.name)), h("bdi.two", row.type)),
              h("td", h("bdi", row.when), h("span.two", row.tz ?? "")),
              h("td.nowrap", row.paused || !row.next.length ? "—" : [countdown(row.next[0]), h("span.two", moment(row.next[0]))]),
              h("td.wide-only", row.last_at ? [row.last_job ? h("a", { href: jobHref(row.last_job) }, relative(row.last_at)) : relative(row.last_at), h("span.two", moment(row.last_at))] : "—"),
              h("td", stateMark(row), row.paused && h("bdi.two", `${row.paused_by ?? ""}${row.reason ? `: “${row.reason}”` : ""}`)),
              h("td.right", h("span.row", { style: { "justify-content": "flex-end" } }, h("button.button.slim", { type: "button", ...only(allows, "operator"), onclick: () => fire(row) }, "Run now…"), h("button.button.slim", { type: "button", ...only(allows, "operator"), onclick: () => pause(row) }, row.paused ? "Resume" : "Pause…")))),
            opened === row.name && detail(row),
          ]))))),
      ];
    },
  };
}
