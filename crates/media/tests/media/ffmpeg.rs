//! ffmpeg decodes its own streams without errors after splitting, joining and packaging.

use crate::tool::{Decoded, count_classes, decode, encode, frames, has_ffmpeg, join};
use std::time::Duration;
use thalweg_media::{
    Frame, FrameClass, Output, TsJoiner,
    hls::{Segment, Segmenter, SegmenterOutput},
};

/// Six seconds of a test picture and a tone.
const SOURCE: &str =
    "-f lavfi -i testsrc2=s=320x180:r=30:d=6 -f lavfi -i sine=f=440:d=6 -pix_fmt yuv420p";

/// Options of encoders, and whether they produce disposable pictures.
const ENCODERS: [(&str, &str, bool); 8] = [
    ("H.264", "-c:v libx264 -g 30 -bf 3 -c:a aac", true),
    ("H.264, no pyramid", "-c:v libx264 -g 30 -bf 2 -x264-params b-pyramid=none -c:a mp2", true),
    ("H.264, low latency", "-c:v libx264 -g 30 -tune zerolatency -c:a aac", false),
    ("H.264, open groups", "-c:v libx264 -g 30 -bf 3 -x264-params open-gop=1 -c:a ac3", true),
    ("H.264, refresh", "-c:v libx264 -g 30 -x264-params intra-refresh=1 -c:a aac", true),
    (
        "H.265",
        "-c:v libx265 -x265-params log-level=none:keyint=30:bframes=3:open-gop=0 -c:a aac",
        true,
    ),
    (
        "H.265, open groups, layers",
        "-c:v libx265 -x265-params log-level=none:keyint=30:bframes=3:open-gop=1:temporal-layers=2 -c:a libopus",
        true,
    ),
    ("MPEG-2", "-c:v mpeg2video -g 15 -bf 2 -c:a mp2", false),
];

fn has_class(class: FrameClass) -> impl Fn(&Frame) -> bool {
    move |frame| frame.class == class
}

#[test]
fn remaining_frames_are_decoded_without_errors() {
    if !has_ffmpeg() {
        return;
    }
    for (name, options, has_disposable) in ENCODERS {
        let Some(bytes) = encode(&format!("{SOURCE} {options}")) else { continue };
        let original = decode(&bytes);
        let all = frames(&bytes);
        let by_class = count_classes(&all);
        assert_eq!(by_class[2..].iter().sum::<usize>(), 180, "{name}: {by_class:?}");
        assert_eq!(by_class[4] > 0, has_disposable, "{name}: {by_class:?}");
        let check = |what: &str, (out, shown): (Vec<u8>, usize)| {
            let found = decode(&out);
            let expected = Decoded { pictures: shown, ..original.clone() };
            assert_eq!(found, expected, "{name}, {what}");
            shown
        };
        assert_eq!(check("all", join(&all, |_| true)), original.pictures, "{name}");
        let without = join(&all, |frame| !has_class(FrameClass::Disposable)(frame));
        assert_eq!(check("without disposable", without), 180 - by_class[4], "{name}");
        let keys = join(&all, |frame| !frame.class.is_video() || has_class(FrameClass::Key)(frame));
        // After gaps between recovery points without IDR pictures, ffmpeg reports errors and shows fewer pictures.
        if name != "H.264, open groups" {
            assert_eq!(check("keys alone", keys), by_class[2], "{name}");
        }
        let mut nth = 0;
        let some = join(&all, |frame| {
            let is_reference = has_class(FrameClass::Reference)(frame);
            nth += usize::from(is_reference);
            !(is_reference && nth == 10)
        });
        check("without a reference", some);
    }
}

/// Six seconds of two renditions with an aligned key frame each second.
const LADDER: &str = "-f lavfi -i testsrc2=s=320x180:r=30:d=6 -f lavfi -i sine=f=440:d=6 \
    -filter_complex [0:v]format=yuv420p,split[a][b];[b]scale=160:90[c] -map [a] -map [c] -map 1:a \
    -c:v libx264 -g 30 -sc_threshold 0 -bf 2 -c:a aac";

#[test]
fn a_ladder_is_one_video_that_changes_at_key_frames() {
    if !has_ffmpeg() {
        return;
    }
    let programs = "-program st=0:st=2:title=high -program st=1:st=2:title=low";
    for (name, options) in [("one program", ""), ("two programs", programs)] {
        let Some(bytes) = encode(&format!("{LADDER} {options}")) else { continue };
        let all = frames(&bytes);
        assert_eq!(count_classes(&all)[2], 12, "{name}");
        let (mut joiner, mut out) = (TsJoiner::new(Output::OneVideo), Vec::new());
        joiner.select(0);
        let mut seen = Vec::new();
        for frame in &all {
            match frame.time.as_millis() {
                1500..3500 => joiner.select(1),
                3500.. => joiner.select(0),
                _ => {}
            }
            joiner.push(frame, &mut out);
            seen.push(joiner.selected());
        }
        joiner.end(&mut out);
        seen.dedup();
        assert_eq!(seen, [None, Some(0), Some(1), Some(0)], "{name}");
        assert_eq!((joiner.counts().shown, joiner.counts().switches), (180, 2), "{name}");
        let sounds = count_classes(&all)[1];
        let found = decode(&out);
        assert_eq!((found.pictures, found.errors.as_str()), (180, ""), "{name}");
        assert!(found.sounds > sounds, "{name}: {found:?}");
        // One program with one video, and no frames of the other one.
        let again = frames(&out);
        assert!(again.iter().all(|frame| frame.track == 0), "{name}");
        assert_eq!(
            count_classes(&again)[1..],
            [sounds, 6, count_classes(&again)[3], count_classes(&again)[4]]
        );
        assert_eq!(count_classes(&again)[2..].iter().sum::<usize>(), 180, "{name}");
    }
}

#[test]
fn segments_are_decoded_as_the_stream_is() {
    if !has_ffmpeg() {
        return;
    }
    let encoders = [
        ("H.264", "-c:v libx264 -g 30 -bf 3 -c:a aac", "avc1.64000d,mp4a.40.2"),
        ("H.264 without sound", "-an -c:v libx264 -g 30 -tune zerolatency", "avc1.64000d"),
        (
            "H.265",
            "-c:v libx265 -x265-params log-level=none:keyint=30:bframes=3 -c:a aac",
            "hvc1.1.6.L60.90,mp4a.40.2",
        ),
    ];
    for (name, options, codecs) in encoders {
        let Some(bytes) = encode(&format!("{SOURCE} {options}")) else { continue };
        let pieces = pieces(&frames(&bytes), |_| 0);
        let segments: Vec<_> = segments(&pieces).collect();
        assert_eq!(segments.len(), 3, "{name}");
        let SegmenterOutput::Init(init) = &pieces[0] else {
            panic!("{name}: no init segment first")
        };
        assert_eq!(init.codecs, codecs, "{name}");
        assert_eq!(pieces.len(), 4, "{name}");
        let length: Duration = segments.iter().map(|segment| segment.duration).sum();
        assert!(length.abs_diff(Duration::from_secs(6)) < Duration::from_millis(5), "{length:?}");
        let found = decode(&concatenate(&pieces));
        let original = decode(&bytes);
        assert_eq!((found.pictures, found.errors.as_str()), (180, ""), "{name}");
        // Audio before the first picture is omitted.
        assert!(found.sounds + 3 >= original.sounds, "{name}: {found:?} of {original:?}");
    }
}

#[test]
fn a_rendition_that_changes_is_a_discontinuity() {
    if !has_ffmpeg() {
        return;
    }
    let Some(bytes) = encode(LADDER) else { return };
    let pieces = pieces(&frames(&bytes), |seconds| u8::from((2..4).contains(&seconds)));
    let inits = pieces.iter().filter(|piece| matches!(piece, SegmenterOutput::Init(_)));
    assert_eq!(inits.count(), 3);
    let marks: Vec<bool> = segments(&pieces).map(|segment| segment.is_discontinuous).collect();
    assert_eq!(marks.iter().filter(|mark| **mark).count(), 2, "{marks:?}");
    // Each part is decoded separately, as players do.
    let parts = pieces.chunk_by(|_, next| !matches!(next, SegmenterOutput::Init(_)));
    let found: Vec<_> = parts.map(|part| decode(&concatenate(part))).collect();
    assert_eq!(found.iter().map(|part| part.pictures).sum::<usize>(), 180, "{found:?}");
    assert!(found.iter().all(|part| part.errors.is_empty()), "{found:?}");
}

/// Packages a stream, selecting the track `wanted` for each second.
fn pieces(frames: &[Frame], wanted: impl Fn(u64) -> u8) -> Vec<SegmenterOutput> {
    let (mut segmenter, mut pieces) = (Segmenter::default(), Vec::new());
    for frame in frames {
        segmenter.select(wanted(frame.time.as_secs()));
        segmenter.push(frame, &mut pieces);
    }
    segmenter.end(&mut pieces);
    assert_eq!(segmenter.take_warnings(), []);
    pieces
}

fn segments(pieces: &[SegmenterOutput]) -> impl Iterator<Item = &Segment> {
    pieces.iter().filter_map(|piece| match piece {
        SegmenterOutput::Segment(segment) => Some(segment),
        SegmenterOutput::Init(_) => None,
    })
}

/// Concatenates the pieces.
fn concatenate(pieces: &[SegmenterOutput]) -> Vec<u8> {
    let bytes = |piece: &SegmenterOutput| match piece {
        SegmenterOutput::Init(init) => init.bytes.to_vec(),
        SegmenterOutput::Segment(segment) => segment.bytes.to_vec(),
    };
    pieces.iter().flat_map(bytes).collect()
}
