// Elements, made by hand: what comes from traffic goes in as text and is never read as markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An element: `on` has its listeners, `data` its data attributes, all else are attributes. */
export function h(tag, props, ...children) {
  return furnish(document.createElement(tag), props, children);
}

/** The same, of a drawing. */
export function svg(tag, props, ...children) {
  return furnish(document.createElementNS(SVG, tag), props, children);
}

function furnish(node, props, children) {
  node.append(...children.flat(2).filter(isShown));
  for (const [name, value] of Object.entries(props ?? {})) {
    if (!isShown(value)) continue;
    if (name === 'on') listen(node, value);
    else if (name === 'data') Object.assign(node.dataset, value);
    else if (name === 'value') node.value = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  return node;
}

const isShown = (value) => value !== undefined && value !== null && value !== false;

function listen(node, listeners) {
  for (const [event, hear] of Object.entries(listeners)) node.addEventListener(event, hear);
}

/** Changes a text only where it differs, so that what is selected or announced stays. */
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

/** Replaces what is in a node when its mark has changed since the last time. */
export function redraw(node, mark, draw) {
  if (node.dataset.mark === mark) return;
  node.dataset.mark = mark;
  node.replaceChildren(...[draw()].flat(2).filter(isShown));
}

let made = 0;

/** A name for an element that no other has. */
export const unique = (stem) => `${stem}-${++made}`;
