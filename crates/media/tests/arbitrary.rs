//! Arbitrary bytes do not make a parser panic, loop or exceed its memory limits, and the frames do not depend on how
//! the bytes are cut.
//!
//! `cargo test -p thalweg-media --test arbitrary` replays `corpus/` and `samples/`, then tries arbitrary and mutated
//! bytes. For longer runs: `PROPTEST_CASES=100000 cargo test --release -p thalweg-media --test arbitrary`. The seed of
//! a failure is printed and kept beside this file; add the failing input to `corpus/`.

#![expect(clippy::disallowed_methods, reason = "the corpus is files; the crate itself reads none")]

use proptest::prelude::*;
use std::{collections::BTreeMap, fs, path::Path, time::Duration};
use thalweg_media::{
    Frame, FrameClass, InputWarning, Limits, MAX_TRACKS, Output, PACKET, TsJoiner, TsSplitter,
    hls::{Segmenter, SegmenterOutput, Settings},
};

/// Small limits that are often reached.
const LIMITS: Limits = Limits { frame: 4000, waiting: 10_000, streams: 8, programs: 4, tracks: 3 };

/// The maximum size of parameter sets that are inserted into a key frame, bytes.
const SETS: usize = 66 << 10;

/// The names and contents of the files in these folders.
fn files(folders: &[&str]) -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(root.join(folder)).expect("there"));
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("it can be listed").path();
        (path.display().to_string(), fs::read(path).expect("it can be read"))
    };
    let mut files: Vec<_> = entries.map(read).collect();
    files.sort();
    files
}

/// Splits a stream that arrives in pieces with these ends.
fn split(bytes: &[u8], limits: Limits, ends: &[usize]) -> Vec<Frame> {
    let (mut splitter, mut frames) = (TsSplitter::new(limits), Vec::new());
    let mut from = 0;
    for end in ends.iter().copied().chain([bytes.len()]) {
        splitter.push(&bytes[from..end], &mut frames);
        from = end;
        assert!(splitter.held_bytes() <= limits.waiting + 66 * PACKET);
        assert!(splitter.tracks().len() <= limits.tracks.min(MAX_TRACKS));
    }
    splitter.end(&mut frames);
    assert_eq!(splitter.held_bytes(), 0);
    let warnings: Vec<InputWarning> = splitter.take_warnings();
    assert!(warnings.len() <= 64 && warnings.iter().all(|warning| !warning.to_string().is_empty()));
    frames
}

/// Checks that frames are complete packets of one PID within the size limit, and that the times of a track increase.
fn check_frames(frames: &[Frame], limits: Limits) {
    let mut times: BTreeMap<(u16, FrameClass), Duration> = BTreeMap::new();
    for frame in frames {
        let (packets, rest) = frame.bytes.as_chunks::<PACKET>();
        let pid = |packet: &[u8; PACKET]| u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
        assert!(rest.is_empty() && !packets.is_empty());
        assert!(packets.iter().all(|packet| pid(packet) == pid(&packets[0]) && packet[0] == 0x47));
        let most = if frame.class == FrameClass::Tables { 64 * PACKET } else { limits.frame };
        assert!(frame.bytes.len() <= most + SETS, "{}", frame.bytes.len());
        assert!(usize::from(frame.track) < limits.tracks);
        let last = times.insert((pid(&packets[0]), frame.class), frame.time);
        // A PID that ends and starts again may be another stream.
        assert!(last.is_none_or(|last| last <= frame.time + Duration::from_secs(60)));
    }
}

/// Checks that an outgoing stream has complete packets and continuity counters without gaps.
fn check_stream(bytes: &[u8]) {
    let (packets, rest) = bytes.as_chunks::<PACKET>();
    assert!(rest.is_empty());
    let mut counters: BTreeMap<u16, u8> = BTreeMap::new();
    for packet in packets {
        let pid = u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
        let counter = packet[3] & 0x0f;
        let next = |last: u8| (last + (packet[3] >> 4 & 1)) & 0x0f;
        let last = counters.insert(pid, counter);
        assert!(packet[0] == 0x47 && last.is_none_or(|last| next(last) == counter));
    }
}

/// Joins and packages the frames. `lost` is a bit mask of those that are lost.
fn check_outputs(frames: &[Frame], lost: u64) {
    let is_lost = |n: usize| lost >> (n % 64) & 1 == 1;
    for output in [Output::AsSent, Output::OneVideo] {
        let (mut joiner, mut out) = (TsJoiner::new(output), Vec::new());
        for (n, frame) in frames.iter().enumerate() {
            joiner.select((n / 20 % 3) as u8);
            match is_lost(n) {
                true => joiner.record_loss(frame.track, frame.class),
                false => joiner.push(frame, &mut out),
            }
        }
        joiner.end(&mut out);
        check_stream(&out);
    }
    let settings = Settings { target: Duration::from_millis(200), max_bytes: 6000 };
    let (mut segmenter, mut pieces) = (Segmenter::new(settings), Vec::new());
    for (n, frame) in frames.iter().enumerate() {
        segmenter.select((n / 20 % 3) as u8);
        match is_lost(n) {
            true => segmenter.record_loss(frame.track, frame.class),
            false => segmenter.push(frame, &mut pieces),
        }
    }
    segmenter.end(&mut pieces);
    for piece in &pieces {
        let bytes = match piece {
            SegmenterOutput::Init(init) => &init.bytes,
            SegmenterOutput::Segment(segment) => {
                assert!(segment.duration > Duration::ZERO);
                &segment.bytes
            }
        };
        check_boxes(bytes);
    }
}

/// Checks that the bytes are a sequence of valid boxes.
fn check_boxes(bytes: &[u8]) {
    use mp4_atom::{Any, DecodeMaybe as _};
    let mut rest = bytes;
    while let Some(_one) = Any::decode_maybe(&mut rest).expect("what was written can be read") {}
    assert!(rest.is_empty());
}

fn check_all(bytes: &[u8], lost: u64) {
    for limits in [LIMITS, Limits::default()] {
        let frames = split(bytes, limits, &[]);
        check_frames(&frames, limits);
        check_outputs(&frames, lost);
    }
}

#[test]
fn the_corpus_is_replayed() {
    let files = files(&["corpus", "samples"]);
    assert!(files.len() >= 15, "only {} files", files.len());
    for (name, bytes) in files {
        let result = std::panic::catch_unwind(|| check_all(&bytes, 0x10));
        assert!(result.is_ok(), "{name}");
        // And truncations of it.
        (0..bytes.len().min(1500)).step_by(7).for_each(|n| check_all(&bytes[..n], 0));
    }
}

/// A change of a stream: its position, value and kind.
type Edit = (prop::sample::Index, u8, u8);

fn edited(mut bytes: Vec<u8>, edits: Vec<Edit>) -> Vec<u8> {
    for (at, value, kind) in edits {
        if bytes.is_empty() {
            bytes.push(value);
        }
        let at = at.index(bytes.len());
        let packet = at / PACKET * PACKET;
        let next = (packet + PACKET).min(bytes.len());
        match kind {
            // Changes in packet headers have the largest effect.
            0 | 1 => bytes[packet + usize::from(value) % (next - packet).min(24)] = value,
            2 => bytes[at] ^= 1 << (value % 8),
            3 => drop(bytes.drain(packet..next)),
            4 => drop(bytes.drain(at..(at + usize::from(value)).min(next))),
            5 => bytes.insert(at, value),
            6 => {
                let copy = bytes[packet..next].to_vec();
                let to = usize::from(value) * PACKET % (bytes.len() + 1) / PACKET * PACKET;
                bytes.splice(to..to, copy);
            }
            _ => bytes.truncate(bytes.len() - (bytes.len() - at) / 8),
        }
    }
    bytes
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let files: Vec<_> = files(&["corpus", "samples"]).into_iter().map(|(_, bytes)| bytes).collect();
    let edit = (any::<prop::sample::Index>(), any::<u8>(), 0..8_u8);
    (prop::sample::select(files), prop::collection::vec(edit, 1..12))
        .prop_map(|(bytes, edits)| edited(bytes, edits))
}

fn at_least(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(cases), ..default }
}

proptest! {
    #![proptest_config(at_least(256))]

    #[test]
    fn arbitrary_bytes_do_not_panic(
        bytes in prop::collection::vec(prop_oneof![Just(0x47), Just(0), any::<u8>()], 0..2000),
        lost in any::<u64>(),
    ) {
        check_all(&bytes, lost);
    }

    #[test]
    fn mutated_streams_do_not_panic(bytes in mutated(), lost in any::<u64>()) {
        check_all(&bytes, lost & lost.rotate_left(7));
    }

    #[test]
    fn frames_do_not_depend_on_the_cuts(
        bytes in mutated(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        limits in prop_oneof![Just(LIMITS), Just(Limits::default())],
    ) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.sort_unstable();
        prop_assert!(split(&bytes, limits, &ends) == split(&bytes, limits, &[]));
        let each: Vec<usize> = (0..bytes.len().min(3000)).collect();
        prop_assert!(split(&bytes, limits, &each) == split(&bytes, limits, &[]));
    }
}

/// Checks that the files of the corpus have the faults after which they are named.
#[test]
fn the_corpus_has_valid_and_malformed_streams() {
    let found: BTreeMap<String, Vec<u8>> = files(&["corpus"]).into_iter().collect();
    let of = |name: &str| {
        let file = found.iter().find(|(path, _)| path.ends_with(&format!("/{name}")));
        split(file.expect("it is in corpus/").1, Limits::default(), &[])
    };
    let keys = |frames: &[Frame]| frames.iter().filter(|f| f.class == FrameClass::Key).count();
    let warnings = |name: &str| {
        let (mut segmenter, mut pieces) = (Segmenter::default(), Vec::new());
        of(name).iter().for_each(|frame| segmenter.push(frame, &mut pieces));
        segmenter.end(&mut pieces);
        (segmenter.take_warnings().len(), pieces.len())
    };
    assert_eq!(keys(&of("pat-in-two-sections")), 2);
    assert_eq!(keys(&of("h264-sets-apart")), 3);
    assert_eq!(warnings("h264-sets-apart"), (0, 2));
    assert_eq!(keys(&of("h264-message-without-end")), 0);
    assert_eq!(warnings("h265-window-right"), (0, 2));
    for name in [
        "h264-sets-cut",
        "h264-size-huge",
        "h265-sets-cut",
        "h265-window-huge",
        "h265-window-beyond-32-bits",
    ] {
        assert!(keys(&of(name)) > 0, "{name}");
        assert_eq!(warnings(name), (1, 0), "{name}");
    }
    assert!(of("pat-of-itself").iter().all(|frame| frame.class == FrameClass::Tables));
}
