// Which language a text file is written in, as its name tells.

const languages: Record<string, string> = {
  bash: 'bash', c: 'c', cc: 'cpp', cpp: 'cpp', cs: 'csharp', css: 'css', diff: 'diff', go: 'go', graphql: 'graphql', h: 'c', hpp: 'cpp',
  htm: 'xml', html: 'xml', ini: 'ini', java: 'java', js: 'javascript', json: 'json', jsonl: 'json', jsx: 'javascript', kt: 'kotlin',
  less: 'less', lua: 'lua', mjs: 'javascript', ndjson: 'json', patch: 'diff', php: 'php', pl: 'perl', py: 'python', r: 'r', rb: 'ruby',
  rs: 'rust', scss: 'scss', sh: 'bash', sql: 'sql', svg: 'xml', swift: 'swift', toml: 'ini', ts: 'typescript', tsx: 'typescript',
  vb: 'vbnet', xml: 'xml', yaml: 'yaml', yml: 'yaml', zsh: 'bash',
};

export const languageOf = (name: string): string | null => languages[/\.(\w+)$/.exec(name)?.[1]?.toLowerCase() ?? ''] ?? null;
