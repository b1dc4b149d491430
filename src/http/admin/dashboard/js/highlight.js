// Approximate syntax highlighting of YAML. Errors are reported by the validator.

import { h } from './dom.js';

const PARTS = /(?<comment>(?<=^|\s)#.*$)|(?<key>[\w.-]+)(?=\s*:(\s|$))|(?<value>"[^"]*"|'[^']*')|(?<amount>(?<![\w.-])\d[\d_.]*(?![\w.-]))/g;

/** Renders one line. */
export function highlightLine(line) {
  const node = h('div');
  let done = 0;
  for (const found of line.matchAll(PARTS)) {
    const kind = Object.keys(found.groups).find((name) => found.groups[name] !== undefined);
    node.append(line.slice(done, found.index), h('span', { class: kind }, found[0]));
    done = found.index + found[0].length;
  }
  // An empty line must have the height of the others.
  node.append(line.slice(done) || (done === 0 ? ' ' : ''));
  return node;
}
