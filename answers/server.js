// SPDX-License-Identifier: Apache-2.0
// server.js PORT: /after?MS answers so much later, /events sends an event each 200 ms and never ends.
require('http').createServer((request, response) => {
  const [path, ms] = request.url.split('?');
  if (path !== '/events') return setTimeout(() => response.end('x'.repeat(500)), Number(ms));
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  const timer = setInterval(() => response.write(`data: ${'x'.repeat(300)}\n\n`), 200);
  response.on('close', () => clearInterval(timer));
}).listen(Number(process.argv[2]), '0.0.0.0');
