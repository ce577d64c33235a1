// Every view is a URL: the path names the page, the query its filter.

const root = new URL(".", document.baseURI).pathname;

export function here() {
  const path = location.pathname.startsWith(root) ? location.pathname.slice(root.length) : "";
  const [page, ...rest] = path.split("/").filter(Boolean);
  return { page: page ?? "home", rest: rest.map(decodeURIComponent), params: new URLSearchParams(location.search) };
}

export function href(page, params) {
  const query = new URLSearchParams(Object.entries(params ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const path = page === "home" ? "" : page;
  return root + path + (query.size ? `?${query}` : "");
}

let changed = () => {};

export function go(to, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  changed();
}

export function startRouter(handler) {
  changed = handler;
  addEventListener("popstate", handler);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.target) return;
    const to = new URL(link.href);
    if (to.origin !== location.origin || !to.pathname.startsWith(root) || to.pathname.startsWith(`${root}api/`)) return;
    event.preventDefault();
    go(to.pathname + to.search);
  });
}
