//! The API that tests and experiments use: a client of the lab process.
