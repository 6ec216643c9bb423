-- PostgreSQL drops foreign keys whose checks cost it much; here they cost next to nothing.
SELECT 1;
