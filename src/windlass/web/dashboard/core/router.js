// Every view is a URL: the path names the page, the query its filter.

const root = new URL(".", document.baseURI).pathname;

export function here() {
	const path = location.pathname.startsWith(root) ? location.pathname.slice(root.length) : "";
	const [page, ...rest] = path.split("/").filter(Boolean);
	return { page: page ?? "home", rest: rest.map(decodeURIComponent), params: new URLSearchParams(location.search) };
}

export function href(page, params = {}) {
	const query = new URLSearchParams(Object.entries(params).filter(([, value]) => (value ?? "") !== ""));
	return root + (page === "home" ? "" : page) + (query.size ? `?${query}` : "");
}

export const quote = (text) => (/[\s,"*:]/.test(text) ? `"${text.replaceAll('"', '\\"')}"` : text);

export const jobsOf = (field, value) => href("jobs", { filter: `${field}:${quote(value)}` });
export const jobHref = (id) => href(`jobs/${id}`);

let changed = () => {};

export function go(to, how = "pushState") {
	history[how](null, "", to);
	changed();
}

/** Put what is opened on this page into its address, without opening the page again. */
export function remember(params) {
	const { page, rest, params: before } = here();
	history.replaceState(null, "", href([page, ...rest].join("/"), { ...Object.fromEntries(before), ...params }));
}

export function startRouter(handler) {
	changed = handler;
	addEventListener("popstate", handler);
	document.addEventListener("click", (event) => {
		const link = event.target.closest?.("a[href]");
		if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
		const to = new URL(link.getAttribute("href"), document.baseURI); // a link inside of a picture has another `href`
		if (to.origin !== location.origin || !to.pathname.startsWith(root) || to.pathname.startsWith(`${root}api/`)) return;
		event.preventDefault();
		go(to.pathname + to.search);
	});
}
