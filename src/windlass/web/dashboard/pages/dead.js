// Dead letters: jobs that are given up, by reason; edit, dry run, replay, discard.

import { bulkAct, capital, count, destroys, empty, h, only, quote, toggleValue, valuesOf } from "../core/kit.js";
import { openList } from "./jobs.js";

export async function open(context) {
	const nothing = function () {
		return empty("inbox", this.filter ? ["No dead letter matches ", h("bdi", this.filter)] : "No dead letters", ["Dead jobs stay here until they are replayed or discarded."], this.filter && this.waysOut("dead"));
	};
	const { list, bar, filter, ...page } = await openList(context, "dead", "state:dead", { nothing });
	const all = (verb) => h("button", { key: verb, class: destroys(verb) ? "danger" : "", disabled: !list.rows.length, ...only(context.allows, "operator", () => bulkAct(verb, list.whole, () => list.load())) }, `${capital(verb)} all…`);
	const chips = () => {
		const reasons = Object.entries(list.facets?.reasons ?? {}).slice(0, 8);
		const chosen = valuesOf(list.filter, "reason");
		return reasons.length > 0 && h("div.row.wrap", { role: "group", "aria-label": "Reasons" }, reasons.map(([reason, number]) => h("button.slim", { key: reason, "aria-pressed": String(chosen.includes(quote(reason))), onclick: () => bar.set(toggleValue(list.filter, "reason", quote(reason))) }, h("bdi", reason), " ", count(number, list.facets.counted))));
	};
	return {
		...page,
		title: "Dead letters",
		bar: () => [all("replay"), h("span.wide-only", { key: "discard" }, all("discard"))],
		view: () => [filter(), chips(), list.table(), list.bulkBar()],
	};
}
