// Enqueue a job, or run one again: a form made from the type's hints, as JSON Schema.

import {
	allows, dialog, form, formButtons, get, go, h, bdi, jobHref, kept, mark, parse, post, Problem, quiet, say, textField, tell,
} from "../core/kit.js";

const kindOf = (schema) => [schema.type].flat().find((each) => each !== "null");
const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const HIDDEN = "[redacted]";

/** The fields of an input; without a schema one field for all of it. What was changed says what it was. */
function inputForm(schema, input) {
	const before = Object.fromEntries(Object.entries(input).map(([name, value]) => [name, textOf(value)]));
	const values = { ...before };
	const all = { text: JSON.stringify(input, null, 2) };
	let mistakes = {};
	let problem = "";
	const text = () => JSON.stringify([values, all]);
	const first = text();
	const touched = () => text() !== first;

	/** What was typed; null where it is none. Whole numbers are sent digit by digit. */
	const read = () => {
		mistakes = {};
		problem = "";
		if (!schema) {
			try {
				return parse(all.text);
			} catch (error) {
				problem = `This is no JSON: ${error.message}`;
				return null;
			}
		}
		const typed = {};
		for (const [name, each] of Object.entries(schema.properties ?? {})) {
			const text = values[name] ?? "";
			const kind = kindOf(each);
			if (text === "") continue; // an optional one that is empty is left out
			try {
				typed[name] = (kind === "string" && !each.enum) || text === HIDDEN ? text : parse(text);
			} catch {
				mistakes[name] = kind === "integer" || kind === "number" ? "this is no number" : "this is no JSON";
			}
		}
		return Object.keys(mistakes).length ? null : typed;
	};
	/** Send what was typed; a refusal is shown beside its field. */
	const send = async (to, draw) => {
		const typed = read();
		try {
			if (typed !== null) return await to(typed);
		} catch (refused) {
			if (!(refused instanceof Problem)) throw refused;
			const place = /^\$?\.?(\w+)/.exec(refused.path ?? "")?.[1];
			if (schema?.properties?.[place]) mistakes[place] = refused.message;
			else problem = refused.message;
		} finally {
			draw();
		}
		return null;
	};
	const choice = (name, options, draw) => h("select", { onchange: kept(values, name, draw) },
		options.map(([value, text]) => h("option", { value, selected: values[name] === value }, text)));
	const control = (name, each, draw) => {
		const kind = kindOf(each);
		const props = { value: values[name] ?? "", oninput: kept(values, name, draw) };
		if (each.enum) return choice(name, [["", ""], ...each.enum.map((one) => [JSON.stringify(one), textOf(one)])], draw);
		if (kind === "boolean") return choice(name, ["", "true", "false"].map((one) => [one, one]), draw);
		const plain = /^(string|integer|number)$/.test(kind);
		if (plain) return h("input", { type: "text", inputmode: kind === "string" ? null : "decimal", ...props });
		return h("textarea", { ...props, placeholder: kind === "array" ? "[…]" : "JSON" });
	};
	const field = (name, each, draw) => {
		const optional = !(schema.required ?? []).includes(name) && "optional";
		const usual = each.default !== undefined && `default ${JSON.stringify(each.default)}`;
		const kept = allows("admin") || !touched() ? "hidden; kept as it is" : "hidden; type it, as the input is changed";
		const hidden = before[name]?.includes(HIDDEN) && values[name] === before[name] && kept;
		const said = [optional, kindOf(each) ?? "JSON", usual, hidden].filter(Boolean).join(", ");
		const was = name in before && values[name] !== before[name] && h("span.was", "was ", bdi(before[name].slice(0, 200)));
		return h("label.field", { key: name }, h("span", h("bdi.strong", name), " ", quiet(said)), control(name, each, draw), was,
			mistakes[name] && h("span.mistake", mistakes[name]));
	};
	const view = (draw) => {
		if (!schema) return h("label.field", "Input", h("textarea", { value: all.text, oninput: kept(all, "text") }));
		return h("div.stack", Object.entries(schema.properties ?? {}).map(([name, each]) => field(name, each, draw)));
	};
	return { send, view, touched, mistake: () => problem && h("p.mistake", { role: "alert" }, problem) };
}

export async function enqueueDialog() {
	const types = (await get("types")).types.filter((each) => each.declared_here || !each.local_only);
	let chosen = types[0];
	const none = () => [h("h2", "Enqueue a job"), h("p.second", "No job type is known yet. Start a worker of your program: windlass worker app.py")];
	if (!chosen) return tell(none, "Back", "");
	let input = inputForm(chosen.parameters, {});
	const options = {};
	const made = await dialog((close, draw) => {
		const choose = (event) => {
			chosen = types.find((each) => each.name === event.target.value);
			input = inputForm(chosen.parameters, {});
			draw();
		};
		const submit = async () => {
			const given = Object.entries(options).filter(([, value]) => value)
				.map(([name, value]) => [name, name === "priority" ? Number(value) : value]);
			const answer = await input.send((typed) => post("jobs", { type: chosen.name, input: typed, ...Object.fromEntries(given) }), draw);
			if (answer) close(answer);
		};
		const usual = { delay: "10m", queue: chosen.queue, priority: String(chosen.priority) };
		const option = (name) => textField(options, name, name, { placeholder: usual[name] ?? "" });
		const type = (each) => h("option", { value: each.name, selected: each === chosen }, each.name);
		return form(submit,
			h("h2", "Enqueue a job"),
			h("label.field", "Type", h("select", { onchange: choose }, types.map(type))),
			chosen.description && h("p.quiet.small", chosen.description),
			chosen.workers === 0 && h("p.small", "No live worker runs this type: the job waits for one."),
			h("div", { key: chosen.name }, input.view(draw)),
			h("details", h("summary.quiet", "Options"), h("div.stack", ["queue", "tenant", "priority", "delay", "key"].map(option))),
			input.mistake(),
			formButtons(close, "Enqueue"));
	});
	if (!made) return;
	say(made.existing ? "A job with this key was there already." : "Enqueued.");
	go(jobHref(made.id));
}

/** Run a job again as a new one. The server keeps hidden values for an admin, or where nothing is changed. */
export async function rerunDialog(job, after) {
	const { types } = await get("types");
	const input = inputForm(types.find((each) => each.name === job.type)?.parameters, job.input ?? {});
	let discard = false;
	let checks = null;
	const changed = (typed) => (input.touched() ? { input: typed } : {});
	const check = ({ ok, said, command }, n) => h("li", { key: n },
		mark(ok ? "succeeded" : "failed", ok ? "check" : "alert", said, false), command && h("code.two", command));
	const made = await dialog((close, draw) => {
		const submit = async () => {
			const answer = await input.send((typed) => post(`jobs/${job.id}/rerun`, { ...changed(typed), discard }), draw);
			if (answer) close(answer);
		};
		const dryRun = async () => {
			checks = (await input.send((typed) => post(`jobs/${job.id}/dry-run`, changed(typed)), draw))?.checks ?? null;
			draw();
		};
		const box = h("input", { type: "checkbox", onchange: (event) => { discard = event.target.checked; } });
		return form(submit,
			h("h2", "Run again, as a new job"),
			h("p.quiet.small", allows("admin") ? "What you do not change stays as it is, hidden values included."
				: "Hidden values are kept if you change nothing; else type them, or ask an admin."),
			input.view(draw),
			job.state === "dead" && h("label.row", box, "Discard the dead one"),
			checks && h("ul.checks", checks.map(check)),
			input.mistake(),
			formButtons(close, "Run again", { between: h("button", dryRun, "Dry run") }));
	}, "wide");
	if (!made) return;
	say("Enqueued.");
	after?.();
	go(jobHref(made.id));
}
