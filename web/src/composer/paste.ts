// What a paste brings: files, or text.

/** The files to attach. Spreadsheets and word processors put a picture of the text beside it: then it is the text that is meant. */
export function pastedFiles({ files, types }: Pick<DataTransfer, 'files' | 'types'>): File[] {
  const written = types.includes('text/plain') && types.includes('text/html');
  const pictured = files.length === 1 && files[0]?.type.startsWith('image/');
  return written && pictured ? [] : [...files];
}
