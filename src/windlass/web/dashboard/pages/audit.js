// The audit: how jobs ended, and who changed what, newest first.

import { get } from "../core/api.js";
import { h } from "../core/dom.js";
import { moment, relative } from "../core/format.js";
import { jobHref } from "../core/jobs.js";
import { go, href } from "../core/router.js";
import { empty, panel } from "../core/ui.js";

const FIELDS = ["action", "actor", "tenant", "job"];

export async function open({ params, draw }) {
  const chosen = Object.fromEntries(FIELDS.map((name) => [name, params.get(name) ?? ""]));
  let page = await get("audit", { ...chosen, count: 50 });
  let rows = page.audit;
  const older = async () => {
    page = await get("audit", { ...chosen, count: 50, below: page.next });
    rows = [...rows, ...page.audit];
    draw();
  };
  const search = (event) => {
    event.preventDefault();
    go(href("audit", Object.fromEntries(new FormData(event.target))));
  };
  return {
    title: "Audit",
    view: () => [
      h("form.row.wrap", { onsubmit: search }, FIELDS.map((name) => h("label.field", { key: name }, name, h("input", { type: "text", name, value: chosen[name], placeholder: { action: "JOB_DEAD", actor: "ann", tenant: "acme", job: "id" }[name] }))), h("button.button", { type: "submit", style: { "align-self": "flex-end" } }, "Search")),
      panel(null, null, rows.length ? [h("div.scroll", h("table", h("thead", h("tr", ["When", "What", "Subject", "Actor", "Reason"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", rows.map((row) => h("tr.hoverable", { key: row.number },
          h("td.nowrap", h("time", { datetime: row.at, title: row.at }, relative(row.at)), h("span.two", moment(row.at))),
          h("td", row.action.toLowerCase().replaceAll("_", " ")),
          h("td", row.job ? [h("a.name", { href: jobHref(row.job) }, h("bdi", row.type ?? row.job)), h("bdi.two", row.queue ?? "")] : h("bdi", row.subject ?? "")),
          h("td", row.actor ? h("a", { href: href("audit", { actor: row.actor }) }, h("bdi", row.actor)) : h("span.quiet", "the engine")),
          h("td.second", h("bdi", row.reason ?? ""))))))),
        page.next && h("footer", h("button.button.slim", { type: "button", onclick: older }, "Older"))] : empty("book", "Nothing is in the audit", ["What operators do, and how jobs end, is written here."])),
    ],
  };
}
