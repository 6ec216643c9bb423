-- SQLite copies a fork part by part; here it is one transaction, which nobody waits for.
SELECT 1;
