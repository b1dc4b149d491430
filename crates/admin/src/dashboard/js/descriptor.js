// Descriptors as text: `key=value,key=value`.

/** Length of a value without quotes: up to a comma before another pair, or before nothing, which is an error. */
function valueLength(text) {
  for (let at = text.indexOf(','); at >= 0; at = text.indexOf(',', at + 1)) {
    const [key, ...value] = text.slice(at + 1).split(',')[0].split('=');
    if (value.length > 0 ? !/[<>"'\s/]/.test(key.trim()) : key.trim() === '') return at;
  }
  return text.length;
}

/**
 * Parses one line, as the commands do: a value in double quotes is a JSON string, and a comma without a following `key=` is
 * part of the value before it. Throws on errors.
 */
export function readDescriptor(line) {
  const pairs = [];
  for (let rest = `,${line}`; rest !== '';) {
    const [, key, after] = /^,\s*([^=,]*[^=,\s])\s*=\s*(.*)$/s.exec(rest) ?? [];
    const [quoted] = /^"(?:[^"\\]|\\.)*"\s*(?=,|$)/.exec(after ?? '') ?? [];
    if (key === undefined || (after.startsWith('"') && !quoted)) {
      throw new Error('invalid descriptor; expected key=value pairs, separated by commas, with values as they are or as JSON strings');
    }
    const length = quoted ? quoted.length : valueLength(after);
    pairs.push({ key, value: quoted ? JSON.parse(quoted) : after.slice(0, length).trimEnd() });
    rest = after.slice(length);
  }
  return pairs;
}

/** Pairs of a list entry: an exact value in quotes, a pattern without. */
export const writeListed = (pairs) => pairs
  .map(({ key, value, match }) => `${key}=${match === 'exact' ? JSON.stringify(value) : value}`).join(',');

/** Pairs with values in quotes where `readDescriptor` needs them. */
export const writeDescriptor = (pairs) => pairs
  .map(({ key, value }) => `${key}=${/^["\s]|\s$|[,\p{Cc}]/u.test(value) ? JSON.stringify(value) : value}`).join(',');
