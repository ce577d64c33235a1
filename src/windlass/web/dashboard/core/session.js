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
