// Tokens: who may look and who may change; a secret is shown once.

import { ask, confirm, copyButton, dialog, empty, get, h, mark, moment, panel, post, relative, table } from "../core/kit.js";

export async function open({ draw }) {
	let tokens = [];
	const read = async () => {
		({ tokens } = await get("tokens"));
		draw();
	};
	await read();
	const create = async () => {
		const fields = [["name", "Name (the audit shows it)"], ["role", "Role", "viewer", ["viewer", "operator", "admin"]], ["tenant", "Tenant (empty: all)"], ["days", "Days until it expires (empty: never)"]];
		const typed = await confirm({ title: "Create a token", fields, button: "Create" });
		if (!typed) return;
		const { name, role, tenant, days } = typed;
		const made = await post("tokens", { name, role, ...(tenant ? { tenant } : {}), ...(days ? { expires_in: Number(days) * 86400 } : {}) });
		await dialog(() => h("form", { method: "dialog" }, h("h2", `Token ${made.name}`), h("p.second", "This is its secret. It is shown here once, and is not stored."), h("div.copyline", h("code.grow", made.secret), copyButton(made.secret, "Copy the secret")), h("div.buttons", h("button.primary", { type: "submit" }, "I have it"))), "wide");
		read();
	};
	const revoke = async (row) => {
		const done = await ask({ title: `Revoke ${row.name}?`, text: ["Requests with it are refused within five seconds."], button: "Revoke", danger: true }, async () => { await post("tokens/revoke", { token: row.id }); }, "Revoked.");
		if (done) read();
	};
	const line = (row) => [row.id, h("bdi.strong", row.name), row.role, h("bdi", row.tenant ?? "all"), mark("plain", row.live ? "check" : "cancelled", row.live ? "live" : row.state, false), [relative(row.created_at), h("bdi.two", row.created_by)], row.expires_at ? moment(row.expires_at) : "never", row.live && h("button.slim", () => revoke(row), "Revoke…")];
	return {
		title: "Tokens",
		bar: () => h("button", create, "Create…"),
		view: () => panel(null, null, tokens.length ? table(["Name", "Role", "Tenant", "State", "Created", "Expires", ">"], tokens.map(line)) : empty("key", "There is no token", ["On this machine the dashboard is open until the first one is created."])),
	};
}
