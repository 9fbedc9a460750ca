//! Arbitrary bytes do not make a parser panic, loop or exceed its memory limits, and the frames do not depend on how
//! the bytes are cut.
//!
//! `cargo test -p thalweg-media --test arbitrary` replays `corpus/` and `samples/`, then tries arbitrary and mutated
//! bytes. For longer runs: `PROPTEST_CASES=100000 cargo test --release -p thalweg-media --test arbitrary`. The seed of
//! a failure is printed and kept beside this file; add the failing input to `corpus/`.

#![expect(clippy::disallowed_methods, reason = "the corpus is files; the crate itself reads none")]

#[path = "fixtures/invariants.rs"]
mod invariants;

use invariants::{LIMITS, check_all, split};
use proptest::prelude::*;
use std::{collections::BTreeMap, fs, path::Path};
use thalweg_media::{Frame, FrameClass, Limits, PACKET, hls::Segmenter};

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
