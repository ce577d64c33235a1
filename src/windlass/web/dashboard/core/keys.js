// The keyboard. Keys are silent while a field has the focus, and can be turned off.

import { live, setPaused } from "./data.js";
import { h } from "./dom.js";
import { palette } from "./palette.js";
import { tell } from "./ui.js";

const OFF = "windlass-keys-off";

export function keysHelp() {
	const list = (node) => node.append(document.getElementById("keys").content.cloneNode(true));
	const turn = (event) => localStorage.setItem(OFF, event.target.checked ? "0" : "1");
	const checked = localStorage.getItem(OFF) !== "1";
	tell(() => [h("div", { made: list }), h("label.row", h("input", { type: "checkbox", checked, onchange: turn }), "Single keys are on")], "Close", "");
}

export function startKeys({ pages, go, page }) {
	let after = null;
	const byKey = Object.fromEntries(Object.entries(pages).map(([name, [, , key]]) => [key, name]));
	const does = (event) => {
		if (after === "g" && byKey[event.key]) return () => go(byKey[event.key]);
		const own = page()?.keys?.[event.key];
		if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return null; // it presses what has the focus
		if (own) return own;
		const filter = document.querySelector("[data-filter]");
		return { "/": filter && (() => filter.focus()), p: () => setPaused(!live.paused), "?": keysHelp, u: () => history.back() }[event.key];
	};
	document.addEventListener("keydown", (event) => {
		if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
			event.preventDefault();
			return palette();
		}
		if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
		const field = event.target.closest?.("input, textarea, select, [contenteditable]");
		if (field && field.type !== "checkbox") {
			if (event.key === "Escape") field.blur();
			return;
		}
		if (localStorage.getItem(OFF) === "1") return;
		const found = does(event);
		after = event.key === "g" && after !== "g" ? "g" : null;
		if (!found) return;
		event.preventDefault();
		found(event);
	});
}
