// Before anything is drawn, so that the page does not flash in the other theme. No module, because those come later.
{
  const theme = localStorage.getItem('tollgate.theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
}
