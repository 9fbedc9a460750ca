//! Tests with samples whose contents are known, so that no decoder is needed.

use crate::{
    stream::{check_transport, is_start, packets, pid},
    tool::{count_classes, frames, join, sample},
};
use std::time::Duration;
use thalweg_media::{
    Codec, Frame, FrameClass, Output, TsJoiner, TsSplitter,
    hls::{Segment, Segmenter, SegmenterOutput, Settings},
};

/// Name, codec, audio frames, and pictures: key, reference, disposable.
const SAMPLES: [(&str, Codec, usize, [usize; 3]); 3] = [
    ("h264-b.ts", Codec::H264, 33, [3, 12, 9]),
    ("h264-low-latency.ts", Codec::H264, 0, [3, 21, 0]),
    ("h265.ts", Codec::H265, 33, [3, 11, 10]),
];

/// Whether pictures and audio are the same. Tables may be at other positions.
fn have_same_payloads(one: &[Frame], other: &[Frame]) -> bool {
    let key = |frame: &Frame| (frame.track, frame.class, frame.time, payloads(&frame.bytes));
    let of = |frames: &[Frame], is_video: bool| {
        let is_it = |frame: &&Frame| {
            frame.class != FrameClass::Tables && frame.class.is_video() == is_video
        };
        frames.iter().filter(is_it).map(key).collect::<Vec<_>>()
    };
    of(one, true) == of(other, true) && of(one, false) == of(other, false)
}

/// The packets without their headers, in which a joiner renumbers the counters.
fn payloads(bytes: &[u8]) -> Vec<Vec<u8>> {
    packets(bytes).iter().map(|packet| packet[4..].to_vec()).collect()
}

#[test]
fn samples_are_split_and_joined() {
    for (name, codec, sounds, [keys, references, disposable]) in SAMPLES {
        let bytes = sample(name);
        let mut splitter = TsSplitter::default();
        let mut all = Vec::new();
        splitter.push(&bytes, &mut all);
        splitter.end(&mut all);
        assert_eq!(splitter.take_warnings(), [], "{name}");
        assert_eq!(splitter.tracks().len(), 1);
        assert_eq!(splitter.tracks()[0].codec, codec);
        assert_eq!(count_classes(&all)[1..], [sounds, keys, references, disposable], "{name}");
        let times: Vec<Duration> =
            all.iter().filter(|frame| frame.class.is_video()).map(|frame| frame.time).collect();
        assert!(
            times.is_sorted_by(|a, b| a < b) && times[0] == Duration::ZERO,
            "{name}: {times:?}"
        );
        let (out, shown) = join(&all, |_| true);
        assert_eq!(shown, 24, "{name}");
        check_transport(&out);
        assert!(have_same_payloads(&frames(&out), &all), "{name}");
    }
}

#[test]
fn the_clock_continues_without_the_frames_that_carried_it() {
    let all = frames(&sample("h264-b.ts"));
    let (mut joiner, mut out) = (TsJoiner::new(Output::AsSent), Vec::new());
    for frame in &all {
        match frame.class {
            FrameClass::Reference | FrameClass::Disposable => {
                joiner.record_loss(frame.track, frame.class)
            }
            _ => joiner.push(frame, &mut out),
        }
    }
    joiner.end(&mut out);
    check_transport(&out);
    let clocks = |bytes: &[u8]| -> Vec<u64> {
        packets(bytes).iter().filter_map(crate::stream::clock).collect()
    };
    let (before, after) = (clocks(&sample("h264-b.ts")), clocks(&out));
    // Audio units are up to 0.2 s apart.
    let widest = after.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(widest <= 45_000, "{after:?}");
    let end = before.last().unwrap();
    assert!(after.last().unwrap() + 45_000 >= *end, "{before:?} {after:?}");
}

#[test]
fn dropped_frames_leave_no_gap() {
    for (name, _, sounds, [keys, ..]) in SAMPLES {
        let all = frames(&sample(name));
        let (out, shown) = join(&all, |frame| frame.class <= FrameClass::Key);
        check_transport(&out);
        let left = frames(&out);
        assert_eq!(
            (shown, count_classes(&left)[1..].to_vec()),
            (keys, vec![sounds, keys, 0, 0]),
            "{name}"
        );
        // The clock references of dropped frames remain, and tables precede each key frame.
        let clocks = |bytes: &[u8]| packets(bytes).iter().filter_map(crate::stream::clock).count();
        assert_eq!(clocks(&out), clocks(&sample(name)), "{name}");
        let mut has_tables = false;
        for packet in packets(&out) {
            let is_key = pid(&packet) == 0x100 && is_start(&packet);
            assert!(!is_key || std::mem::take(&mut has_tables), "{name}");
            has_tables |= pid(&packet) == 0x1000;
        }
    }
}

#[test]
fn after_a_lost_reference_nothing_is_shown_before_the_next_key_frame() {
    let all = frames(&sample("h264-low-latency.ts"));
    let mut number = 0;
    let (out, shown) = join(&all, |frame| {
        number += usize::from(frame.class.is_video());
        !(frame.class == FrameClass::Reference && number == 4)
    });
    assert_eq!((shown, count_classes(&frames(&out))[2..].to_vec()), (24 - 5, vec![3, 16, 0]));
    check_transport(&out);
}

#[test]
fn a_ladder_has_tracks_and_becomes_one_video() {
    let bytes = sample("ladder.ts");
    let all = frames(&bytes);
    let of_track = |track| {
        all.iter().filter(move |frame| frame.class.is_video() && frame.track == track).count()
    };
    assert_eq!((of_track(0), of_track(1), count_classes(&all)[2]), (24, 24, 6));
    let (mut joiner, mut out) = (TsJoiner::new(Output::OneVideo), Vec::new());
    joiner.select(0);
    for frame in &all {
        if frame.time > Duration::from_millis(300) {
            joiner.select(1);
        }
        joiner.push(frame, &mut out);
    }
    joiner.end(&mut out);
    assert_eq!((joiner.counts().shown, joiner.counts().switches), (24, 1));
    check_transport(&out);
    let one = frames(&out);
    assert_eq!(
        count_classes(&one)[1..],
        [count_classes(&all)[1], 3, count_classes(&one)[3], count_classes(&one)[4]]
    );
    assert!(packets(&out).iter().any(|packet| crate::stream::clock(packet).is_some()));
}

#[test]
fn segments_have_all_pictures_of_the_stream() {
    for (name, codecs) in
        [("h264-b.ts", "avc1.64000a,mp4a.40.2"), ("h265.ts", "hvc1.1.6.L30.90,mp4a.40.2")]
    {
        let target = Duration::from_millis(600);
        let mut segmenter = Segmenter::new(Settings { target, ..Settings::default() });
        let mut pieces = Vec::new();
        frames(&sample(name)).iter().for_each(|frame| segmenter.push(frame, &mut pieces));
        segmenter.end(&mut pieces);
        assert_eq!(segmenter.take_warnings(), []);
        let [SegmenterOutput::Init(init), segments @ ..] = &pieces[..] else { panic!("{name}") };
        assert_eq!(init.codecs, codecs);
        let mut samples = 0;
        for (number, piece) in segments.iter().enumerate() {
            let SegmenterOutput::Segment(segment) = piece else {
                panic!("{name}: a second init segment")
            };
            assert_eq!((segment.number, segment.init), (number as u64, 0));
            samples += count_pictures(&segment.bytes);
        }
        assert_eq!((segments.len(), samples), (3, 24), "{name}");
    }
}

/// Packages frames with these times, milliseconds.
fn segments(frames: impl IntoIterator<Item = (u64, Frame)>) -> Vec<Segment> {
    let at = |(at, frame)| Frame { time: Duration::from_millis(at), ..frame };
    segment_frames(&frames.into_iter().map(at).collect::<Vec<_>>())
}

/// Packages frames, and returns the media segments.
pub fn segment_frames(frames: &[Frame]) -> Vec<Segment> {
    let target = Duration::from_secs(1);
    let mut segmenter = Segmenter::new(Settings { target, max_bytes: 1 << 20 });
    let mut pieces = Vec::new();
    frames.iter().for_each(|frame| segmenter.push(frame, &mut pieces));
    segmenter.end(&mut pieces);
    pieces.retain(|piece| matches!(piece, SegmenterOutput::Segment(_)));
    let segment =
        |piece| if let SegmenterOutput::Segment(segment) = piece { Some(segment) } else { None };
    pieces.into_iter().filter_map(segment).collect()
}

#[test]
fn segments_are_no_longer_than_the_first_one_and_gaps_are_marked() {
    let all = frames(&sample("h264-low-latency.ts"));
    let of = |class| all.iter().find(|frame| frame.class == class).cloned().unwrap();
    let key = of(FrameClass::Key);
    let other = of(FrameClass::Reference);
    let tables = all.iter().filter(|frame| frame.class == FrameClass::Tables).cloned();
    // Key frames each two seconds, then none for ten, then nothing for a minute, then key frames again.
    let picture = |at: u64| match at {
        _ if at.is_multiple_of(2000) && !(10_000..20_000).contains(&at) => key.clone(),
        _ => other.clone(),
    };
    let times = (0..20_000).chain(80_000..86_000).step_by(40);
    let pictures = times.filter(|at| !(20_000..80_000).contains(at)).map(|at| (at, picture(at)));
    let made = segments(tables.map(|frame| (0, frame)).chain(pictures));
    let rounded = |segment: &Segment| (segment.duration + Duration::from_millis(500)).as_secs();
    assert!(made.iter().all(|segment| rounded(segment) <= 2), "{made:?}");
    let starts: Vec<_> =
        made.iter().map(|one| (one.start.as_secs(), one.is_discontinuous)).collect();
    assert_eq!(
        starts.iter().filter(|(_, is)| *is).collect::<Vec<_>>(),
        [&(80, true)],
        "{starts:?}"
    );
    assert!(starts.contains(&(82, false)), "segments begin at key frames again: {starts:?}");
}

/// Far beyond all times that the protocol allows.
const FAR_FUTURE: Duration = Duration::from_micros(u64::MAX / 2);

/// These frames, the one with this number of the class at another time.
fn with_time(frames: &[Frame], class: FrameClass, number: usize, time: Duration) -> Vec<Frame> {
    let mut frames = frames.to_vec();
    let mut of_class = frames.iter_mut().filter(|frame| frame.class == class);
    of_class.nth(number).unwrap().time = time;
    frames
}

#[test]
fn a_frame_of_the_far_future_does_not_stop_the_time_of_segments() {
    let all = frames(&sample("h264-b.ts"));
    let ahead = Duration::from_secs(60);
    for (class, number, time) in [
        (FrameClass::Reference, 5, FAR_FUTURE),
        (FrameClass::Audio, 12, FAR_FUTURE),
        (FrameClass::Key, 0, FAR_FUTURE),
        (FrameClass::Reference, 5, ahead),
    ] {
        let changed = with_time(&all, class, number, time);
        let made = segment_frames(&changed);
        let shown: usize = made.iter().map(|segment| count_pictures(&segment.bytes)).sum();
        let length: Duration = made.iter().map(|segment| segment.duration).sum();
        let message = format!("{class:?} at {time:?}: {shown} pictures in {length:?}");
        assert_eq!(shown, 24, "{message}");
        // The sample has two seconds. A jump adds at most 40 ms each way; at a gap the first segment has its maximum
        // duration.
        let most = if time == ahead { 8500 } else { 2300 };
        assert!((1900..most).contains(&length.as_millis()), "{message}");
        assert!(made.iter().all(|one| one.start < Duration::from_secs(120)), "{message}");
    }
}

#[test]
fn a_frame_of_the_far_future_stops_neither_tables_nor_sounds() {
    let all = frames(&sample("h264-low-latency.ts"));
    let of = |class| all.iter().find(|frame| frame.class == class).cloned().unwrap();
    let (key, other) = (of(FrameClass::Key), of(FrameClass::Reference));
    let tables = all.iter().filter(|frame| frame.class == FrameClass::Tables).take(2).cloned();
    let at = |n: u64| if n == 20 { FAR_FUTURE } else { Duration::from_millis(40 * n) };
    let picture = |n| Frame { time: at(n), ..if n == 0 { key.clone() } else { other.clone() } };
    let (mut joiner, mut out) = (TsJoiner::new(Output::AsSent), Vec::new());
    tables.chain((0..200).map(picture)).for_each(|frame| joiner.push(&frame, &mut out));
    let repeated = packets(&out).iter().filter(|packet| pid(packet) == 0).count();
    // Eight seconds, and tables at least each half a second.
    assert!((15..=20).contains(&repeated), "{repeated}");

    let all = frames(&sample("ladder.ts"));
    let (mut joiner, mut out) = (TsJoiner::new(Output::OneVideo), Vec::new());
    joiner.select(0);
    let changed = with_time(&all, FrameClass::Audio, 10, FAR_FUTURE);
    changed.iter().for_each(|frame| joiner.push(frame, &mut out));
    let (before, after) = (count_classes(&all)[1], count_classes(&frames(&out))[1]);
    assert!(after + 3 >= before, "{after} of {before} sounds");
}

/// The frame with an empty picture: one packet with only the PES header.
fn emptied(frame: &Frame) -> Frame {
    let pes = [0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5, 0x21, 0, 1, 0, 1];
    let mut packet = vec![0x47, 0x40 | frame.bytes[1] & 0x1f, frame.bytes[2], 0x30];
    packet.extend([188 - 5 - pes.len() as u8, 0]);
    packet.resize(188 - pes.len(), 0xff);
    packet.extend(pes);
    Frame { bytes: packet.into(), ..frame.clone() }
}

#[test]
fn empty_pictures_do_not_make_a_segment_grow() {
    let all = frames(&sample("h264-low-latency.ts"));
    let key = all.iter().find(|frame| frame.class == FrameClass::Key).cloned().unwrap();
    let other = all.iter().find(|frame| frame.class == FrameClass::Reference).cloned().unwrap();
    let tables = all.iter().filter(|frame| frame.class == FrameClass::Tables).cloned();
    // All have the same time, so each one lasts a tick.
    let pictures = std::iter::repeat_n((1, emptied(&other)), 40_000);
    let made = segments(tables.map(|one| (0, one)).chain([(0, key)]).chain(pictures));
    assert!(made.len() > 1, "{}", made.len());
}

/// The number of pictures of a media segment.
fn count_pictures(segment: &[u8]) -> usize {
    count_samples(segment)[0]
}

/// The numbers of pictures and audio frames of a media segment. Checks that the data offsets of its boxes are right.
pub fn count_samples(segment: &[u8]) -> [usize; 2] {
    use mp4_atom::{Decode as _, DecodeMaybe as _};
    let mut rest = segment;
    mp4_atom::Styp::decode(&mut rest).unwrap();
    let before = rest.len();
    let moof = mp4_atom::Moof::decode(&mut rest).unwrap();
    let length = before - rest.len();
    let mdat = mp4_atom::Mdat::decode_maybe(&mut rest).unwrap().unwrap();
    assert!(rest.is_empty());
    let mut at = length + 8;
    for traf in &moof.traf {
        assert_eq!(traf.trun[0].data_offset, Some(at as i32));
        at += traf.trun[0].samples.iter().map(|one| one.size.unwrap() as usize).sum::<usize>();
    }
    assert_eq!(at, length + 8 + mdat.data.len());
    let count = |number: usize| moof.traf.get(number).map_or(0, |traf| traf.trun[0].samples.len());
    [count(0), count(1)]
}
