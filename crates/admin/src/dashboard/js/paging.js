// Lists that arrive in pages: the first page is polled, and a button loads those after it.

import { call, query } from './api.js';
import { busy, button } from './controls.js';
import { say } from './messages.js';
import { all } from './observable.js';
import { data, watch } from './poll.js';

/**
 * Shows the entries of a resource in `list`. They are in the field `entries` of
 * a response, and `id` names their field that identifies one. The entries after an entry are
 * requested by its id, or with `hasTokens` by the token of the page before. `isLast(entry)` tells that none follow.
 */
export function paged(list, { resource, entries = resource, id = 'id', label, limit, hasTokens = false, isLast = () => false }) {
  let further = [];
  let token;
  let isEnd = false;
  const more = button(label, load, '', { hidden: hasTokens });
  const polled = () => data[resource].get()?.[entries] ?? [];
  const shown = () => {
    const ids = new Set(polled().map((entry) => entry[id]));
    return [...polled(), ...further.filter((entry) => !ids.has(entry[id]))];
  };
  const nextToken = () => (token === undefined ? data[resource].get()?.next ?? null : token);

  function draw() {
    list.update(shown());
    more.hidden = isEnd || (hasTokens && nextToken() === null) || isLast(shown().at(-1));
  }

  async function load() {
    busy(more, true);
    try {
      const page = await call('GET', query(resource, { before: hasTokens ? nextToken() : shown().at(-1)?.[id], limit }));
      // A log keeps what leaves the polled page; what leaves another list has ended.
      further = [...(hasTokens ? further : shown()), ...page[entries]];
      token = page.next;
      isEnd = !hasTokens && page[entries].length === 0;
      draw();
    } catch (error) {
      say(error.message, 'bad');
    }
    busy(more, false);
  }

  const drop = (entry) => (further = further.filter((other) => other[id] !== entry[id]));
  return { more, draw, drop, stop: all(watch(resource), data[resource].subscribe((answer) => answer && draw())) };
}
