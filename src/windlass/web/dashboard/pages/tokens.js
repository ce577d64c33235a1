// Tokens: who may look and who may change; a secret is shown once.

import { get, post } from "../core/api.js";
import { h } from "../core/dom.js";
import { moment, relative } from "../core/format.js";
import { mark } from "../core/marks.js";
import { confirm, copyButton, dialog, empty, panel, say } from "../core/ui.js";

export async function open({ draw }) {
  let tokens = [];
  const read = async () => {
    ({ tokens } = await get("tokens"));
    draw();
  };
  await read();
  const create = async () => {
    let values = { name: "", role: "viewer", tenant: "", days: "" };
    let mistake = "";
    const made = await dialog((close, redraw) => h("form", { onsubmit: async (event) => {
      event.preventDefault();
      const body = { name: values.name, role: values.role };
      if (values.tenant && values.role !== "admin") body.tenant = values.tenant;
      if (values.days) body.expires_in = Number(values.days) * 86400;
      try { close(await post("tokens", body)); } catch (problem) { mistake = problem.message; redraw(); }
    } },
      h("h2", "Create a token"),
      h("label.field", "Name (the audit shows it)", h("input", { type: "text", required: true, autofocus: true, oninput: (event) => { values.name = event.target.value; } })),
      h("label.field", "Role", h("select", { onchange: (event) => { values.role = event.target.value; redraw(); } }, ["viewer", "operator", "admin"].map((role) => h("option", { value: role }, role)))),
      values.role !== "admin" && h("label.field", "Tenant (empty: all)", h("input", { type: "text", oninput: (event) => { values.tenant = event.target.value; } })),
      h("label.field", "Days until it expires (empty: never)", h("input", { type: "number", min: 1, oninput: (event) => { values.days = event.target.value; } })),
      mistake && h("p.mistake", { role: "alert" }, mistake),
      h("div.buttons", h("button.button", { type: "button", onclick: () => close() }, "Back"), h("button.button.primary", { type: "submit" }, "Create"))));
    if (!made) return;
    await dialog((close) => h("form", { method: "dialog" }, h("h2", `Token ${made.name}`), h("p.second", "This is its secret. It is shown here once, and is not stored."), h("div.copyline", h("code.grow", made.secret), copyButton(made.secret, "Copy the secret")), h("div.buttons", h("button.button.primary", { type: "submit" }, "I have it"))), { wide: true });
    read();
  };
  const revoke = async (row) => {
    const sure = await confirm({ title: `Revoke ${row.name}?`, text: ["Requests with it are refused within five seconds."], button: "Revoke", danger: true });
    if (!sure) return;
    await post("tokens/revoke", { token: row.id });
    say("Revoked.");
    read();
  };
  return {
    title: "Tokens",
    bar: () => h("button.button", { type: "button", onclick: create }, "Create…"),
    view: () => panel(null, null, tokens.length ? h("div.scroll", h("table", h("thead", h("tr", ["Name", "Role", "Tenant", "State", "Created", "Expires"].map((title) => h("th", { scope: "col" }, title)), h("th"))), h("tbody", tokens.map((row) => h("tr", { key: row.id }, h("td.strong", h("bdi", row.name)), h("td", row.role), h("td", h("bdi", row.tenant ?? "all")), h("td", row.live ? mark("plain", "check", "live", false) : mark("plain", "cancelled", row.state, false)), h("td", relative(row.created_at), h("bdi.two", row.created_by ?? "")), h("td", row.expires_at ? moment(row.expires_at) : "never"), h("td.right", row.live && h("button.button.slim", { type: "button", onclick: () => revoke(row) }, "Revoke…"))))))) : empty("key", "There is no token", ["On this machine the dashboard is open until the first one is created."])),
  };
}
