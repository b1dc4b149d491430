// Descriptors as text: `key=value,key=value`.

/**
 * Parses one line. A comma without a following `key=` is part of the value before it. Throws on errors.
 */
export function readDescriptor(line) {
  const pairs = [];
  for (const part of line.split(',')) {
    const at = part.indexOf('=');
    const isKey = at > 0 && /^[^<>"'\s/]+$/.test(part.slice(0, at).trim());
    if (isKey || pairs.length === 0) {
      if (part.trim() === '') throw new Error('invalid descriptor; expected key=value pairs, separated by commas');
      pairs.push(at < 0 ? { key: part.trim(), value: '' } : { key: part.slice(0, at).trim(), value: part.slice(at + 1) });
    } else {
      pairs.at(-1).value += `,${part}`;
    }
  }
  return pairs;
}

/** Pairs of a list entry: an exact value in quotes, a pattern without. */
export const writeListed = (pairs) => pairs
  .map(({ key, value, match }) => `${key}=${match === 'exact' ? JSON.stringify(value) : value}`).join(',');

export const writeDescriptor = (pairs) => pairs.map(({ key, value }) => `${key}=${value}`).join(',');
