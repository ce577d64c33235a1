// A small keyed DOM helper: `h()` describes an element, `patch()` changes the page until it is so.
// Text is always set as text, never as markup: what a job carries cannot become an element.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = /^(svg|path|g|rect|circle|line|text|polyline|polygon|use)$/;
const OWN = /^(key|made)$/; // properties that are not the element's

/**
 * Describe an element: h("a.name", {href: "…"}, "text", …). A function in place of the properties is what a click does.
 * A button looks like one unless its class is `bare`. `label` is what readers hear who do not see the element.
 */
export function h(tag, props, ...kids) {
	if (typeof props === "function") props = { onclick: props };
	else if (props === null || typeof props !== "object" || Array.isArray(props) || props.tag) {
		kids.unshift(props);
		props = {};
	}
	const [name, ...classes] = tag.split(".");
	if (name === "button") {
		props = { type: "button", ...props };
		if (!classes.includes("bare")) classes.unshift("button");
	} else if (name === "th") props = { scope: "col", ...props };
	if (classes.length) props = { ...props, class: [...classes, props.class].filter(Boolean).join(" ") };
	return { tag: name, props, kids: flatten(kids), key: props.key };
}

function flatten(kids) {
	return kids.flat(Infinity).filter((kid) => kid != null && typeof kid !== "boolean");
}

/** Make the children of an element what the descriptions say, keeping elements with the same key or place. */
export function patch(parent, kids) {
	const keyed = new Map();
	for (const child of parent.childNodes) if (child.$key !== undefined) keyed.set(child.$key, child);
	let at = parent.firstChild;
	for (const kid of flatten([kids])) {
		let found = null;
		if (typeof kid === "object" && kid.key !== undefined) {
			found = keyed.get(kid.key) ?? null;
			keyed.delete(kid.key);
		} else if (at && at.$key === undefined && fits(at, kid)) found = at;
		if (found && fits(found, kid)) update(found, kid);
		else {
			if (found && found !== at) found.remove();
			found = create(kid, parent);
		}
		if (found === at) at = at.nextSibling;
		else parent.insertBefore(found, at);
	}
	while (at) {
		const next = at.nextSibling;
		at.remove();
		at = next;
	}
}

function fits(node, kid) {
	return typeof kid === "object" ? node.nodeType === 1 && node.localName === kid.tag.toLowerCase() : node.nodeType === 3;
}

function create(kid, parent) {
	if (typeof kid !== "object") return document.createTextNode(String(kid));
	const drawn = DRAWN.test(kid.tag) || (kid.tag === "a" && parent.namespaceURI === SVG);
	const node = drawn ? document.createElementNS(SVG, kid.tag) : document.createElement(kid.tag);
	if (kid.key !== undefined) node.$key = kid.key;
	update(node, kid);
	kid.props.made?.(node);
	return node;
}

function update(node, kid) {
	if (typeof kid !== "object") {
		const text = String(kid);
		if (node.data !== text) node.data = text;
		return;
	}
	const before = node.$props ?? {};
	for (const name in before) if (!(name in kid.props)) set(node, name, null, before[name]);
	for (const name in kid.props) if (kid.props[name] !== before[name]) set(node, name, kid.props[name], before[name]);
	node.$props = kid.props;
	if (kid.kids.length || !kid.props.made) patch(node, kid.kids); // what `made` has put in stays
}

function set(node, name, value, before) {
	if (OWN.test(name)) return;
	if (name === "label") name = "aria-label";
	if (name.startsWith("on")) {
		if (before) node.removeEventListener(name.slice(2), before);
		if (value) node.addEventListener(name.slice(2), value);
	} else if (name === "style") {
		for (const each in { ...before, ...value }) node.style.setProperty(each, value?.[each] ?? null);
	} else if (name === "value" || name === "checked") {
		if (node[name] !== (value ?? "")) node[name] = value ?? "";
	} else if (value == null || value === false) node.removeAttribute(name);
	else node.setAttribute(name, value === true ? "" : String(value));
}

// Short names of what most pages say.

/** A text of the user's: its direction and its marks stay its own. */
export const bdi = (text, props = {}) => h("bdi", props, text);
export const two = (...kids) => h("span.two", kids);
export const quiet = (...kids) => h("span.quiet", kids);
export const small = (...kids) => h("span.quiet.small", kids);
export const named = (href, text) => h("a.name.clip", { href, title: text }, bdi(text));

// Icons and state marks: shape and word say the state, colour repeats it.

const shape = (name, place) => h("use", { href: `assets/icons.svg#${name}`, ...place });

export const icon = (name) => h("svg.icon", { viewBox: "0 0 16 16", "aria-hidden": "true" }, shape(name));

export const placedIcon = (name, x, y) => shape(name, { x, y, width: 16, height: 16 });

export const STATES = ["queued", "running", "failed", "waiting", "dead", "succeeded", "cancelled"];

export function mark(tone, shape, text, tinted = true) {
	return h(`span.mark.s-${tone}`, { class: tinted ? "tinted" : "" }, icon(shape), text);
}

/** The state of a job: its icon and its word; a type's own label replaces the word. */
export const state = (name, label, tinted = false) => mark(name, name, label ?? name, tinted);

// Who looks, what every page shares, and how a page asks to be drawn again.

const ROLES = ["viewer", "operator", "admin"];

export const shared = { session: null, overview: new Map() };

export const allows = (role) => ROLES.indexOf(shared.session?.role) >= ROLES.indexOf(role);

export const rowsOf = (begin) => [...shared.overview].filter(([key]) => key.startsWith(begin)).map(([, row]) => row);

let render = () => {};
let drawing = false;

export const onDraw = (does) => { render = does; };

/** Draw with the next frame, once for all that changed until then. */
export function draw() {
	if (drawing) return;
	drawing = true;
	requestAnimationFrame(() => {
		drawing = false;
		render();
	});
}
