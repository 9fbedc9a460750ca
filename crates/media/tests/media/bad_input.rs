//! Malformed inputs: the warnings, and the frames that are still read.

use crate::{
    samples::{count_samples, segment_frames},
    stream::{
        PAT, PMT, Packet, Program, TransportBuilder, VIDEO, check_transport, has_payload, is_start,
        packets, pid, section, set_pid, shift,
    },
    tool::{count_classes, join, sample, split},
};
use std::time::Duration;
use thalweg_media::{Frame, FrameClass, InputWarning, Limits, TsSplitter};

/// A malformed sample of 24 pictures, and the expected result.
struct Case {
    what: &'static str,
    bytes: Vec<u8>,
    /// The expected numbers of pictures and audio frames.
    pictures: usize,
    sounds: usize,
    warnings: Vec<InputWarning>,
}

/// The packets of a sample after `change`; those for which it returns false are removed.
fn edited(name: &str, mut change: impl FnMut(usize, &mut Packet) -> bool) -> Vec<u8> {
    let mut all = packets(&sample(name));
    let mut number = 0;
    all.retain_mut(|packet| {
        number += 1;
        change(number - 1, packet)
    });
    all.as_flattened().to_vec()
}

/// The indices of the packets in which pictures start.
fn picture_starts() -> Vec<usize> {
    let all = packets(&sample("h264-low-latency.ts"));
    let is_first = |packet: &Packet| pid(packet) == VIDEO && is_start(packet);
    (0..all.len()).filter(|n| is_first(&all[*n])).collect()
}

/// The index of a packet that continues picture 16, a key frame. 16 pictures precede it.
fn packet_within_picture() -> usize {
    let all = packets(&sample("h264-low-latency.ts"));
    let is_continuation = |n: &usize| pid(&all[*n]) == VIDEO && !is_start(&all[*n]);
    (picture_starts()[16]..all.len()).find(is_continuation).unwrap()
}

/// A case without audio.
fn case(what: &'static str, bytes: Vec<u8>, pictures: usize, warnings: Vec<InputWarning>) -> Case {
    Case { what, bytes, pictures, sounds: 0, warnings }
}

/// The warning about an incomplete picture.
fn corrupt_unit() -> InputWarning {
    InputWarning::Corrupt { pid: VIDEO, units: 1 }
}

/// Cases with damaged packets, and with bytes between them.
fn packet_cases() -> Vec<Case> {
    let name = "h264-low-latency.ts";
    let starts = picture_starts();
    let whole = sample(name);
    let within = packet_within_picture();
    assert!((starts[16]..starts[17]).contains(&within), "{starts:?}, {within}");
    let noise = [&b"no packets at all, but a G (0x47) "[..], &[0x47; 30]].concat();
    let skipped = |bytes: usize| InputWarning::Unsynchronised { bytes: bytes as u64 };
    let gap = || InputWarning::Gaps { pid: VIDEO, gaps: 1 };
    vec![
        case("as it is", whole.clone(), 24, vec![]),
        case("nothing", vec![], 0, vec![]),
        case(
            "no transport stream",
            b"<!DOCTYPE html><title>404 G</title>".repeat(20),
            0,
            vec![
                skipped(700),
                InputWarning::NoTables { table: "association table (PAT)", bytes: 700 },
            ],
        ),
        case("noise before", [&noise[..], &whole].concat(), 24, vec![skipped(noise.len())]),
        case(
            "noise between pictures",
            [&whole[..starts[11] * 188], &noise, &whole[starts[11] * 188..]].concat(),
            // The previous picture may be damaged.
            24 - 6,
            vec![corrupt_unit(), skipped(noise.len())],
        ),
        case(
            "a byte is missing within a picture",
            [&whole[..within * 188 + 50], &whole[within * 188 + 51..]].concat(),
            16,
            vec![corrupt_unit(), skipped(187), gap()],
        ),
        case("cut at the end of a packet", whole[..within * 188].to_vec(), 17, vec![]),
        case("cut within a packet", whole[..within * 188 + 20].to_vec(), 16, vec![corrupt_unit()]),
        case(
            "a packet is missing",
            edited(name, |n, _| n != within),
            16,
            vec![corrupt_unit(), gap()],
        ),
        case(
            "a packet is marked as damaged",
            edited(name, |n, packet| {
                packet[1] |= if n == within { 0x80 } else { 0 };
                true
            }),
            16,
            vec![InputWarning::Damaged { packets: 1 }, corrupt_unit(), gap()],
        ),
        case(
            "the beginning of a picture is no PES packet",
            edited(name, |n, packet| {
                let at = if packet[3] & 0x20 == 0 { 4 } else { 5 + usize::from(packet[4]) };
                packet[at.min(187)] |= if n == starts[11] { 0x10 } else { 0 };
                true
            }),
            24 - 5,
            vec![corrupt_unit()],
        ),
    ]
}

/// Cases with changed tables, clocks and PIDs.
fn program_cases() -> Vec<Case> {
    let name = "h264-low-latency.ts";
    let whole = sample(name);
    vec![
        case("each packet twice", doubled(name), 24, vec![]),
        case("without a PAT", edited(name, |_, packet| pid(packet) != PAT), 0, {
            let table = "association table (PAT)";
            vec![InputWarning::NoTables { table, bytes: length_without(PAT) }]
        }),
        case("without a PMT", edited(name, |_, packet| pid(packet) != PMT), 0, {
            vec![InputWarning::NoTables { table: "map (PMT)", bytes: length_without(PMT) }]
        }),
        case(
            "a PMT is damaged",
            edited(name, |n, packet| {
                packet[17] ^= if pid(packet) == PMT && n > 50 { 1 } else { 0 };
                true
            }),
            24,
            vec![InputWarning::BadTable { pid: PMT, sections: 1 }],
        ),
        case("scrambled", scrambled(name), 24, vec![InputWarning::Scrambled { pid: VIDEO }]),
        case("33 bits pass", shifted(name, (1 << 33) - 90_000 - 126_000), 24, vec![]),
        case(
            "the clock jumps ahead",
            jumped(1000),
            24,
            vec![InputWarning::ClockRestarted { pid: VIDEO }],
        ),
        case(
            "the clock jumps back",
            jumped(-1000),
            24,
            vec![InputWarning::ClockRestarted { pid: VIDEO }],
        ),
        case("the PID changes", moved(name), 24, vec![]),
        case("a publisher that returns", [&whole[..], &whole].concat(), 47, {
            // It is unknown whether the last picture is complete.
            vec![
                corrupt_unit(),
                InputWarning::Gaps { pid: VIDEO, gaps: 1 },
                InputWarning::ClockRestarted { pid: VIDEO },
            ]
        }),
    ]
}

fn length_without(table: u16) -> u64 {
    edited("h264-low-latency.ts", |_, packet| pid(packet) != table).len() as u64
}

fn doubled(name: &str) -> Vec<u8> {
    packets(&sample(name)).into_iter().flat_map(|packet| [packet, packet]).flatten().collect()
}

fn scrambled(name: &str) -> Vec<u8> {
    edited(name, |_, packet| {
        packet[3] |= if pid(packet) == VIDEO { 0x80 } else { 0 };
        true
    })
}

fn shifted(name: &str, by: i64) -> Vec<u8> {
    let mut all = packets(&sample(name));
    shift(&mut all, by);
    all.as_flattened().to_vec()
}

/// From the second half on, the clock is shifted by this many seconds.
fn jumped(seconds: i64) -> Vec<u8> {
    let mut all = packets(&sample("h264-low-latency.ts"));
    shift(&mut all, 2000 * 90_000);
    let half = picture_starts()[12];
    shift(&mut all[half..], seconds * 90_000);
    all.as_flattened().to_vec()
}

/// From its second key frame on, the video has another PID, with a new PMT.
fn moved(name: &str) -> Vec<u8> {
    let all = packets(&sample(name));
    let (before, after) = all.split_at(picture_starts()[8]);
    let mut builder = TransportBuilder::default();
    builder.tables(&[(1, PMT, &[(0x1b, 0x222)])]);
    let mut after = after.to_vec();
    after.retain(|packet| pid(packet) != PMT && pid(packet) != PAT);
    after.iter_mut().filter(|p| pid(p) == VIDEO).for_each(|packet| set_pid(packet, 0x222));
    [before.as_flattened(), builder.packets.as_flattened(), after.as_flattened()].concat()
}

#[test]
fn bad_input_is_reported_and_the_rest_is_read() {
    let failures: Vec<String> = packet_cases()
        .iter()
        .chain(&program_cases())
        .filter_map(|case| case.check().err())
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

impl Case {
    fn check(&self) -> Result<(), String> {
        let (frames, warnings) = split(&self.bytes);
        let found = count_classes(&frames);
        let pictures: usize = found[2..].iter().sum();
        let video = frames.iter().filter(|frame| frame.class.is_video());
        let times: Vec<Duration> = video.map(|frame| frame.time).collect();
        let is_one_line =
            times.is_sorted() && times.last().is_none_or(|last| *last < Duration::from_secs(5));
        let (out, _) = join(&frames, |_| true);
        let is_expected = warnings == self.warnings
            && (pictures, found[1]) == (self.pictures, self.sounds)
            && is_one_line
            && out.len() % 188 == 0;
        let message =
            format!("{}: {pictures} pictures, {found:?}, {warnings:?}, {times:?}", self.what);
        is_expected.then_some(()).ok_or(message)
    }
}

#[test]
fn a_pid_that_changes_keeps_its_track_and_its_pictures() {
    let mut splitter = TsSplitter::default();
    let mut frames = Vec::new();
    splitter.push(&moved("h264-low-latency.ts"), &mut frames);
    splitter.end(&mut frames);
    assert_eq!((splitter.tracks().len(), splitter.tracks()[0].pid), (1, 0x222));
    let (out, shown) = join(&frames, |_| true);
    assert_eq!(shown, 24);
    check_transport(&out);
}

/// The sample with audio: unchanged, and with clocks and PIDs that change within it.
fn cases_with_audio() -> Vec<(&'static str, Vec<u8>)> {
    let name = "h264-b.ts";
    let whole = packets(&sample(name));
    let is_first = |n: &usize| pid(&whole[*n]) == VIDEO && is_start(&whole[*n]);
    let starts: Vec<usize> = (0..whole.len()).filter(is_first).collect();
    let jumped = |seconds: i64| {
        let mut all = whole.clone();
        shift(&mut all, 2000 * 90_000);
        shift(&mut all[starts[12]..], seconds * 90_000);
        all.as_flattened().to_vec()
    };
    let mut tables = TransportBuilder::default();
    tables.tables(&[(1, PMT, &[(0x1b, VIDEO + 0x40), (0x0f, VIDEO + 0x41)])]);
    let mut after = whole[starts[8]..].to_vec();
    after.retain(|packet| (VIDEO..VIDEO + 2).contains(&pid(packet)));
    for packet in &mut after {
        let pid = pid(packet);
        set_pid(packet, pid + 0x40);
    }
    let moved = [&whole[..starts[8]], &tables.packets, &after].concat();
    vec![
        ("as it is", sample(name)),
        ("33 bits pass", shifted(name, (1 << 33) - 90_000 - 126_000)),
        ("the clock jumps ahead", jumped(1000)),
        ("the clock jumps back", jumped(-1000)),
        ("the PIDs change", moved.as_flattened().to_vec()),
    ]
}

#[test]
fn segments_keep_pictures_and_sounds_when_clocks_and_pids_change() {
    for (what, bytes) in cases_with_audio() {
        // As sent, and as written by a subscriber.
        let sent = split(&bytes).0;
        let written = split(&join(&sent, |_| true).0).0;
        for frames in [sent, written] {
            let segments = segment_frames(&frames);
            let [pictures, sounds] = segments.iter().fold([0, 0], |[pictures, sounds], segment| {
                let [more_pictures, more_sounds] = count_samples(&segment.bytes);
                [pictures + more_pictures, sounds + more_sounds]
            });
            let length: Duration = segments.iter().map(|segment| segment.duration).sum();
            let message = format!("{what}: {pictures} pictures, {sounds} sounds, {length:?}");
            // Audio of a new PID before its first picture is omitted.
            let expected = if what == "the PIDs change" { 30..=33 } else { 33..=33 };
            assert!(pictures == 24 && expected.contains(&sounds), "{message}");
            assert!((1900..2300).contains(&length.as_millis()), "{message}");
        }
    }
}

#[test]
fn a_nal_unit_of_20_mb_is_reported_and_the_stream_continues() {
    let mut builder = TransportBuilder::default();
    builder.tables(&[(1, PMT, &[(0x1b, VIDEO)])]);
    let mut huge = vec![0x41; 20_000_000];
    huge[1] = 0x9a;
    for (at, slice) in [
        (0, &[0x65, 0x88, 1][..]),
        (3000, &huge),
        (6000, &[0x41, 1]),
        (9000, &[0x65, 2]),
        (12_000, &[0x41, 3]),
    ] {
        builder.picture(VIDEO, at, &[&[9, 0x10], slice]);
    }
    let (mut splitter, mut frames, mut most) = (TsSplitter::default(), Vec::new(), 0);
    for piece in builder.bytes().chunks(1316) {
        splitter.push(piece, &mut frames);
        most = most.max(splitter.held_bytes());
    }
    splitter.end(&mut frames);
    let limit = 8 << 20;
    assert_eq!(splitter.take_warnings(), [InputWarning::TooLarge { pid: VIDEO, nal: 1, limit }]);
    assert_eq!(count_classes(&frames)[2..], [2, 1, 0]);
    assert!(most <= limit + 10_000, "{most}");
    assert_eq!(splitter.counts().dropped, 2);
}

#[test]
fn incomplete_units_together_are_bounded() {
    let mut builder = TransportBuilder::default();
    let pids: Vec<(u8, u16)> = (0..8).map(|n| (0x1b, VIDEO + n)).collect();
    builder.tables(&[(1, PMT, &pids)]);
    for (_, pid) in &pids {
        builder.picture(*pid, 0, &[&[0x65; 40_000]]);
    }
    let limits = Limits { waiting: 100_000, ..Limits::default() };
    let (mut splitter, mut frames) = (TsSplitter::new(limits), Vec::new());
    for packet in &builder.packets {
        splitter.push(packet, &mut frames);
        assert!(splitter.held_bytes() <= 100_000 + 66 * 188);
    }
    splitter.end(&mut frames);
    let warnings = splitter.take_warnings();
    assert_eq!(warnings.len(), 6, "{warnings:?}");
    assert_eq!(warnings[0], InputWarning::BufferFull { pid: VIDEO + 2, limit: 100_000 });
    assert_eq!(count_classes(&frames)[2], 2);
}

#[test]
fn programs_and_streams_beyond_the_bounds_are_reported_and_ignored() {
    let mut builder = TransportBuilder::default();
    let videos: Vec<[(u8, u16); 1]> = (0..40).map(|n| [(0x1b, 0x200 + n)]).collect();
    let programs: Vec<Program<'_>> =
        (0..40).map(|n| (n + 1, 0x1000 + n, &videos[usize::from(n)][..])).collect();
    builder.tables(&programs);
    (0..40).for_each(|n| builder.picture(0x200 + n, 0, &[&[0x65, 1]]));
    let (frames, warnings) = split(&builder.bytes());
    assert_eq!(warnings, [InputWarning::TooMany { what: "programs", pid: PAT, limit: 16 }]);
    assert_eq!(count_classes(&frames)[2], 16);
    let mut builder = TransportBuilder::default();
    let streams: Vec<(u8, u16)> =
        (0..100).map(|n| (if n < 20 { 0x1b } else { 0x0f }, 0x200 + n)).collect();
    builder.tables(&[(1, PMT, &streams)]);
    let (_, warnings) = split(&builder.bytes());
    let videos = InputWarning::TooMany { what: "videos", pid: 0x200 + 16, limit: 16 };
    assert!(warnings.contains(&videos), "{warnings:?}");
    let sounds = InputWarning::TooMany { what: "elementary streams", pid: 0x200 + 68, limit: 64 };
    assert!(warnings.contains(&sounds), "{warnings:?}");
}

#[test]
fn tables_on_the_pids_of_others_do_no_harm() {
    let mut builder = TransportBuilder::default();
    // Videos with the PIDs of the PAT, the PMT and null packets; a PMT with the PID of the PAT.
    builder.tables(&[(1, PMT, &[(0x1b, PAT), (0x1b, PMT), (0x1b, 0x1fff), (0x1b, VIDEO)])]);
    builder.section(PAT, &section(0, 1, &[0, 2, 0xe0, 0x00, 0, 1, 0xf0, 0x00]));
    builder.picture(VIDEO, 0, &[&[0x65, 1]]);
    let (frames, warnings) = split(&builder.bytes());
    assert_eq!((count_classes(&frames)[2], warnings), (1, vec![]));
}

#[test]
fn video_of_other_codecs_counts_as_references_and_data_as_tables() {
    let mut builder = TransportBuilder::default();
    builder.tables(&[(1, PMT, &[(0x02, VIDEO), (0x86, 0x101)])]);
    (0..6).for_each(|n| builder.picture(VIDEO, n * 3000, &[&[0xb3; 50]]));
    builder.section(0x101, &section(0xfc, 1, &[0; 20]));
    let (frames, warnings) = split(&builder.bytes());
    assert_eq!((count_classes(&frames)[2..].to_vec(), warnings), (vec![0, 6, 0], vec![]));
    let is_cue = |frame: &Frame| {
        frame.class == FrameClass::Tables
            && packets(&frame.bytes).iter().all(|p| pid(p) == 0x101 && has_payload(p))
    };
    assert_eq!(frames.iter().filter(|frame| is_cue(frame)).count(), 1);
}

#[test]
fn a_video_without_key_frames_is_reported() {
    let mut builder = TransportBuilder::default();
    builder.tables(&[(1, PMT, &[(0x1b, VIDEO)])]);
    (0..400).for_each(|n| builder.picture(VIDEO, n * 3000, &[&[9, 0x10], &[0x41, 1]]));
    let (frames, warnings) = split(&builder.bytes());
    assert_eq!(count_classes(&frames)[2..], [0, 0, 0]);
    assert_eq!(warnings, [InputWarning::NoKeyFrame { pid: VIDEO, seconds: 10 }]);
}

#[test]
fn a_picture_in_two_pes_packets_is_one_frame() {
    let mut builder = TransportBuilder::default();
    builder.tables(&[(1, PMT, &[(0x1b, VIDEO)])]);
    builder.picture(VIDEO, 0, &[&[9, 0x10], &[0x65, 1]]);
    builder.picture(VIDEO, 3000, &[&[9, 0x10], &[0x41, 1]]);
    builder.picture(VIDEO, 3000, &[&[0x41, 2]]);
    // The second half has no time.
    let packet = builder.packets.last_mut().unwrap();
    let at = 5 + usize::from(packet[4]);
    packet[at + 7] = 0;
    builder.picture(VIDEO, 6000, &[&[9, 0x10], &[0x01, 1]]);
    let (frames, warnings) = split(&builder.bytes());
    assert_eq!((count_classes(&frames)[2..].to_vec(), warnings), (vec![1, 1, 1], vec![]));
}

#[test]
fn key_frames_without_parameter_sets_get_them() {
    let mut builder = TransportBuilder::default();
    builder.tables(&[(1, PMT, &[(0x1b, VIDEO)])]);
    let sets: [&[u8]; 2] = [&[0x67, 1, 2, 3], &[0x68, 4]];
    builder.picture(VIDEO, 0, &[&[9, 0x10], sets[0], sets[1], &[0x65, 1]]);
    builder.picture(VIDEO, 3000, &[&[9, 0x10], &[0x65, 2]]);
    let (frames, warnings) = split(&builder.bytes());
    assert_eq!(warnings, []);
    let second = frames.iter().filter(|frame| frame.class == FrameClass::Key).nth(1).unwrap();
    let expected: Vec<u8> = [&[9, 0x10][..], sets[0], sets[1], &[0x65, 2]]
        .iter()
        .flat_map(|nal| [&[0, 0, 0, 1], *nal].concat())
        .collect();
    assert!(second.bytes.ends_with(&expected));
}
