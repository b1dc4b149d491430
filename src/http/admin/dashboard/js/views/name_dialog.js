// Asks in whose name changes are made, where no token tells.

import { author } from '../author.js';
import { field } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { refresh } from '../poll.js';

export function nameDialog() {
  const name = h('input', { type: 'text', maxlength: 60, autocomplete: 'username', value: author.get() });
  openDialog({
    title: 'Your name',
    content: field('Name', name, 'It stands in the audit log beside what you change. Without a token nobody can check it.'),
    label: 'Save',
    submit: async () => {
      author.set(name.value.trim());
      await refresh('me');
      return true;
    },
  });
}
