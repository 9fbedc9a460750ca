//! What the tests have in common: ffmpeg, and streams as frames.

#![expect(clippy::disallowed_methods, reason = "tests start a program and read samples")]
#![expect(clippy::disallowed_types, reason = "tests start a program and read samples")]

use crate::ffmpeg_decoder::{self, framemd5};
use std::{
    path::Path,
    process::{Command, Stdio},
};
use thalweg_media::{Frame, FrameClass, InputWarning, Output, TsJoiner, TsSplitter};

/// Whether there is an ffmpeg; says so once a test if there is none.
pub fn has_ffmpeg() -> bool {
    let found = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("skipped: no ffmpeg in the path");
    }
    is_there
}

/// A stream that ffmpeg makes with these arguments; `None` if it cannot, for want of an encoder.
pub fn made(arguments: &str) -> Option<Vec<u8>> {
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

/// What ffmpeg finds in a stream: pictures, samples of sound, and its complaints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    pub pictures: usize,
    pub sounds: usize,
    pub complaints: String,
}

/// Decodes a stream, all of it.
pub fn decoded(bytes: &[u8]) -> Decoded {
    let (lines, complaints) = framemd5(bytes, "0");
    let is_video: Vec<usize> = lines
        .lines()
        .filter_map(|line| line.strip_prefix("#media_type ")?.strip_suffix(": video")?.parse().ok())
        .collect();
    let (pictures, sounds): (Vec<usize>, Vec<usize>) =
        ffmpeg_decoder::frames(&lines).partition(|stream| is_video.contains(stream));
    Decoded { pictures: pictures.len(), sounds: sounds.len(), complaints }
}

/// The frames of a stream, and what was said of it.
pub fn split(bytes: &[u8]) -> (Vec<Frame>, Vec<InputWarning>) {
    let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
    for piece in bytes.chunks(1316) {
        splitter.push(piece, &mut frames);
    }
    splitter.end(&mut frames);
    (frames, splitter.take_warnings())
}

/// The frames of a stream that is as it should be.
pub fn frames(bytes: &[u8]) -> Vec<Frame> {
    let (frames, warnings) = split(bytes);
    assert_eq!(warnings, []);
    frames
}

/// How many frames of each class.
pub fn counts(frames: &[Frame]) -> [usize; 5] {
    FrameClass::ALL.map(|class| frames.iter().filter(|frame| frame.class == class).count())
}

/// The stream of the frames of which this is true; the others are lost. With how many pictures went out.
pub fn joined(frames: &[Frame], mut keeps: impl FnMut(&Frame) -> bool) -> (Vec<u8>, usize) {
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
