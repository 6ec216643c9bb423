import tailwindcss from '@tailwindcss/vite';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// No asset is inlined: the content security policy allows neither inline code nor data: addresses.
const entities = new URL('node_modules/decode-named-character-reference/index.js', import.meta.url).pathname;

export default defineConfig({
  plugins: [react(), tailwindcss()],
  // Its version for browsers decodes with innerHTML, which the policy (trusted types) forbids.
  resolve: { alias: { 'decode-named-character-reference': entities } },
  build: { assetsInlineLimit: 0, chunkSizeWarningLimit: 800, modulePreload: { polyfill: false }, reportCompressedSize: false },
  server: { proxy: { '/v1': 'http://127.0.0.1:8080', '/login': 'http://127.0.0.1:8080' } },
});
