// Descriptors as text: `key=value,key=value`.

/**
 * Reads one line. A comma that no `key=` follows belongs to the value before it. Throws what is wrong.
 */
export function readDescriptor(line) {
  const pairs = [];
  for (const part of line.split(',')) {
    const at = part.indexOf('=');
    const isKey = at > 0 && /^[^<>"'\s/]+$/.test(part.slice(0, at).trim());
    if (isKey || pairs.length === 0) {
      if (part.trim() === '') throw new Error('a descriptor is key=value, or more of these with commas between them');
      pairs.push(at < 0 ? { key: part.trim(), value: '' } : { key: part.slice(0, at).trim(), value: part.slice(at + 1) });
    } else {
      pairs.at(-1).value += `,${part}`;
    }
  }
  return pairs;
}

export const writeDescriptor = (pairs) => pairs.map(({ key, value }) => `${key}=${value}`).join(',');
