//! Tests with complete streams: from ffmpeg, small samples, and malformed ones.
//!
//! If `ffmpeg` is installed, it makes inputs and decodes outputs. Otherwise those tests print that they are skipped,
//! and the samples in `samples/` cover the same.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod bad_input;
mod ffmpeg;
#[path = "../fixtures/ffmpeg_decoder.rs"]
mod ffmpeg_decoder;
mod samples;
mod stream;
mod tool;
