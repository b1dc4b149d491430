// Dialog for the author's name where no token is required.

import { author } from '../author.js';
import { field } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { refresh } from '../poll.js';

export function nameDialog() {
  const name = h('input', { type: 'text', maxlength: 60, autocomplete: 'username', value: author.get() });
  openDialog({
    title: 'Your name',
    content: field('Name', name, 'The audit log records it with your changes. Without a token it cannot be verified.'),
    label: 'Save',
    submit: async () => {
      author.set(name.value.trim());
      await refresh('me');
      return true;
    },
  });
}
