//! Common functions of the tests: ffmpeg, and splitting and joining of streams.

#![expect(clippy::disallowed_methods, reason = "tests start a program and read samples")]
#![expect(clippy::disallowed_types, reason = "tests start a program and read samples")]

use crate::ffmpeg_decoder::{self, framemd5};
use std::{
    path::Path,
    process::{Command, Stdio},
};
use thalweg_media::{Frame, FrameClass, InputWarning, Output, TsJoiner, TsSplitter};

/// Whether ffmpeg is installed; prints a note if it is not.
pub fn has_ffmpeg() -> bool {
    let found = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("skipped: no ffmpeg in the path");
    }
    is_there
}

/// Encodes a stream with ffmpeg; `None` if ffmpeg has no such encoder.
pub fn encode(arguments: &str) -> Option<Vec<u8>> {
    let output = Command::new("ffmpeg")
        .args(["-hide_banner", "-v", "error", "-nostdin"])
        .args(arguments.split_whitespace())
        .args(["-f", "mpegts", "-"])
        .output()
        .ok()?;
    if !output.status.success() {
        eprintln!("skipped: ffmpeg {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success().then_some(output.stdout)
}

/// What ffmpeg decodes from a stream: pictures, audio frames, and its error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    pub pictures: usize,
    pub sounds: usize,
    pub errors: String,
}

/// Decodes all streams with ffmpeg.
pub fn decode(bytes: &[u8]) -> Decoded {
    let (lines, errors) = framemd5(bytes, "0");
    let is_video: Vec<usize> = lines
        .lines()
        .filter_map(|line| line.strip_prefix("#media_type ")?.strip_suffix(": video")?.parse().ok())
        .collect();
    let (pictures, sounds): (Vec<usize>, Vec<usize>) =
        ffmpeg_decoder::frames(&lines).partition(|stream| is_video.contains(stream));
    Decoded { pictures: pictures.len(), sounds: sounds.len(), errors }
}

/// Splits a stream. Returns its frames and the warnings.
pub fn split(bytes: &[u8]) -> (Vec<Frame>, Vec<InputWarning>) {
    let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
    for piece in bytes.chunks(1316) {
        splitter.push(piece, &mut frames);
    }
    splitter.end(&mut frames);
    (frames, splitter.take_warnings())
}

/// Splits a stream that causes no warnings.
pub fn frames(bytes: &[u8]) -> Vec<Frame> {
    let (frames, warnings) = split(bytes);
    assert_eq!(warnings, []);
    frames
}

/// The number of frames of each class.
pub fn count_classes(frames: &[Frame]) -> [usize; 5] {
    FrameClass::ALL.map(|class| frames.iter().filter(|frame| frame.class == class).count())
}

/// Joins the frames for which `keeps` is true; the others are lost. Returns the stream and the number of its pictures.
pub fn join(frames: &[Frame], mut keeps: impl FnMut(&Frame) -> bool) -> (Vec<u8>, usize) {
    let (mut joiner, mut out) = (TsJoiner::new(Output::AsSent), Vec::new());
    for frame in frames {
        if keeps(frame) {
            joiner.push(frame, &mut out);
            continue;
        }
        joiner.record_loss(frame.track, frame.class);
        if let Some(bytes) = frame.clock() {
            joiner.push(&Frame { class: FrameClass::Tables, track: 0, bytes, ..*frame }, &mut out);
        }
    }
    joiner.end(&mut out);
    (out, joiner.counts().shown as usize)
}

/// A committed sample.
pub fn sample(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(name)).unwrap()
}
