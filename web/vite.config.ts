import tailwindcss from '@tailwindcss/vite';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// No asset is inlined: the content security policy allows neither inline code nor data: addresses.
export default defineConfig({
  plugins: [react(), tailwindcss()],
  build: { assetsInlineLimit: 0, modulePreload: { polyfill: false }, reportCompressedSize: false },
  server: { proxy: { '/v1': 'http://127.0.0.1:8080', '/login': 'http://127.0.0.1:8080' } },
});
