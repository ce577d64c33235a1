// Tenants and budgets: weights, what waits, what it cost, and how much is left.

import { del, get, put } from "../core/api.js";
import { bar } from "../core/charts.js";
import { h } from "../core/dom.js";
import { cents, count, moment, span } from "../core/format.js";
import { repeat } from "../core/live.js";
import { mark } from "../core/marks.js";
import { quote } from "../core/palette.js";
import { href } from "../core/router.js";
import { confirm, empty, only, panel, say } from "../core/ui.js";

export async function open({ draw, allows }) {
  let tenants = [];
  let budgets = [];
  const read = async () => {
    [{ tenants }, { budgets }] = await Promise.all([get("tenants"), get("budgets")]);
    draw();
  };
  await read();
  const stop = repeat(read, 5000);
  const weigh = async (row) => {
    const sure = await confirm({ title: `Weight of ${row.tenant}`, text: ["A tenant of weight 2 gets twice the share of one of weight 1 where both wait."], fields: [{ name: "weight", label: "Weight", value: String(row.weight) }], button: "Set" });
    if (!sure) return;
    await put("tenants/weight", { tenant: row.tenant, weight: Number(sure.weight) });
    say("Set.");
    read();
  };
  const budget = async (kind = "tenant", name = "", row = null) => {
    const sure = await confirm({ title: row ? `Budget of ${name}` : "Set a budget", text: ["When it is spent, jobs wait for the next window."], fields: [...(row ? [] : [{ name: "name", label: "Tenant", value: name }]), { name: "cents", label: "Cents", value: String(row?.cents ?? "") }, { name: "per", label: "Per: hour, day, week or month", value: "day" }], button: "Set" });
    if (!sure) return;
    await put("budgets", { kind, name: sure.name ?? name, cents: Number(sure.cents), per: sure.per });
    say("Set.");
    read();
  };
  const drop = async (row) => {
    const sure = await confirm({ title: `Remove the budget of ${row.name}?`, text: ["Its jobs are no longer held by their cost."], button: "Remove", danger: true });
    if (!sure) return;
    await del("budgets", { kind: row.kind, name: row.name });
    say("Removed.");
    read();
  };
  return {
    title: "Tenants, budgets",
    close: stop,
    bar: () => allows("admin") && h("button.button", { type: "button", onclick: () => budget() }, "Set a budget…"),
    view: () => [
      panel("Tenants", "of the last 24 hours", tenants.length ? h("div.scroll", h("table",
        h("thead", h("tr", h("th", { scope: "col" }, "Tenant"), ["Weight", "Due", "Running", "Parked", "Oldest due", "Cost, 24 h"].map((title, n) => h("th.right", { scope: "col", class: n === 3 ? "wide-only" : "" }, title)), h("th"))),
        h("tbody", tenants.map((row) => h("tr.hoverable", { key: row.tenant }, h("td", h("a.name", { href: href("jobs", { filter: `tenant:${quote(row.tenant)}` }) }, h("bdi", row.tenant))), h("td.right", String(row.weight)), h("td.right.strong", count(row.queued, row.counted)), h("td.right", count(row.running, row.counted)), h("td.right.wide-only", count(row.parked, row.counted)), h("td.right", row.lag ? span(row.lag) : "—"), h("td.right", row.cents ? cents(row.cents) : "—"), h("td.right", h("button.button.slim", { type: "button", ...only(allows, "admin"), onclick: () => weigh(row) }, "Weight…"))))))) : empty("people", "No tenant has a job")),
      panel("Budgets", null, budgets.length ? h("div.scroll", h("table", h("tbody", budgets.map((row) => h("tr", { key: row.kind + row.name }, h("td", h("strong", h("bdi", row.name)), h("span.two", row.kind)), h("td", { style: { width: "35%" } }, bar(row.spent, row.cents || 1, row.open ? "queued" : "failed"), h("span.two", `${cents(row.spent)} of ${count(row.cents)}`)), h("td", row.open ? mark("plain", "check", `${cents(row.left)} left`, false) : mark("failed", "hold", `spent, opens ${moment(row.until)}`)), h("td.right", h("span.row", { style: { "justify-content": "flex-end" } }, h("button.button.slim", { type: "button", ...only(allows, "admin"), onclick: () => budget(row.kind, row.name, row) }, "Change…"), h("button.button.slim", { type: "button", ...only(allows, "admin"), onclick: () => drop(row) }, "Remove…")))))))) : empty("people", "No budget is set", ["A budget says what a tenant or a queue may cost per day."])),
    ],
  };
}
