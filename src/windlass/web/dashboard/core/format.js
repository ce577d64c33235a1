// Numbers and times as people read them. A count is exact or says that there are more; a time is relative and absolute.

const NBSP = "\u00a0";

/** The difference between the server's clock and this browser's, in milliseconds; set when the page loads. */
export const clock = { offset: 0, utc: false };

export const now = () => Date.now() + clock.offset;

/** 1,284; with `most`, 10,000+ above it. */
export function count(value, most) {
	if (value === null || value === undefined) return "—";
	if (typeof value === "object") return BigInt(value.rawJSON).toLocaleString("en"); // beyond 2^53, see parse()
	return most !== undefined && value > most ? `${most.toLocaleString("en")}+` : value.toLocaleString("en");
}

/** 420 ms, 6.2 s, 38 s, 7 m 52 s, 3 h 12 m, 2 d 4 h. */
export function span(seconds) {
	if (seconds === null || seconds === undefined) return "—";
	const s = Math.max(0, seconds);
	if (s < 0.9995) return `${Math.round(s * 1000)}${NBSP}ms`;
	if (s < 9.95) return `${(Math.round(s * 10) / 10).toString()}${NBSP}s`;
	if (s < 59.5) return `${Math.round(s)}${NBSP}s`;
	const units = [["d", 86400, "h", 3600], ["h", 3600, "m", 60], ["m", 60, "s", 1]];
	const [big, size, small, part] = units.find(([, size, , part]) => s >= size - part / 2) ?? units[2];
	const whole = Math.floor((s + part / 2) / size);
	const rest = Math.floor(((s + part / 2) % size) / part);
	return `${whole}${NBSP}${big}${rest ? `${NBSP}${String(rest).padStart(big === "d" ? 1 : 2, "0")}${NBSP}${small}` : ""}`;
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

/** 2 m ago, in 38 s, now. */
export function relative(text) {
	if (!text) return "—";
	const seconds = (new Date(text).getTime() - now()) / 1000;
	if (Math.abs(seconds) < 1) return "now";
	const coarse = Math.abs(seconds) < 10 ? Math.round(Math.abs(seconds)) : Math.abs(seconds);
	return seconds < 0 ? `${span(coarse)} ago` : `in ${span(coarse)}`;
}

/** in 38 s; "due now" when the time has come: never a negative number. */
export function countdown(text) {
	const seconds = (new Date(text).getTime() - now()) / 1000;
	return seconds <= 0.5 ? "due now" : `in ${span(Math.ceil(seconds))}`;
}

export function percent(part, whole) {
	if (!whole) return "—";
	const value = (100 * part) / whole;
	return `${value && value < 9.95 ? value.toFixed(1) : Math.round(value)}${NBSP}%`;
}

export const cents = (value) => `${count(value)}${NBSP}${value === 1 ? "cent" : "cents"}`;

export const shortId = (id) => id.slice(-8);

export const inWords = (action) => action.toLowerCase().replaceAll("_", " ");

export const many = (number, word, most) => `${count(number, most)} ${word}${number === 1 ? "" : "s"}`;
