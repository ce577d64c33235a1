// Enqueue a job, or run one again: a form made from the type's hints, as JSON Schema.

import { dialog, formButtons, get, go, h, jobHref, mark, parse, post, Problem, say, textField } from "../core/kit.js";

const kindOf = (schema) => [schema.type].flat().find((each) => each !== "null");

/** The fields of an input; without a schema one field for all of it. `schema` may change while it is open. */
class InputForm {
	constructor(schema, input) {
		this.schema = schema;
		this.mistakes = {};
		this.problem = "";
		this.values = Object.fromEntries(Object.entries(input).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]));
		this.text = JSON.stringify(input, null, 2);
	}

	/** What was typed as the input of a job; null where it is none. Whole numbers are sent digit by digit: JavaScript would round large ones. */
	read() {
		this.mistakes = {};
		this.problem = "";
		if (!this.schema) {
			try {
				return parse(this.text);
			} catch (error) {
				this.problem = `This is no JSON: ${error.message}`;
				return null;
			}
		}
		const input = {};
		for (const [name, schema] of Object.entries(this.schema.properties ?? {})) {
			const typed = this.values[name] ?? "";
			const kind = kindOf(schema);
			if (typed === "") continue; // an optional one that is empty is left out
			try {
				input[name] = kind === "string" && !schema.enum ? typed : parse(typed);
			} catch {
				this.mistakes[name] = kind === "integer" || kind === "number" ? "this is no number" : "this is no JSON";
			}
		}
		return Object.keys(this.mistakes).length ? null : input;
	}

	/** Send what was typed; a refusal is shown beside its field. */
	async send(to, draw) {
		const input = this.read();
		try {
			if (input !== null) return await to(input);
		} catch (refused) {
			if (!(refused instanceof Problem)) throw refused;
			const place = /(\w+)$/.exec(refused.path ?? "")?.[1];
			if (this.schema?.properties?.[place]) this.mistakes[place] = refused.message;
			else this.problem = refused.message;
		} finally {
			draw();
		}
		return null;
	}

	field(name, schema) {
		const { values } = this;
		const kind = kindOf(schema);
		const said = [(this.schema.required ?? []).includes(name) ? "" : "optional", kind ?? "JSON", schema.default !== undefined ? `default ${JSON.stringify(schema.default)}` : ""].filter(Boolean).join(", ");
		const props = { value: values[name] ?? "", oninput: (event) => { values[name] = event.target.value; } };
		const choice = (options) => h("select", { onchange: props.oninput }, options.map(([value, text]) => h("option", { value, selected: values[name] === value }, text)));
		let input = h("textarea", { ...props, placeholder: kind === "array" ? "[…]" : "JSON" });
		if (schema.enum) input = choice([["", ""], ...schema.enum.map((each) => [JSON.stringify(each), typeof each === "string" ? each : JSON.stringify(each)])]);
		else if (kind === "boolean") input = choice(["", "true", "false"].map((each) => [each, each]));
		else if (/^(string|integer|number)$/.test(kind)) input = h("input", { type: "text", inputmode: kind === "string" ? null : "decimal", ...props });
		return h("label.field", { key: name }, h("span", h("bdi.strong", name), " ", h("span.quiet", said)), input, this.mistakes[name] && h("span.mistake", this.mistakes[name]));
	}

	view() {
		if (!this.schema) return h("label.field", "Input", h("textarea", { value: this.text, oninput: (event) => { this.text = event.target.value; } }));
		return h("div.stack", Object.entries(this.schema.properties ?? {}).map(([name, each]) => this.field(name, each)));
	}

	mistake() {
		return this.problem && h("p.mistake", { role: "alert" }, this.problem);
	}
}

export async function enqueueDialog() {
	const types = (await get("types")).types.filter((each) => each.declared_here || !each.local_only);
	let chosen = types[0];
	let form = new InputForm(chosen?.parameters, {});
	const options = {};
	const made = await dialog((close, draw) => {
		if (!chosen) return h("form", { method: "dialog" }, h("h2", "Enqueue a job"), h("p.second", "No job type is known yet. Start a worker of your program: windlass worker app.py"), h("div.buttons", h("button", { type: "submit" }, "Back")));
		const choose = (event) => {
			chosen = types.find((each) => each.name === event.target.value);
			form = new InputForm(chosen.parameters, {});
			draw();
		};
		const submit = async (event) => {
			event.preventDefault();
			const given = Object.entries(options).filter(([, value]) => value).map(([name, value]) => [name, name === "priority" ? Number(value) : value]);
			const answer = await form.send((input) => post("jobs", { type: chosen.name, input, ...Object.fromEntries(given) }), draw);
			if (answer) close(answer);
		};
		return h("form", { onsubmit: submit },
			h("h2", "Enqueue a job"),
			h("label.field", "Type", h("select", { onchange: choose }, types.map((each) => h("option", { value: each.name, selected: each === chosen }, each.name)))),
			chosen.description && h("p.quiet.small", chosen.description),
			chosen.workers === 0 && h("p.small", "No live worker runs this type now: the job waits until one starts."),
			h("div", { key: chosen.name }, form.view()),
			h("details", h("summary.quiet", "Options"), h("div.stack", ["queue", "tenant", "priority", "delay", "key"].map((name) => textField(options, name, name, { placeholder: { delay: "10m", queue: chosen.queue, priority: String(chosen.priority) }[name] ?? "" })))),
			form.mistake(),
			formButtons(close, "Enqueue"));
	});
	if (!made) return;
	say(made.existing ? "A job with this key was there already." : "Enqueued.");
	go(jobHref(made.id));
}

/** Run a job again as a new one: secrets stay unseen as long as the input is not changed. */
export async function rerunDialog(job, after) {
	const { types } = await get("types");
	const form = new InputForm(types.find((each) => each.name === job.type)?.parameters, job.input ?? {});
	const hidden = (job.redacted ?? []).filter((path) => path.startsWith("input."));
	const before = JSON.stringify(job.input);
	let discard = false;
	let checks = null;
	/** What is sent of an input: nothing where it is as it was, so that the server keeps the hidden values. */
	const changed = (input) => {
		const text = JSON.stringify(input);
		if (text === before) return {};
		if (hidden.length && text.includes("[redacted]")) throw new Problem({ detail: `${hidden.join(", ")} is hidden: type its value, or leave the input as it is` }, 422);
		return { input };
	};
	const made = await dialog((close, draw) => {
		const submit = async (event) => {
			event.preventDefault();
			const answer = await form.send((input) => post(`jobs/${job.id}/rerun`, { ...changed(input), discard }), draw);
			if (answer) close(answer);
		};
		const dryRun = async () => {
			checks = (await form.send((input) => post(`jobs/${job.id}/dry-run`, changed(input)), draw))?.checks ?? null;
			draw();
		};
		return h("form", { onsubmit: submit },
			h("h2", "Run again, as a new job"),
			h("p.quiet.small", "Without a change it runs with the same input, hidden values included."),
			form.view(),
			job.state === "dead" && h("label.row", h("input", { type: "checkbox", onchange: (event) => { discard = event.target.checked; } }), "Discard the dead one"),
			checks && h("ul.checks", checks.map((check, n) => h("li", { key: n }, mark(check.ok ? "succeeded" : "failed", check.ok ? "check" : "alert", check.said, false), check.command && h("code.two", check.command)))),
			form.mistake(),
			formButtons(close, "Run again", { between: h("button", dryRun, "Dry run") }));
	}, "wide");
	if (!made) return;
	say("Enqueued.");
	after?.();
	go(jobHref(made.id));
}
