// Locates the limit of a rule, from the rule's first line.

const LIMIT = /requests_per_unit["']?\s*:\s*["']?(\d[\d_]*)/;
const ALIAS = /(?:rate_limit|<<)\s*:\s*\*([\w-]+)/;

/** Position of the limit of the rule that begins at a line (from 1): `{line, from, to, isShared}`, or null. */
export function findLimit(text, line) {
  const lines = text.split('\n');
  const own = block(lines, line - 1);
  for (const at of own) {
    const found = number(lines[at], at);
    if (found) return { ...found, isShared: false };
  }
  const alias = own.map((at) => ALIAS.exec(lines[at])?.[1]).find(Boolean);
  return alias ? findShared(lines, alias) : null;
}

/** Position of a limit that several rules share through a YAML anchor. */
function findShared(lines, name) {
  const start = lines.findIndex((line) => new RegExp(`&${name}(?![\\w-])`).test(line));
  if (start < 0) return null;
  const found = block(lines, start).map((at) => number(lines[at], at)).find(Boolean);
  return found ? { ...found, isShared: true } : null;
}

function number(line, at) {
  const found = LIMIT.exec(line.replace(/(^|\s)#.*$/, ''));
  if (!found) return null;
  const to = found.index + found[0].length;
  return { line: at + 1, from: to - found[1].length, to };
}

const indent = (line) => line.search(/\S/);
const isBlank = (line) => /^\s*(#|$)/.test(line);

/** The lines of the block that begins at `start`, without its nested descriptors. */
function block(lines, start) {
  if (start < 0 || start >= lines.length) return [];
  const outer = indent(lines[start]);
  const own = [start];
  let inner = null;
  for (let at = start + 1; at < lines.length; at += 1) {
    if (isBlank(lines[at])) continue;
    const depth = indent(lines[at]);
    if (depth <= outer) break;
    const isInside = inner !== null && (depth > inner || (depth === inner && /^\s*-/.test(lines[at])));
    if (isInside) continue;
    inner = /^\s*descriptors\s*:/.test(lines[at]) ? depth : null;
    own.push(at);
  }
  return own;
}
