// The frame of every page: rail, top bar, live clock, theme, keys. A page is a module with `open(context)`.

import { keysHelp, palette, startKeys } from "./core/keys.js";
import {
	allows, clock, connect, count, del, dialog, draw, empty, failure, follow, form, get, go, h, here, href, icon, iconButton, learnActions,
	live, mark, moment, notice, now, onDraw, onLive, patch, post, Problem, rowsOf, runningActions, say, setPaused, shared, skeleton, startRouter,
} from "./core/kit.js";

/** The pages: title, icon, and the letter after `g`. */
export const PAGES = {
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

const app = document.getElementById("app");
let page = null; // the open page: {title, view, close, keys, bar}
let opened = 0;
let failed = null;
let waiting = false;
let leave = []; // what ends the lists of every page

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

const counted = {
	dead: () => shared.overview.get("counts")?.dead,
	workers: () => rowsOf("worker:").filter((row) => row.state !== "dead").length,
};

export function visible() {
	const hidden = shared.session?.tenant ? WHOLE : [];
	return Object.keys(PAGES).filter((name) => (name !== "tokens" || allows("admin")) && !hidden.includes(name));
}

const link = (name, current, ...more) =>
	h("a.item", { key: name, href: href(name), "aria-current": name === current ? "page" : null }, icon(PAGES[name][1]), PAGES[name][0], more);

function rail(current) {
	const { name, role, tenant, store } = shared.session;
	const zone = () => { clock.utc = !clock.utc; draw(); };
	return h("nav.rail", { label: "Pages" },
		h("a.brand", { href: href("home") }, icon("brand"), "Windlass"),
		visible().map((each) => link(each, current, counted[each]?.() > 0 && h("span.count", count(counted[each](), 10000)))),
		h("div.foot",
			store && h("div.row", icon("chip"), h("span.clip", { title: store }, store)),
			h("div.row", icon("people"), h("span.clip", { title: `${name}, ${role}` }, `${name} · ${role}${tenant ? ` of ${tenant}` : ""}`)),
			h("div.row",
				h("button.plain.slim", { title: "Times in UTC or in your zone", onclick: zone }, clock.utc ? "UTC" : "local"),
				iconButton("Light or dark", nextTheme, icon(isDark() ? "sun" : "moon")),
				iconButton("Keys", keysHelp, h("kbd", "?")),
				signedIn() && h("button.plain.slim.push", signOut, "Sign out"))));
}

function tabs(current) {
	const dead = counted.dead();
	const badge = dead > 0 && h("span.badge", dead > 99 ? "99+" : dead);
	return h("nav.tabs", { label: "Pages" },
		TABS.filter((name) => visible().includes(name)).map((name) => link(name, current)),
		h("a.item", { href: "#more", onclick: (event) => { event.preventDefault(); more(); } }, icon("more"), "More", badge));
}

function more() {
	dialog((close) => h("div.more", { onclick: () => close() },
		visible().filter((name) => !TABS.includes(name)).map((name) => link(name)),
		h("button", nextTheme, "Light or dark"), signedIn() && h("button", signOut, "Sign out")));
}

const asOf = () => moment(new Date(live.at).toISOString());

function topbar() {
	const { paused, state } = live;
	const title = paused ? "Go live (p)" : "Pause everything on this page (p)";
	return h("header.topbar",
		h("h1.clip", h("bdi", page?.title ?? "Windlass")),
		page?.bar?.(),
		h("button.find", { onclick: palette, label: "Search or do" }, icon("search"), h("span.hint", "Search or do…"), h("kbd", "Ctrl K")),
		h("button.live", { "data-state": state, title, onclick: () => setPaused(!paused) }, h("span.dot"),
			{ live: "Live", lost: "Lost", paused: "Paused" }[state], h("span.quiet.wide-only", asOf()), icon(paused ? "play" : "pause")));
}

function liveNotice() {
	const lost = live.lostSince && Math.round((now() - live.lostSince) / 1000);
	const resume = () => h("button.primary.slim", () => setPaused(false), icon("play"), "Go live");
	if (live.paused) return notice("paused", icon("pause"), `Paused at ${asOf()}`, "Everything on this page is as of then.", resume());
	const again = () => h("button.slim", connect, "Try now");
	const since = `What you see is as of ${asOf()}.`;
	if (lost >= 2) return notice("lost", mark("failed", "failed", "", false), `Connection lost ${lost} s ago`, since, again());
	if (lost || !live.problem) return null;
	return h("div", { key: "problem", role: "alert" }, notice("", mark("dead", "dead", "", false), live.problem));
}

onDraw(() => {
	if (!shared.session) return;
	const { page: current } = here();
	document.title = page ? `${page.title} · Windlass` : "Windlass";
	const content = failed ? failure(failed, openPage) : page ? page.view() : waiting && skeleton();
	const main = h("main", { id: "main", tabindex: "-1" }, liveNotice(), runningActions(), content);
	patch(app, [rail(current), h("div", { key: "page" }, topbar(), main), tabs(current)]);
	app.ariaBusy = String(!page && !failed);
});

const missing = {
	title: "Not here",
	view: () => h("section.panel", empty("search", "There is no such page", [], [h("a.button", { href: href("home") }, "Home")])),
};

async function load(name, context) {
	const { tenant } = shared.session;
	if (!(name in PAGES)) return missing;
	if (tenant && name === "home") {
		go(href("jobs"), "replaceState");
		return missing;
	}
	const why = `This page shows all tenants, and your token is for the tenant ${tenant}.`;
	if (tenant && WHOLE.includes(name)) throw new Problem({ detail: why }, 403);
	const module = await import(`./pages/${name === "jobs" && context.rest.length ? "job" : name}.js`);
	return module.open(context);
}

async function openPage() {
	if (!shared.session) return; // the door is shown: the address stays, and is opened after it
	const mine = (opened += 1);
	const { page: name, ...context } = here();
	page?.close?.();
	page = failed = null;
	waiting = false;
	app.ariaBusy = "true";
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
	const made = (node) => {
		node.append(document.getElementById("door").content.cloneNode(true));
		node.querySelector(".mistake").textContent = why;
	};
	const enter = async ({ target }) => {
		try {
			await post("session", { token: target.token.value.trim() });
			localStorage.setItem(SIGNED, "1");
			await start();
		} catch (problem) {
			login(problem.message);
		}
	};
	const door = form(enter, h("div.stack.body", { made }));
	patch(app, h("main", { id: "main" }, h("section.panel", h("header", h("h1", "Windlass")), door)));
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
	const learn = (rows) => { shared.overview = rows; draw(); };
	leave = [follow("bulk", {}, (rows) => { learnActions(rows); draw(); })];
	if (shared.session.tenant === null) leave.push(follow("overview", {}, learn));
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
setInterval(() => {
	if (live.paused) return;
	if (!live.lostSince) live.at = now();
	draw();
}, 1000);
start();
