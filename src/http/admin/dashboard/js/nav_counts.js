// The counts in the navigation.

import { text } from './dom.js';
import { draft } from './draft.js';
import { count } from './format.js';
import { data } from './poll.js';

const put = (name, value) => text(document.querySelector(`[data-count="${name}"]`), value);

export function startNavCounts() {
  data.status.subscribe((status) => put('rules', status ? count(status.rule_count) : ''));
  data.lists.subscribe((answer) => put('lists', answer?.entries.length ? count(answer.entries.length) : ''));
  data.bans.subscribe((answer) => put('bans', answer?.bans.length ? count(answer.bans.length) + (answer.next ? '+' : '') : ''));
  draft.changed.subscribe(() => put('draft', draft.isChanged() ? 'draft' : ''));
}
