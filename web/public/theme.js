// Before the first paint: a chosen theme, if it is not the system's.
(() => {
  try {
    const theme = localStorage.getItem('threadkeep.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // No storage: the system's theme.
  }
})();
