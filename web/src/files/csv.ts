// CSV as RFC 4180 has it, leniently, with commas, semicolons or tabs: the first `limit` rows.

/** What stands most often in the first line. */
function separator(text: string): string {
  const [line = ''] = text.split('\n', 1);
  const count = (mark: string) => line.split(mark).length;
  return [',', ';', '\t'].reduce((best, mark) => (count(mark) > count(best) ? mark : best));
}

export function parseCsv(text: string, limit: number): string[][] {
  const between = separator(text);
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = '';
  let quoted = false;
  const endRow = () => {
    row.push(cell);
    cell = '';
    if (row.length > 1 || row[0] !== '') rows.push(row);
    row = [];
  };
  for (let at = 0; at < text.length && rows.length <= limit; at++) {
    const char = text[at];
    if (quoted) {
      if (char !== '"') cell += char;
      else if (text[at + 1] === '"') cell += text[++at];
      else quoted = false;
    } else if (char === '"' && cell === '') quoted = true;
    else if (char === between) {
      row.push(cell);
      cell = '';
    } else if (char === '\n') endRow();
    else if (char !== '\r') cell += char;
  }
  if (cell !== '' || row.length > 0) endRow();
  return rows.slice(0, limit + 1);
}
