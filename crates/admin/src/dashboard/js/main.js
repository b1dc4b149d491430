// Starts the page.

import { startFrame, startNavCounts } from './frame.js';
import { watch } from './poll.js';
import { startRoutes } from './routes.js';

startFrame();
startNavCounts();
startRoutes();
watch('me', 'status', 'records');

document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  document.getElementById('main').focus();
});
