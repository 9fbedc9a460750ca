//! HLS: the HTTP server, the directory, and the player page in headless Chromium.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]
#![allow(clippy::disallowed_methods, reason = "it runs programs")]

mod browser;
mod live;
mod outputs;
mod player;
