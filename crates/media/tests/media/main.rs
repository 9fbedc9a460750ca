//! Whole streams in and out: ffmpeg's own, small samples, and bad ones.
//!
//! Where `ffmpeg` is in the path, inputs are made and outputs decoded with it; elsewhere those tests say that they are skipped,
//! and the samples in `samples/` cover the same.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod bad_input;
mod ffmpeg;
#[path = "../fixtures/ffmpeg_decoder.rs"]
mod ffmpeg_decoder;
mod samples;
mod stream;
mod tool;
