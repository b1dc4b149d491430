// Dialogs: the browser keeps the focus inside, closes on Escape, and gives the focus back.

import { h, text, unique } from './dom.js';
import { button } from './controls.js';
import { say } from './messages.js';

/**
 * Opens a dialog with a form. `submit` is called when it is sent; the dialog closes when that gives true, and shows what
 * it throws. It stays open until then, and what comes after a browser closed it all the same is told as a message. Gives a
 * handle to close it and to say what is wrong.
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
    on: { close: gone, cancel: (event) => isSending && event.preventDefault() } }, form);
  const handle = { node, inside, foot, send, close, wrong: (message) => text(wrong, message), isOpen: () => node.open };
  let isSending = false;

  async function sent(event) {
    event.preventDefault();
    if (!submit || isSending) return;
    work(true);
    handle.wrong('');
    try {
      if (await submit(handle)) node.close();
    } catch (error) {
      tell(error.message);
    } finally {
      work(false);
    }
  }

  function work(is) {
    isSending = is;
    foot.querySelectorAll('button').forEach((one) => busy(one, is));
  }

  function tell(message) {
    if (node.open) handle.wrong(message);
    else say(message, 'bad');
  }

  function gone() {
    node.remove();
    closed?.();
  }

  document.body.append(node);
  node.showModal();
  return handle;
}

/** Marks a button as at work, without taking the focus from it. */
export function busy(node, is) {
  if (is) node.setAttribute('aria-disabled', 'true');
  else node.removeAttribute('aria-disabled');
}
