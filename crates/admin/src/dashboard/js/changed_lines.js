// Approximate and fast comparison of lines, for the marks beside them.

/** The lines (from 1) of a text that are not in the old one. */
export function changedLines(old, text) {
  if (old === undefined || old === text) return [];
  const left = new Map();
  for (const line of old.split('\n')) left.set(line, (left.get(line) ?? 0) + 1);
  return text.split('\n').flatMap((line, at) => {
    const count = left.get(line) ?? 0;
    left.set(line, count - 1);
    return count > 0 ? [] : [at + 1];
  });
}
