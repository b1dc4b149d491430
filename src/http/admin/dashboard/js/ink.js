// Colours a line of YAML, roughly: what is wrong with it is said elsewhere.

import { h } from './dom.js';

const PARTS = /(?<comment>(?<=^|\s)#.*$)|(?<key>[\w.-]+)(?=\s*:(\s|$))|(?<value>"[^"]*"|'[^']*')|(?<amount>(?<![\w.-])\d[\d_.]*(?![\w.-]))/g;

/** One line, as an element. */
export function inked(line) {
  const node = h('div');
  let done = 0;
  for (const found of line.matchAll(PARTS)) {
    const kind = Object.keys(found.groups).find((name) => found.groups[name] !== undefined);
    node.append(line.slice(done, found.index), h('span', { class: kind }, found[0]));
    done = found.index + found[0].length;
  }
  // An empty line has to be as high as the others.
  node.append(line.slice(done) || (done === 0 ? ' ' : ''));
  return node;
}
