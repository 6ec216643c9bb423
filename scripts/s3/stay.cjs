// A fault of one request is told, and does not end the server for all the others.
process.on("uncaughtException", (error) => console.error("s3rver:", error));
