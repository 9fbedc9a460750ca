//! The API of a running daemon at both doors: who is let in, jobs, events, errors, and the page.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod doors;
mod errors;
mod events;
mod interfaces;
mod jobs;
mod page;
mod scene;
mod terminal;
