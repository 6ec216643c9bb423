// Files to look into: a picture of one dot, and PDF files made by hand.
export const dot = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');

const fonts = [
  '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
  // Chinese without a font in the file: whoever shows it must know the encoding.
  '<< /Type /Font /Subtype /Type0 /BaseFont /STSong-Light /Encoding /UniGB-UCS2-H /DescendantFonts [5 0 R] >>',
  '<< /Type /Font /Subtype /CIDFontType0 /BaseFont /STSong-Light /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 2 >> /DW 1000 /FontDescriptor 6 0 R >>',
  '<< /Type /FontDescriptor /FontName /STSong-Light /Flags 6 /FontBBox [-25 -254 1000 880] /ItalicAngle 0 /Ascent 880 /Descent -120 /CapHeight 880 /StemV 93 >>',
];

const shown = (text) =>
  /^[\x20-\x7e]*$/.test(text) ? `/F1 24 Tf 20 80 Td (${text.replace(/[()\\]/g, '\\$&')}) Tj` : `/F2 24 Tf 20 80 Td <${Buffer.from(text, 'utf16le').swap16().toString('hex')}> Tj`;

/** As many pages as there are texts. */
export function pdf(texts) {
  const first = 3 + fonts.length;
  const objects = ['<< /Type /Catalog /Pages 2 0 R >>', `<< /Type /Pages /Count ${texts.length} /Kids [${texts.map((_, n) => `${first + 2 * n} 0 R`).join(' ')}] >>`, ...fonts];
  texts.forEach((text, n) => {
    const drawing = `BT ${shown(text)} ET`;
    objects.push(`<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 120] /Contents ${first + 1 + 2 * n} 0 R /Resources << /Font << /F1 3 0 R /F2 4 0 R >> >> >>`);
    objects.push(`<< /Length ${drawing.length} >>\nstream\n${drawing}\nendstream`);
  });
  let body = '%PDF-1.4\n';
  const places = objects.map((object, n) => {
    const at = body.length;
    body += `${n + 1} 0 obj\n${object}\nendobj\n`;
    return at;
  });
  const table = places.map((at) => `${String(at).padStart(10, '0')} 00000 n \n`).join('');
  return Buffer.from(`${body}xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${body.length}\n%%EOF\n`, 'latin1');
}
