// Numbers for the eye: few digits, a unit, and no false precision.

const SPACE = "\u00a0";
const MINUS = "\u2212";

/** A share of one as 97.3 %; what is not quite none or all does not look like it. */
export function percent(share) {
  if (share > 0 && share < 0.0005) return `<${SPACE}0.1${SPACE}%`;
  if (share < 1 && share > 0.9995) return `>${SPACE}99.9${SPACE}%`;
  return `${(100 * share).toFixed(1)}${SPACE}%`;
}

/** A number with its sign, to so many decimals. */
export function signed(number, decimals) {
  const words = Math.abs(number).toFixed(decimals);
  return Number(words) === 0 ? "0" : (number > 0 ? "+" : MINUS) + words;
}

/** Two decimals, or as many as show two digits of the largest of some numbers. */
export function decimalsFor(largest) {
  return Math.min(8, Math.max(2, 1 - Math.floor(Math.log10(largest))));
}

/** How many, as 1.24 million. */
export function count(number) {
  if (number >= 1e9) return `${Number((number / 1e9).toPrecision(3))} billion`;
  if (number >= 1e6) return `${Number((number / 1e6).toPrecision(3))} million`;
  return number.toLocaleString("en");
}

/** A number as it is, to four digits that count. */
export function plain(number) {
  return Number.isInteger(number) ? number.toLocaleString("en") : String(Number(number.toPrecision(4)));
}
