//! Real pictures, made and decoded by ffmpeg: after frames were left out it still decodes without an error. Skipped where there is no
//! ffmpeg.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]
#![allow(clippy::disallowed_methods, reason = "it runs a program")]

use std::{
    io::Write as _,
    process::{Command, Stdio},
};
use thalweg_stream::{
    Chains, Frame, FrameClass, TsJoiner, TsSplitter, container::Splitter as _, is_video,
};

/// Six seconds of ffmpeg's test picture and a tone, with these options of the encoder; `None`: there is no ffmpeg, or not this encoder.
fn made(options: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("ffmpeg");
    command.args([
        "-hide_banner",
        "-loglevel",
        "error",
        "-f",
        "lavfi",
        "-i",
        "testsrc2=s=320x180:r=30:d=6",
    ]);
    command.args(["-f", "lavfi", "-i", "sine=f=440:d=6"]).args(options);
    command.args(["-c:a", "aac", "-pix_fmt", "yuv420p", "-f", "mpegts", "-"]);
    let output = command.stdin(Stdio::null()).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// Pictures that ffmpeg decodes, and its complaints.
fn decoded(bytes: &[u8]) -> (usize, String) {
    let mut child = Command::new("ffmpeg")
        .args(["-hide_banner", "-loglevel", "error", "-err_detect", "explode", "-i", "-"])
        .args(["-map", "0:v", "-fps_mode", "passthrough", "-f", "framemd5", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_owned();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    _ = writer.join();
    let lines = String::from_utf8_lossy(&output.stdout);
    let pictures = lines.lines().filter(|line| !line.starts_with('#')).count();
    (pictures, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn split(bytes: &[u8]) -> Vec<Frame> {
    let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
    for piece in bytes.chunks(1000) {
        splitter.push(piece, &mut frames).unwrap();
    }
    splitter.end(&mut frames);
    assert_eq!(splitter.passed(), []);
    frames
}

/// What is left after these are left out, and what refers to them; how many pictures that is.
fn joined(frames: &[Frame], is_left_out: impl Fn(usize, &Frame) -> bool) -> (Vec<u8>, usize) {
    let (mut joiner, mut chains, mut out) = (TsJoiner::default(), Chains::default(), Vec::new());
    let (mut pictures, mut video) = (0, 0);
    for frame in frames {
        video += usize::from(is_video(frame.class));
        if is_left_out(video, frame) {
            chains.lost(frame.track, frame.class);
        } else if chains.take(frame.track, frame.class) {
            pictures += usize::from(is_video(frame.class));
            joiner.push(frame, &mut out);
        }
    }
    (out, pictures)
}

const ENCODERS: [(&str, &[&str]); 4] = [
    ("H.264", &["-c:v", "libx264", "-g", "30", "-bf", "3"]),
    ("H.264 without B", &["-c:v", "libx264", "-g", "30", "-tune", "zerolatency"]),
    (
        "H.265",
        &["-c:v", "libx265", "-x265-params", "log-level=none:keyint=30:bframes=3:open-gop=0"],
    ),
    ("MPEG-2", &["-c:v", "mpeg2video", "-g", "15", "-bf", "2"]),
];

#[test]
fn ffmpeg_decodes_what_is_left() {
    for (name, options) in ENCODERS {
        let Some(bytes) = made(options) else {
            eprintln!("skipped: no ffmpeg with the encoder of {name}");
            continue;
        };
        let frames = split(&bytes);
        let of = |class| frames.iter().filter(|frame| frame.class == class).count();
        let counts = [FrameClass::Key, FrameClass::Reference, FrameClass::Disposable].map(of);
        assert_eq!(counts.iter().sum::<usize>(), 180, "{name}: {counts:?}");
        assert!(counts[0] >= 6 && of(FrameClass::Audio) > 10, "{name}: {counts:?}");
        let check = |what: &str, (out, pictures): (Vec<u8>, usize)| {
            let (found, complaints) = decoded(&out);
            assert_eq!((found, complaints.as_str()), (pictures, ""), "{name}: {what}");
        };
        check("all", joined(&frames, |_, _| false));
        check("without disposable", joined(&frames, |_, f| f.class == FrameClass::Disposable));
        check(
            "without a reference",
            joined(&frames, |n, f| n == 40 && f.class > FrameClass::Key || n == 41),
        );
        check("keys alone", joined(&frames, |_, f| f.class > FrameClass::Key));
        let is_b = name != "H.264 without B" && name != "MPEG-2";
        assert_eq!(counts[2] > 0, is_b, "{name}: {counts:?}");
    }
}
