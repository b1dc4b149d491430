// Three-way merge of an edit and a newer version, by lines.

const MAX_CELLS = 4_000_000;

/** Merges files. Returns them and the names of those with conflicts. */
export function mergeFiles(base, mine, theirs, theirName) {
  const names = [...new Set([...Object.keys(base), ...Object.keys(mine), ...Object.keys(theirs)])];
  const files = {};
  const conflicts = [];
  for (const name of names) {
    const { text, hasConflict } = mergeFile(base[name], mine[name], theirs[name], theirName);
    if (text !== undefined) files[name] = text;
    if (hasConflict) conflicts.push(name);
  }
  return { files, conflicts };
}

function mergeFile(base, mine, theirs, theirName) {
  if (mine === base || mine === theirs) return { text: theirs };
  if (theirs === base) return { text: mine };
  // One side deleted the file and the other changed it: keeps the text, as a conflict.
  if (mine === undefined || theirs === undefined) return { text: mine ?? theirs, hasConflict: true };
  return mergeText(base ?? '', mine, theirs, theirName);
}

/** Merges one text; conflicting lines are both kept, between conflict markers. */
export function mergeText(base, mine, theirs, theirName) {
  const [old, ours, other] = [base, mine, theirs].map((text) => text.split('\n'));
  const [inOurs, inOther] = [matches(old, ours), matches(old, other)];
  const merged = [];
  let hasConflict = false;
  let [from, fromOurs, fromOther] = [0, 0, 0];
  for (let at = 0; at <= old.length; at += 1) {
    const isEnd = at === old.length;
    const [toOurs, toOther] = isEnd ? [ours.length, other.length] : [inOurs[at], inOther[at]];
    if (toOurs < 0 || toOther < 0) continue;
    const parts = [old.slice(from, at), ours.slice(fromOurs, toOurs), other.slice(fromOther, toOther)];
    const chosen = choose(...parts);
    hasConflict ||= chosen === null;
    merged.push(...(chosen ?? marked(parts[1], parts[2], theirName)));
    if (!isEnd) merged.push(old[at]);
    [from, fromOurs, fromOther] = [at + 1, toOurs + 1, toOther + 1];
  }
  return { text: merged.join('\n'), hasConflict };
}

function choose(old, ours, other) {
  if (isSame(ours, old) || isSame(ours, other)) return other;
  return isSame(other, old) ? ours : null;
}

const isSame = (a, b) => a.length === b.length && a.every((line, at) => line === b[at]);

const marked = (ours, other, theirName) => ['<<<<<<< yours', ...ours, '=======', ...other, `>>>>>>> ${theirName}`];

/** The index of each old line in the new text, or -1. */
export function matches(old, other) {
  const found = new Array(old.length).fill(-1);
  let start = 0;
  while (start < old.length && start < other.length && old[start] === other[start]) found[start] = start++;
  let [end, otherEnd] = [old.length, other.length];
  while (end > start && otherEnd > start && old[end - 1] === other[otherEnd - 1]) found[--end] = --otherEnd;
  const [height, width] = [end - start, otherEnd - start];
  // Texts that differ too much are treated as changed as a whole.
  if (height * width > MAX_CELLS) return found;
  const longest = lengths(old, other, start, height, width);
  let [i, j] = [0, 0];
  while (i < height && j < width) {
    if (old[start + i] === other[start + j]) found[start + i++] = start + j++;
    else if (longest[i + 1][j] >= longest[i][j + 1]) i += 1;
    else j += 1;
  }
  return found;
}

/** Length of the longest common subsequence after each pair of lines. */
function lengths(old, other, start, height, width) {
  const longest = Array.from({ length: height + 1 }, () => new Uint32Array(width + 1));
  for (let i = height - 1; i >= 0; i -= 1) {
    for (let j = width - 1; j >= 0; j -= 1) {
      longest[i][j] = old[start + i] === other[start + j]
        ? longest[i + 1][j + 1] + 1
        : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  return longest;
}
