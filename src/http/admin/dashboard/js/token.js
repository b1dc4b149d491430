// The token of requests. Kept for the lifetime of the tab only.

const NAME = 'tollgate.token';

export const token = {
  get: () => sessionStorage.getItem(NAME),
  set: (value) => sessionStorage.setItem(NAME, value),
  forget: () => sessionStorage.removeItem(NAME),
};
