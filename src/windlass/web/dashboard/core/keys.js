// The keyboard. Keys are silent while a field has the focus, and can be turned off.

import { live, setPaused } from "./data.js";
import { palette } from "./palette.js";
import { h } from "./dom.js";
import { dialog } from "./ui.js";

const OFF = "windlass-keys-off";

/** The list of keys is in the page. */
export function keysHelp() {
	dialog((close, draw) => h("form", { method: "dialog" },
		h("div", { made: (node) => node.append(document.getElementById("keys").content.cloneNode(true)) }),
		h("label.row", h("input", { type: "checkbox", checked: localStorage.getItem(OFF) !== "1", onchange: (event) => { localStorage.setItem(OFF, event.target.checked ? "0" : "1"); draw(); } }), "Single keys are on"),
		h("div.buttons", h("button.primary", { type: "submit", autofocus: true }, "Close"))));
}

export function startKeys({ pages, go, page }) {
	let after = null;
	const byKey = Object.fromEntries(Object.entries(pages).map(([name, [, , key]]) => [key, name]));
	document.addEventListener("keydown", (event) => {
		if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
			event.preventDefault();
			palette();
			return;
		}
		if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
		const field = event.target.closest?.("input, textarea, select, [contenteditable]");
		if (field && field.type !== "checkbox") {
			if (event.key === "Escape") field.blur();
			return;
		}
		if (localStorage.getItem(OFF) === "1") return;
		if (after === "g" && byKey[event.key]) {
			after = null;
			event.preventDefault();
			go(byKey[event.key]);
			return;
		}
		after = event.key === "g" ? "g" : null;
		const own = page()?.keys?.[event.key];
		if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return; // it presses what has the focus
		if (own) {
			event.preventDefault();
			own(event);
		} else if (event.key === "/") {
			const filter = document.querySelector("[data-filter]");
			if (filter) { event.preventDefault(); filter.focus(); }
		} else if (event.key === "p") setPaused(!live.paused);
		else if (event.key === "?") keysHelp();
		else if (event.key === "u") history.back();
	});
}
