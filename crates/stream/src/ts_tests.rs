use super::*;
use FrameClass::{Audio, Disposable, Key, Reference, Tables};
use proptest::prelude::*;

const VIDEO: u16 = 0x100;
const SOUND: u16 = 0x101;
const PMT: u16 = 0x1000;

/// A packet, filled up by its adaptation field.
fn packet(pid: u16, is_start: bool, counter: u8, payload: &[u8]) -> Vec<u8> {
    let start = if is_start { 0x40 } else { 0 };
    let mut packet = vec![SYNC, start | (pid >> 8) as u8, pid as u8];
    let stuffing = PACKET - 4 - payload.len();
    packet.push(if stuffing > 0 { 0x30 } else { 0x10 } | counter & 0x0f);
    match stuffing {
        0 => {}
        1 => packet.push(0),
        n => {
            packet.extend([(n - 1) as u8, 0]);
            packet.resize(4 + n, 0xff);
        }
    }
    packet.extend(payload);
    assert_eq!(packet.len(), PACKET);
    packet
}

fn table(id: u8, body: &[u8]) -> Vec<u8> {
    let mut section = vec![0, id, 0xb0, (body.len() + 4) as u8];
    section.extend(body);
    // Nobody here looks at the check sum.
    section.extend([0; 4]);
    section
}

fn pat() -> Vec<u8> {
    packet(0, true, 0, &table(0, &[0, 1, 0xc1, 0, 0, 0, 1, 0xe0 | (PMT >> 8) as u8, PMT as u8]))
}

fn pmt(video: u8) -> Vec<u8> {
    let pid = |pid: u16| [0xe0 | (pid >> 8) as u8, pid as u8];
    let ([v0, v1], [s0, s1]) = (pid(VIDEO), pid(SOUND));
    let body = [0, 1, 0xc1, 0, 0, v0, v1, 0xf0, 0, video, v0, v1, 0xf0, 0, 0x0f, s0, s1, 0xf0, 0];
    packet(PMT, true, 0, &table(2, &body))
}

/// A unit of a PID with a time, in packets.
fn unit(pid: u16, dts: i64, body: &[u8]) -> Vec<u8> {
    let stamp = |mark: u8| {
        let dts = dts.rem_euclid(WRAP);
        [
            mark | (dts >> 29) as u8 & 0x0e | 1,
            (dts >> 22) as u8,
            (dts >> 14) as u8 | 1,
            (dts >> 7) as u8,
            (dts << 1) as u8 | 1,
        ]
    };
    let mut pes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10];
    pes.extend(stamp(0x30));
    pes.extend(stamp(0x10));
    pes.extend(body);
    let mut packets = Vec::new();
    for (n, piece) in pes.chunks(170).enumerate() {
        packets.extend(packet(pid, n == 0, n as u8, piece));
    }
    packets
}

/// A picture of H.264 with this NAL unit, so long.
fn picture(dts: i64, head: u8, length: usize) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1, 0x09, 0xf0, 0, 0, 1, head];
    body.resize(length, 0x55);
    unit(VIDEO, dts, &body)
}

/// Tables, then a group of pictures with sound, and the beginning of the next one.
fn stream() -> Vec<u8> {
    let tick = 3000;
    let mut all = [pat(), pmt(0x1b)].concat();
    for (n, head) in [0x65, 0x41, 0x01, 0x01, 0x41, 0x01, 0x65].into_iter().enumerate() {
        all.extend(picture(n as i64 * tick, head, 300 + 100 * n));
        all.extend(unit(SOUND, n as i64 * tick, &[0xff; 60]));
    }
    all
}

fn split(pieces: &[&[u8]]) -> (TsSplitter, Vec<Frame>) {
    let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
    for piece in pieces {
        splitter.push(piece, &mut frames).unwrap();
    }
    splitter.end(&mut frames);
    (splitter, frames)
}

fn classes(frames: &[Frame]) -> Vec<FrameClass> {
    frames.iter().map(|frame| frame.class).filter(|class| *class != Audio).collect()
}

#[test]
fn pictures_are_classified_by_their_nal_units() {
    let (mut splitter, frames) = split(&[&stream()]);
    let expected =
        [Tables, Tables, Key, Reference, Disposable, Disposable, Reference, Disposable, Key];
    assert_eq!(classes(&frames), expected);
    assert_eq!(frames.iter().filter(|frame| frame.class == Audio).count(), 7);
    assert!(splitter.passed().is_empty());
    let times: Vec<_> =
        frames.iter().filter(|f| f.class > Audio).map(|f| f.time.as_millis()).collect();
    assert_eq!(times, [0, 33, 66, 100, 133, 166, 200]);
    let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
    assert_eq!(bytes, stream().len(), "nothing is lost");
}

#[test]
fn h265_is_classified_by_types_and_layers() {
    let nal = |kind: u8, layer: u8| [kind << 1, layer + 1, 0x55, 0x55];
    let mut all = [pat(), pmt(0x24)].concat();
    let pictures = [nal(19, 0), nal(1, 0), nal(0, 0), nal(1, 1), nal(0, 1), nal(0, 0), nal(21, 0)];
    for (n, nal) in pictures.iter().enumerate() {
        let body = [&[0, 0, 1][..], nal].concat();
        all.extend(unit(VIDEO, n as i64 * 3000, &body));
    }
    let found = classes(&split(&[&all]).1[2..]);
    // A picture of the lowest layer that none of the same layer refers to may be referred to by the layer above.
    assert_eq!(found, [Key, Reference, Disposable, Reference, Disposable, Reference, Key]);
}

#[test]
fn what_cannot_be_decoded_at_the_beginning_is_left_out() {
    let mut all = [pat(), pmt(0x1b)].concat();
    for (n, head) in [0x41, 0x01, 0x65, 0x41].into_iter().enumerate() {
        all.extend(picture(n as i64 * 3000, head, 100));
    }
    assert_eq!(classes(&split(&[&all]).1), [Tables, Tables, Key, Reference]);
}

#[test]
fn recovery_points_are_key_frames_where_there_are_no_others() {
    let mut all = [pat(), pmt(0x1b)].concat();
    let recovery = [0, 0, 1, 0x06, 6, 1, 0xc4, 0, 0, 1, 0x41, 0x55];
    all.extend(unit(VIDEO, 0, &recovery));
    all.extend(picture(3000, 0x65, 50));
    all.extend(unit(VIDEO, 6000, &recovery));
    assert_eq!(classes(&split(&[&all]).1), [Tables, Tables, Key, Key, Reference]);
}

#[test]
fn clocks_wrap_and_jump_and_time_goes_on() {
    let mut all = [pat(), pmt(0x1b)].concat();
    for dts in [WRAP - 3000, 0, 3000, 900_000_000, 900_003_000] {
        all.extend(picture(dts, 0x65, 50));
    }
    let (_, frames) = split(&[&all]);
    let times: Vec<_> = frames[2..].iter().map(|frame| frame.time.as_millis()).collect();
    assert_eq!(times, [0, 33, 66, 106, 140]);
}

#[test]
fn bad_input_is_passed_over_and_said() {
    let mut all = stream();
    all.splice(0..0, [1, 2, SYNC, 3]);
    let (mut splitter, frames) = split(&[&all]);
    assert_eq!(splitter.passed(), [Passed::Unsynchronised(4)]);
    assert_eq!(frames.len(), 16);
    // A damaged packet is left out.
    let mut all = stream();
    all[PACKET * 4 + 1] |= 0x80;
    let (mut splitter, _) = split(&[&all]);
    assert!(splitter.passed().contains(&Passed::Damaged));
    // No tables: nothing can be judged.
    let nothing = picture(0, 0x65, 100).repeat(27_000);
    let (mut splitter, frames) = split(&[&nothing]);
    assert!(splitter.passed().contains(&Passed::NoTables));
    assert!(frames.iter().all(|frame| frame.class == Tables));
    // A picture of 20 MB: what refers to it does not go either.
    let mut all =
        [pat(), pmt(0x1b), picture(0, 0x65, 50), picture(3000, 0x41, 20_000_000)].concat();
    all.extend([picture(6000, 0x41, 50), picture(9000, 0x65, 50)].concat());
    let (mut splitter, frames) = split(&[&all]);
    assert_eq!(splitter.passed(), [Passed::TooLarge(VIDEO)]);
    assert_eq!(classes(&frames), [Tables, Tables, Key, Key]);
}

/// Continuity counters by PID, of packets with payload.
fn counters(bytes: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    let mut found: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    for packet in bytes.as_chunks::<PACKET>().0 {
        found.entry(word(&packet[1..]) & 0x1fff).or_default().push(packet[3] & 0x0f);
    }
    found
}

#[test]
fn a_joined_stream_has_no_gaps_and_tables_before_key_frames() {
    let (_, frames) = split(&[&stream()]);
    let (mut joiner, mut out) = (TsJoiner::default(), Vec::new());
    for frame in frames.iter().filter(|frame| frame.class != Disposable) {
        joiner.push(frame, &mut out);
    }
    for (pid, counters) in counters(&out) {
        let expected: Vec<u8> = (0..counters.len()).map(|n| n as u8 & 0x0f).collect();
        assert_eq!(counters, expected, "{pid:#x}");
    }
    // Once as they came, and again before each of two key frames.
    assert_eq!(counters(&out)[&PMT].len(), 3);
    let (mut splitter, again) = split(&[&out]);
    assert!(splitter.passed().is_empty());
    let video: Vec<_> = classes(&again).into_iter().filter(|class| *class != Tables).collect();
    assert_eq!(video, [Key, Reference, Reference, Key]);
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_frames(cuts in prop::collection::vec(1_usize..700, 1..40)) {
        let (stream, whole) = (stream(), split(&[&stream()]).1);
        let (mut pieces, mut rest) = (Vec::new(), &stream[..]);
        for cut in cuts.into_iter().cycle() {
            let (piece, more) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        let cut = split(&pieces).1;
        prop_assert_eq!(cut.len(), whole.len());
        for (one, other) in cut.iter().zip(&whole) {
            prop_assert_eq!((one.class, one.time, &one.bytes), (other.class, other.time, &other.bytes));
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let (_, frames) = split(&[&bytes]);
        let mut out = Vec::new();
        frames.iter().for_each(|frame| TsJoiner::default().push(frame, &mut out));
    }

    #[test]
    fn nearly_right_bytes_are_survived(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30)) {
        let mut bytes = stream();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let (_, frames) = split(&[&bytes]);
        let mut joiner = TsJoiner::default();
        let mut out = Vec::new();
        frames.iter().for_each(|frame| joiner.push(frame, &mut out));
        prop_assert!(out.len() <= bytes.len() * 2 + 64 * PACKET * frames.len());
    }
}
