// Numbers and times as people read them. A count is exact or says that there are more; a time is relative and absolute.

const NBSP = "\u00a0";

/** The difference between the server's clock and this browser's, in milliseconds; set when the page loads. */
export const clock = { offset: 0, utc: false };

export const now = () => Date.now() + clock.offset;

/** 1,284; with `most`, 10,000+ above it. */
export function count(value, most) {
	if (value == null) return "—";
	if (typeof value === "object") return BigInt(value.rawJSON).toLocaleString("en"); // beyond 2^53, see parse()
	return value > most ? `${most.toLocaleString("en")}+` : value.toLocaleString("en");
}

/** 420 ms, 6.2 s, 38 s, 7 m 52 s, 3 h 12 m, 2 d 4 h. */
export function span(seconds) {
	if (seconds == null) return "—";
	const s = Math.max(0, seconds);
	const say = (number, unit) => `${number}${NBSP}${unit}`;
	if (s < 0.9995) return say(Math.round(s * 1000), "ms");
	if (s < 59.5) return say(Math.round(s * (s < 9.95 ? 10 : 1)) / (s < 9.95 ? 10 : 1), "s");
	const [all, size, unit, small] = s < 3599.5 ? [s, 60, "m", "s"] : s < 86370 ? [s / 60, 60, "h", "m"] : [s / 3600, 24, "d", "h"];
	const rest = Math.round(all) % size;
	return say(Math.floor(Math.round(all) / size), unit) + (rest ? NBSP + say(size === 24 ? rest : two(rest), small) : "");
}

const two = (n) => String(n).padStart(2, "0");

/** 12:02:31 today, Tue 17 Nov, 03:00 on another day. */
export function moment(text) {
	if (!text) return "—";
	const at = new Date(text);
	const get = (name) => (clock.utc ? at[`getUTC${name}`]() : at[`get${name}`]());
	const time = `${two(get("Hours"))}:${two(get("Minutes"))}`;
	const today = new Date(now());
	const same = clock.utc ? at.toISOString().slice(0, 10) === today.toISOString().slice(0, 10) : at.toDateString() === today.toDateString();
	if (same) return `${time}:${two(get("Seconds"))}`;
	const days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
	const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
	return `${days[get("Day")]} ${get("Date")} ${months[get("Month")]}, ${time}`;
}

const until = (text) => (new Date(text) - now()) / 1000;

/** 2 m ago, in 38 s, now: its largest unit is enough. */
export function relative(text) {
	if (!text) return "—";
	const seconds = until(text);
	if (Math.abs(seconds) < 0.5) return "now";
	return seconds < 0 ? `${coarse(seconds)} ago` : `in ${coarse(seconds)}`;
}

const coarse = (seconds) => span(Math.max(1, Math.round(Math.abs(seconds)))).split(NBSP, 2).join(NBSP);

/** How long ago, for the words before it: paused 2 m. */
export const ago = (text) => coarse(until(text));

/** The type of an error: Windlass's own are known without its name. */
export const errorName = (type) => type.replace(/^windlass\./, "");

/** in 38 s; "due now" when the time has come: never a negative number. */
export function countdown(text) {
	const seconds = until(text);
	return seconds <= 0.5 ? "due now" : `in ${span(Math.ceil(seconds))}`;
}

export function percent(part, whole) {
	if (!whole) return "—";
	const value = (100 * part) / whole;
	return `${value && value < 9.95 ? value.toFixed(1) : Math.round(value)}${NBSP}%`;
}

export const tenth = (value) => String(Math.round(value * 10) / 10);

export const cents = (value) => `${count(value)}${NBSP}${value === 1 ? "cent" : "cents"}`;

export const shortId = (id) => id.slice(-8);

export const inWords = (action) => action.toLowerCase().replaceAll("_", " ");

export const many = (number, word, most) => `${count(number, most)} ${word}${number === 1 ? "" : "s"}`;

/** A word of a command, as a shell reads it. */
export const shell = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);
