-- PostgreSQL compresses its lists of words with less work; here nothing is compressed.
SELECT 1;
