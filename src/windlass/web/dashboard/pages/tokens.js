// Tokens: who may look and who may change; a secret is shown once.

import { ask, bdi, confirm, copyButton, draw, empty, get, h, mark, moment, panel, post, relative, table, tell } from "../core/kit.js";

const FIELDS = [
	["name", "Name (the audit shows it)"], ["role", "Role", "viewer", ["viewer", "operator", "admin"]],
	["tenant", "Tenant (empty: all)"], ["days", "Days until it expires (empty: never)"],
];

export async function open() {
	let tokens = [];
	const read = async () => {
		({ tokens } = await get("tokens"));
		draw();
	};
	await read();
	const create = async () => {
		const typed = await confirm({ title: "Create a token", fields: FIELDS, button: "Create" });
		if (!typed) return;
		const { name, role, tenant, days } = typed;
		const made = await post("tokens", { name, role, tenant: tenant || undefined, expires_in: days ? Number(days) * 86400 : undefined });
		await tell(() => [h("h2", `Token ${made.name}`), h("p.second", "This is its secret. It is shown here once, and is not stored."),
			h("div.copyline", h("code.grow", made.secret), copyButton(made.secret, "Copy the secret"))], "I have it");
		read();
	};
	const revoke = async ({ id, name }) => {
		const question = { title: `Revoke ${name}?`, text: ["Requests with it are refused within five seconds."], button: "Revoke", danger: true };
		if (await ask(question, () => post("tokens/revoke", { token: id }), "Revoked.")) read();
	};
	const line = (row) => [row.id, h("bdi.strong", row.name), row.role, bdi(row.tenant ?? "all"),
		mark("plain", row.live ? "check" : "cancelled", row.live ? "live" : row.state, false),
		[relative(row.created_at), h("bdi.two", row.created_by)], row.expires_at ? moment(row.expires_at) : "never",
		row.live && h("button.slim", () => revoke(row), "Revoke…")];
	return {
		title: "Tokens",
		bar: () => h("button", create, "Create…"),
		view: () => panel(null, null, tokens.length
			? table(["Name", "Role", ">Tenant", ">State", ">Created", ">Expires", ">"], tokens.map(line), "cards left")
			: empty("key", "There is no token", ["On this machine the dashboard is open until the first one is created."])),
	};
}
