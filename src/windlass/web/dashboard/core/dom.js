// A small keyed DOM helper: `h()` describes an element, `patch()` changes the page until it is so.
// Text is always set as text, never as markup: what a job carries cannot become an element.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "g", "rect", "circle", "line", "text", "polyline", "title", "polygon"]);

/** @typedef {{tag: string, props: Object<string, any>, kids: Array<any>, key: any}} Node */

/** Describe an element: h("a.name", {href: "…"}, "text", …). */
export function h(tag, props, ...kids) {
  if (props === null || typeof props !== "object" || Array.isArray(props) || props.tag) {
    kids.unshift(props);
    props = {};
  }
  const [name, ...classes] = tag.split(".");
  if (classes.length) props = { ...props, class: [classes.join(" "), props.class].filter(Boolean).join(" ") };
  return { tag: name, props, kids: flatten(kids), key: props.key };
}

function flatten(kids) {
  return kids.flat(Infinity).filter((kid) => kid !== null && kid !== undefined && kid !== false && kid !== true);
}

/** Make the children of an element what the descriptions say, keeping elements with the same key or place. */
export function patch(parent, kids) {
  const wanted = flatten([kids]);
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.$key !== undefined) keyed.set(child.$key, child);
  let at = parent.firstChild;
  for (const kid of wanted) {
    let found = null;
    if (typeof kid === "object" && kid.key !== undefined) {
      found = keyed.get(kid.key) ?? null;
      keyed.delete(kid.key);
    } else if (at && at.$key === undefined && fits(at, kid)) {
      found = at;
    }
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
  if (typeof kid !== "object") return node.nodeType === 3;
  return node.nodeType === 1 && node.localName === kid.tag.toLowerCase();
}

function create(kid) {
  if (typeof kid !== "object") return document.createTextNode(String(kid));
  const node = SVG_TAGS.has(kid.tag) && kid.tag !== "title" ? document.createElementNS(SVG, kid.tag) : document.createElement(kid.tag);
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
  if (!kid.props.opaque) patch(node, kid.kids);
}

function set(node, name, value, before) {
  if (name === "key" || name === "made" || name === "opaque") return;
  if (name.startsWith("on")) {
    const kind = name.slice(2);
    if (before) node.removeEventListener(kind, before);
    if (value) node.addEventListener(kind, value);
  } else if (name === "style") {
    for (const each in { ...before, ...value }) node.style.setProperty(each, value?.[each] ?? null);
  } else if (name === "value" || name === "checked" || name === "indeterminate") {
    if (node[name] !== (value ?? "")) node[name] = value ?? "";
  } else if (value === null || value === undefined || value === false) {
    node.removeAttribute(name);
  } else node.setAttribute(name, value === true ? "" : String(value));
}
