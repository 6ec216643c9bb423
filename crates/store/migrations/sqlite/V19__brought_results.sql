-- What a client made of a call of a tool that it brought.
ALTER TABLE approvals ADD COLUMN result text;
