// The frame of every page: rail, top bar, live clock, theme, keys. A page is a module with `open(context)`.

import { connect, del, follow, get, live, onLive, post, Problem, setPaused } from "./core/data.js";
import { h, icon, mark, patch } from "./core/dom.js";
import { clock, count, moment, now } from "./core/format.js";
import { learnActions, runningActions } from "./core/jobs.js";
import { keysHelp, startKeys } from "./core/keys.js";
import { palette } from "./core/palette.js";
import { go, here, href, startRouter } from "./core/router.js";
import { dialog, empty, failure, say, skeleton } from "./core/ui.js";

const PAGES = {
	home: ["Home", "home", "h"],
	jobs: ["Jobs", "list", "j"],
	errors: ["Errors", "alert", "e"],
	queues: ["Queues", "stack", "q"],
	schedules: ["Schedules", "clock", "s"],
	workers: ["Workers", "chip", "w"],
	dead: ["Dead letters", "inbox", "d"],
	tenants: ["Tenants, budgets", "people", "t"],
	audit: ["Audit", "book", "a"],
	tokens: ["Tokens", "key", "k"],
};
const TABS = ["home", "jobs", "errors", "queues"];
const WHOLE = ["home", "queues", "schedules", "workers", "tokens"]; // what concerns every tenant
const SIGNED = "windlass-signed-in"; // a cookie that scripts cannot read has the token itself
const ROLES = ["viewer", "operator", "admin"];

/** What every page shares: who looks, and the rows of the overview. */
export const shared = { session: null, overview: new Map(), pages: PAGES };

export const allows = (role) => ROLES.indexOf(shared.session?.role) >= ROLES.indexOf(role);

const app = document.getElementById("app");
let page = null; // the open page: {title, view, close, keys, bar}
let opened = 0;
let failed = null;
let waiting = false;
let leave = []; // what ends the lists of every page

let drawing = false;
export function draw() {
	if (drawing) return;
	drawing = true;
	requestAnimationFrame(() => {
		drawing = false;
		render();
	});
}

// Theme

const THEME = "windlass-theme";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => document.documentElement.dataset.theme === "dark";
function applyTheme() {
	document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? (prefersDark.matches ? "dark" : "light");
}
export function nextTheme() {
	localStorage.setItem(THEME, isDark() ? "light" : "dark");
	applyTheme();
	draw();
}
prefersDark.addEventListener("change", applyTheme);
applyTheme();

// The frame

const counted = {
	dead: () => shared.overview.get("counts")?.dead,
	workers: () => [...shared.overview].filter(([key, row]) => key.startsWith("worker:") && row.state !== "dead").length,
};

/** The pages that the caller may open. */
export function visible() {
	return Object.keys(PAGES).filter((name) => (name !== "tokens" || allows("admin")) && !(shared.session?.tenant && WHOLE.includes(name)));
}

const link = (name, current, ...more) => h("a.item", { key: name, href: href(name), "aria-current": name === current ? "page" : null }, icon(PAGES[name][1]), PAGES[name][0], more);
const small = (title, onclick, shown) => h("button.plain.slim", { title, "aria-label": title, onclick }, shown);

function rail(current) {
	const { name, role, tenant, store } = shared.session;
	return h("nav.rail", { "aria-label": "Pages" },
		h("a.brand", { href: href("home") }, icon("brand"), "Windlass"),
		visible().map((each) => link(each, current, counted[each]?.() > 0 && h("span.count", count(counted[each](), 10000)))),
		h("div.foot",
			store && h("div.row", icon("chip"), h("span.clip", store)),
			h("div.row", h("span.clip.grow", { title: `${name}, ${role}` }, `${name} · ${role}${tenant ? ` of ${tenant}` : ""}`),
				h("button.plain.slim", { title: "Times in UTC or in your zone", onclick: () => { clock.utc = !clock.utc; draw(); } }, clock.utc ? "UTC" : "local"),
				small("Light or dark", nextTheme, icon(isDark() ? "sun" : "moon")),
				small("Keys", keysHelp, h("kbd", "?"))),
			signedIn() && h("button.plain.slim", signOut, "Sign out")));
}

function tabs(current) {
	const dead = counted.dead();
	return h("nav.tabs", { "aria-label": "Pages" },
		TABS.filter((name) => visible().includes(name)).map((name) => link(name, current, name === "errors" && dead > 0 && h("span.badge", dead > 99 ? "99+" : dead))),
		h("a.item", { href: "#more", onclick: (event) => { event.preventDefault(); more(); } }, icon("more"), "More"));
}

function more() {
	dialog((close) => h("div.more", { onclick: () => close() }, visible().filter((name) => !TABS.includes(name)).map((name) => link(name)),
		h("button", nextTheme, "Light or dark"), signedIn() && h("button", signOut, "Sign out")));
}

const asOf = () => moment(new Date(live.at).toISOString());

function topbar() {
	const { paused, state } = live;
	return h("header.topbar",
		h("h1.clip", h("bdi", page?.title ?? "Windlass")),
		page?.bar?.(),
		h("button.find", { onclick: palette, "aria-label": "Search or do" }, icon("search"), h("span.hint", "Search or do…"), h("kbd", "Ctrl K")),
		h("button.live", { "data-state": state, title: paused ? "Go live (p)" : "Pause everything on this page (p)", onclick: () => setPaused(!paused) },
			h("span.dot"), { live: "Live", lost: "Lost", paused: "Paused" }[state], h("span.quiet.wide-only", asOf()), icon(paused ? "play" : "pause")));
}

function notice() {
	const lost = live.lostSince && Math.round((now() - live.lostSince) / 1000);
	if (live.paused) return h("div.notice", { key: "paused" }, icon("pause"), h("strong", `Paused at ${asOf()}`), h("span.second", "Everything on this page is as of then."), h("button.primary.slim.push", () => setPaused(false), icon("play"), "Go live"));
	if (lost >= 2) return h("div.notice", { key: "lost" }, mark("failed", "failed", "", false), h("strong", `Connection lost ${lost} s ago`), h("span.second", `What you see is as of ${asOf()}.`), h("button.slim.push", connect, "Try now"));
	return !lost && live.problem && h("div.notice", { key: "problem", role: "alert" }, mark("dead", "dead", "", false), h("strong", live.problem));
}

function render() {
	if (!shared.session) return;
	const { page: current } = here();
	document.title = page ? `${page.title} · Windlass` : "Windlass";
	const content = failed ? failure(failed, openPage) : page ? page.view() : waiting && skeleton();
	patch(app, [rail(current), h("div", { key: "page" }, topbar(), h("main", { id: "main", tabindex: "-1" }, notice(), runningActions(allows), content)), tabs(current)]);
}

// Pages

const missing = { title: "Not here", view: () => h("section.panel", empty("search", "There is no such page", [], [h("a.button", { href: href("home") }, "Home")])) };

async function load(name, context) {
	const { tenant } = shared.session;
	if (!(name in PAGES)) return missing;
	if (tenant && name === "home") {
		go(href("jobs"), "replaceState");
		return missing;
	}
	if (tenant && WHOLE.includes(name)) throw new Problem({ detail: `This page shows all tenants, and your token is for the tenant ${tenant}.` }, 403);
	const module = await import(`./pages/${name === "jobs" && context.rest.length ? "job" : name}.js`);
	return module.open({ ...context, draw, shared, allows });
}

async function openPage() {
	if (!shared.session) return; // the door is shown: the address stays, and is opened after it
	const mine = (opened += 1);
	const { page: name, ...context } = here();
	page?.close?.();
	page = failed = null;
	waiting = false;
	setTimeout(() => { if (mine === opened && !page) { waiting = true; draw(); } }, 150);
	try {
		const made = await load(name, context);
		if (mine !== opened) return made.close?.();
		page = made;
	} catch (problem) {
		if (mine !== opened) return;
		if (problem.status === 401) return login(problem.message);
		if (!(problem instanceof Problem || problem instanceof TypeError)) throw problem;
		failed = problem;
	}
	draw();
}

// Who looks

function close() {
	opened += 1; // a page that is on its way does not open any more
	page?.close?.();
	page = null;
	for (const end of leave) end();
	leave = [];
}

/** The door: a form of the page that asks for a token. */
function login(why = "") {
	close();
	shared.session = null;
	patch(app, []);
	const made = (form) => {
		form.append(document.getElementById("door").content.cloneNode(true));
		form.querySelector(".mistake").textContent = why;
	};
	const enter = async (event) => {
		event.preventDefault();
		try {
			await post("session", { token: event.target.token.value.trim() });
			localStorage.setItem(SIGNED, "1");
			await start();
		} catch (problem) {
			login(problem.message);
		}
	};
	patch(app, h("main", { id: "main" }, h("section.panel", h("header", h("h1", "Windlass")), h("form.stack.body", { onsubmit: enter, made }))));
}

const signedIn = () => localStorage.getItem(SIGNED) === "1";

async function signOut() {
	await del("session");
	localStorage.removeItem(SIGNED);
	await start();
}

async function start() {
	close();
	const sent = Date.now();
	try {
		shared.session = await get("session");
	} catch (problem) {
		if (problem.status === 401) return login();
		failed = problem;
		shared.session = { name: "", role: "viewer", tenant: null };
	}
	if (shared.session.now) clock.offset = new Date(shared.session.now).getTime() - (sent + Date.now()) / 2;
	leave = [follow("bulk", {}, (rows) => { learnActions(rows); draw(); })];
	if (shared.session.tenant === null) leave.push(follow("overview", {}, (rows) => { shared.overview = rows; draw(); }));
	await openPage();
	// A module whose first fetch failed stays broken until a reload: each is fetched while the server answers.
	for (const name of [...Object.keys(PAGES), "job"]) import(`./pages/${name}.js`).catch(() => {});
}

addEventListener("unhandledrejection", (event) => {
	const problem = event.reason;
	if (!(problem instanceof Problem)) return;
	event.preventDefault();
	if (problem.status === 401) login(problem.message);
	else say(problem.message, 10);
});

startRouter(openPage);
startKeys({ pages: PAGES, go: (name) => go(href(name)), page: () => page });
onLive(draw);
setInterval(() => { if (!live.paused) { if (!live.lostSince) live.at = now(); draw(); } }, 1000);
start();
