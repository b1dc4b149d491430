// Dialogs: the browser traps the focus, closes them on Escape, and restores the focus.

import { h, text, unique } from './dom.js';
import { busy, button } from './controls.js';
import { say } from './messages.js';

/**
 * Opens a dialog with a form. `submit` is called when it is sent; the dialog closes when that returns true, and shows the
 * error it throws. If the browser closed the dialog before, the error is shown as a message. Returns a handle to close the
 * dialog, to show an error, and to change heading and label.
 */
export function openDialog({ title, content, label, danger = false, wide = false, submit, closed }) {
  const heading = h('h2', { id: unique('dialog') }, title);
  const wrong = h('p', { class: 'bad', role: 'alert' });
  const inside = h('div', { class: 'content' }, content, wrong);
  const send = submit && h('button', { type: 'submit', class: danger ? 'danger' : 'primary' }, label);
  const close = () => isSending || node.close();
  const foot = h('footer', {}, button(submit ? 'Cancel' : 'Close', close), send);
  const form = h('form', { on: { submit: sent } }, h('header', {}, heading), inside, foot);
  const node = h('dialog', { class: wide ? 'wide' : '', 'aria-labelledby': heading.id,
    on: { close: removed, cancel: (event) => isSending && event.preventDefault() } }, form);
  const handle = { node, heading, inside, foot, send, close, wrong: (message) => text(wrong, message), isOpen: () => node.open };
  let isSending = false;

  async function sent(event) {
    event.preventDefault();
    if (!submit || isSending) return;
    setSending(true);
    handle.wrong('');
    try {
      if (await submit(handle)) node.close();
    } catch (error) {
      showError(error.message);
    } finally {
      setSending(false);
    }
  }

  function setSending(is) {
    isSending = is;
    foot.querySelectorAll('button').forEach((one) => busy(one, is));
  }

  function showError(message) {
    if (node.open) handle.wrong(message);
    else say(message, 'bad');
  }

  function removed() {
    node.remove();
    closed?.();
  }

  document.body.append(node);
  node.showModal();
  return handle;
}
