import tailwindcss from '@tailwindcss/vite';
import react from '@vitejs/plugin-react';
import { readdirSync, readFileSync } from 'node:fs';
import { defineConfig, type Plugin } from 'vite';

// No asset is inlined: the content security policy allows neither inline code nor data: addresses.
const entities = new URL('node_modules/decode-named-character-reference/index.js', import.meta.url).pathname;

// What a PDF may need and not bring: how Chinese, Japanese and Korean texts are encoded, and the fonts that every
// viewer has. Fetched file by file when a preview wants one.
const { version } = JSON.parse(readFileSync(new URL('node_modules/pdfjs-dist/package.json', import.meta.url), 'utf8'));
const pdfParts: Plugin = {
  name: 'pdf-parts',
  apply: 'build',
  generateBundle() {
    for (const folder of ['cmaps', 'standard_fonts']) {
      const from = new URL(`node_modules/pdfjs-dist/${folder}/`, import.meta.url);
      for (const name of readdirSync(from)) {
        this.emitFile({ type: 'asset', fileName: `assets/pdf-${version}/${folder}/${name}`, source: readFileSync(new URL(name, from)) });
      }
    }
  },
};

export default defineConfig({
  plugins: [react(), tailwindcss(), pdfParts],
  // Its version for browsers decodes with innerHTML, which the policy (trusted types) forbids.
  resolve: { alias: { 'decode-named-character-reference': entities } },
  build: { assetsInlineLimit: 0, chunkSizeWarningLimit: 800, modulePreload: { polyfill: false }, reportCompressedSize: false },
  server: { proxy: { '/v1': 'http://127.0.0.1:8080', '/login': 'http://127.0.0.1:8080' } },
});
