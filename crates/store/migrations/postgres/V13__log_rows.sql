-- SQLite lays its logs out anew. PostgreSQL keeps rows and keys apart by itself.
SELECT 1;
