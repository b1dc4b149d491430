// What identifies the caller: the token of requests, kept for the lifetime of the tab, and without tokens the name of the
// author, which the instance records and cannot verify.

const AUTHOR = 'tollgate.author';

/** The name of the author of changes. */
export const author = {
  get: () => localStorage.getItem(AUTHOR) ?? '',
  set: (name) => (name ? localStorage.setItem(AUTHOR, name) : localStorage.removeItem(AUTHOR)),
  /** As a header value: the bytes of UTF-8. */
  header: () => String.fromCharCode(...new TextEncoder().encode(author.get())),
};

const TOKEN = 'tollgate.token';

/** The token of requests. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};
