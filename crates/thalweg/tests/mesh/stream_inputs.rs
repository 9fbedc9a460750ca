//! `thalweg stream` with bad input, silent programs and full disks. None of it needs ffmpeg.

use super::{
    host::{Daemon, Host, text, until},
    stream_video::Running,
    streams::{SETTINGS, frames},
    transport::{self, PMT, Packet, TransportBuilder, VIDEO},
};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};
use thalweg_media::{Frame, FrameClass, TsSplitter};
use thalweg_stream::container::{PlainSplitter, Splitter as _};
use thalweg_wire::stream::leg::{FrameHead, MAX_TIME_US};

/// A deadline that a busy machine meets.
const LATENCY: [&str; 2] = ["--latency", "20s"];

/// The number of the stream's next frame at a host; `None` without the stream.
fn next(host: &Host, stream: &str) -> Option<u64> {
    let status = host.json(&["stream", "status", "--json"]);
    let streams = status["streams"].as_array().unwrap();
    streams.iter().find(|one| one["name"] == stream)?["next"].as_u64()
}

/// The number of the stream's legs at a host.
fn legs(host: &Host, stream: &str) -> usize {
    let status = host.json(&["stream", "status", "--json"]);
    let streams = status["streams"].as_array().unwrap();
    let found = streams.iter().find(|one| one["name"] == stream);
    found.map_or(0, |one| one["legs"].as_array().unwrap().len())
}

#[test]
fn a_silent_program_keeps_no_other_from_delivering() {
    let fra = Host::founder();
    let _fra = fra.start_with(SETTINGS, None);
    let listen = ["stream", "publish", "stage", "--listen", "tcp://127.0.0.1:0"];
    let mut publisher = Running::start(&fra, &[&listen[..], &["--format", "frames"]].concat());
    let at = publisher.address("waiting for a program at tcp://");
    let _silent = TcpStream::connect(at).unwrap();
    let mut first = TcpStream::connect(at).unwrap();
    first.write_all(&frames(0..15)).unwrap();
    until("the first one's frames have come", || next(&fra, "stage") == Some(15));
    // It stays, and delivers nothing more.
    TcpStream::connect(at).unwrap().write_all(&frames(0..15)).unwrap();
    publisher.line("has stopped sending; the next program takes its place");
    until("the second one's frames have come", || next(&fra, "stage") == Some(30));
    publisher.line("has disconnected; waiting for another");
    publisher.interrupt();
}

#[test]
fn an_idle_publisher_ends_with_its_node() {
    let fra = Host::founder();
    let runs = fra.start_with(SETTINGS, None);
    let listen = ["stream", "publish", "hall", "--listen", "tcp://127.0.0.1:0"];
    let datagrams = ["stream", "publish", "yard", "--listen", "udp://127.0.0.1:0"];
    let publishers = [&["stream", "publish", "stage"][..], &listen, &datagrams]
        .map(|args| Running::start(&fra, args));
    until("the streams are listed", || {
        let listed = fra.ok(&["stream", "list"]);
        ["stage", "hall", "yard"].iter().all(|name| listed.contains(name))
    });
    runs.end();
    for mut publisher in publishers {
        // `wait` would close the input, whose end is another reason to end.
        let _input = publisher.child.stdin.take();
        // The node's reason, or the end of its connection, whichever comes before the process ends.
        publisher.line("the node");
        assert_eq!(publisher.child.wait().unwrap().code(), Some(1));
    }
}

/// The input of a publisher of `stage`, and a subscriber that has joined.
fn subscribed(host: &Host, format: &str, subscriber: &mut Command) -> (Running, Child) {
    let publish = ["stream", "publish", "stage", "--format", format];
    let publisher = Running::start(host, &[&publish[..], &LATENCY].concat());
    until("it is listed", || host.ok(&["stream", "list"]).contains("stage"));
    let subscriber = subscriber.spawn().unwrap();
    until("it is subscribed to", || legs(host, "stage") == 1);
    (publisher, subscriber)
}

fn deliver(publisher: &mut Running, bytes: &[u8]) {
    publisher.child.stdin.take().unwrap().write_all(bytes).unwrap();
}

#[test]
fn a_full_disk_under_the_output_has_its_exit_code() {
    let fra = Host::founder();
    let _fra = fra.start_with(SETTINGS, None);
    let args = ["stream", "subscribe", "stage", "--format", "frames"];
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut subscribe = fra.command(&[&args[..], &LATENCY].concat());
    subscribe.stdout(full);
    let (mut publisher, subscriber) = subscribed(&fra, "frames", &mut subscribe);
    deliver(&mut publisher, &frames(0..15));
    let output = subscriber.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("cannot write the stream: No space left"), "{said}");
}

#[test]
fn a_last_segment_that_cannot_be_written_has_its_exit_code() {
    let fra = Host::founder();
    let _fra = fra.start_with(SETTINGS, None);
    // A directory in the place of the last segment, because a test cannot fill a disk without rights.
    fs::create_dir_all(fra.path("hls/segment-1.m4s/file")).unwrap();
    let args = ["stream", "subscribe", "stage", "--hls-dir", "hls"];
    let mut subscribe = fra.command(&[&args[..], &LATENCY].concat());
    let (mut publisher, subscriber) = subscribed(&fra, "ts", &mut subscribe);
    deliver(&mut publisher, &sample());
    let output = subscriber.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert_eq!(said.matches("cannot write").count(), 1, "{said}");
    assert!(fra.path("hls/segment-0.m4s").exists(), "what is complete stays");
}

/// The sample in the plain format, with one picture at this time.
fn sample_with_time(time_us: u64) -> Vec<u8> {
    let (mut splitter, mut split) = (TsSplitter::default(), Vec::new());
    splitter.push(&sample(), &mut split);
    splitter.end(&mut split);
    let far = split.iter().filter(|frame| frame.class == FrameClass::Reference).nth(5).unwrap();
    let far = far.time;
    let encode = |frame: &Frame| {
        let is_far = frame.time == far && frame.class == FrameClass::Reference;
        let head = FrameHead {
            sequence: 0,
            track: frame.track,
            class: frame.class as u8,
            time_us: if is_far { time_us } else { frame.time.as_micros() as u64 },
            age_us: 0,
            sent_us: 0,
            length: frame.bytes.len() as u32,
        };
        PlainSplitter::encode(head, frame)
    };
    split.iter().flat_map(encode).collect()
}

#[test]
fn a_picture_of_the_far_future_does_not_stop_the_time_of_hls() {
    let fra = Host::founder();
    let _fra = fra.start_with(SETTINGS, None);
    let args = ["stream", "subscribe", "stage", "--hls-dir", "hls"];
    let mut subscribe = fra.command(&[&args[..], &LATENCY].concat());
    let (mut publisher, subscriber) = subscribed(&fra, "frames", &mut subscribe);
    deliver(&mut publisher, &sample_with_time(MAX_TIME_US));
    let output = subscriber.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let duration = duration(&fra.path("hls/stream.m3u8"));
    assert!((1.9..2.3).contains(&duration), "{duration}");
    // A later one is no time.
    let publish = ["stream", "publish", "hall", "--format", "frames"];
    let mut publisher = Running::start(&fra, &publish);
    deliver(&mut publisher, &sample_with_time(u64::MAX / 2));
    publisher.line("the frame's time of 9223372036854775807 µs is out of range");
    assert_eq!(publisher.child.wait().unwrap().code(), Some(5));
}

/// Two seconds of H.264 with disposable pictures, and AAC: 24 pictures, of which each eighth is a key frame.
fn sample() -> Vec<u8> {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../media/samples");
    fs::read(samples.join("h264-b.ts")).unwrap()
}

/// The places of the packets with which pictures begin.
fn pictures(packets: &[Packet]) -> Vec<usize> {
    let is_first =
        |n: &usize| transport::pid(&packets[*n]) == VIDEO && transport::is_start(&packets[*n]);
    (0..packets.len()).filter(is_first).collect()
}

/// An input, and what becomes of it.
struct Row {
    what: &'static str,
    bytes: Vec<u8>,
    /// What the publisher says of it; empty: nothing.
    said: &'static str,
    /// The pictures and sounds that arrive.
    arrives: [usize; 2],
}

const WHOLE: [usize; 2] = [24, 33];

fn row(what: &'static str, packets: &[Packet], said: &'static str, arrives: [usize; 2]) -> Row {
    Row { what, bytes: packets.as_flattened().to_vec(), said, arrives }
}

fn rows() -> Vec<Row> {
    let whole = transport::packets(&sample());
    let starts = pictures(&whole);
    let without = |table: u16| {
        let mut packets = whole.clone();
        packets.retain(|packet| transport::pid(packet) != table);
        packets
    };
    let mut wrapped = whole.clone();
    transport::shift(&mut wrapped, (1 << 33) - 90_000 - 126_000);
    let jumped = |seconds: i64| {
        let mut packets = whole.clone();
        transport::shift(&mut packets, 2000 * 90_000);
        transport::shift(&mut packets[starts[16]..], seconds * 90_000);
        packets
    };
    let noise = b"no packets at all, but a G (0x47) ".repeat(50);
    let bytes = whole.as_flattened();
    let mut cut = noise.clone();
    cut.extend_from_slice(&bytes[..bytes.len() - 100]);
    // The picture before the large one may not be whole, and the next key frame is picture 16. The cut is in a sound.
    vec![
        row("as it is", &whole, "", WHOLE),
        row("33 bits pass", &wrapped, "", WHOLE),
        row("the clock jumps ahead", &jumped(1000), "clock", WHOLE),
        row("the clock jumps back", &jumped(-1000), "clock", WHOLE),
        row("the PIDs change", &moved(&whole, starts[8]), "", WHOLE),
        row("no PAT", &without(transport::PAT), "association table (PAT)", [0, 0]),
        row("no PMT", &without(PMT), "map (PMT)", [0, 0]),
        row("a NAL unit of 20 MB", &with_huge(&whole, starts[12]), "type 1", [19, 33]),
        Row { what: "noise and a cut", bytes: cut, said: "skipped", arrives: [24, 32] },
        Row { what: "noise alone", bytes: noise, said: "skipped", arrives: [0, 0] },
    ]
}

/// The video and its sound have other PIDs from this packet on, as new tables say.
fn moved(packets: &[Packet], from: usize) -> Vec<Packet> {
    let (before, after) = packets.split_at(from);
    let mut builder = TransportBuilder::default();
    builder.tables(&[(1, PMT, &[(0x1b, VIDEO + 0x40), (0x0f, VIDEO + 0x41)])]);
    let is_stream = |packet: &&Packet| (VIDEO..VIDEO + 2).contains(&transport::pid(packet));
    let after = after.iter().filter(is_stream).map(|packet| {
        let (mut packet, pid) = (*packet, transport::pid(packet));
        transport::set_pid(&mut packet, pid + 0x40);
        packet
    });
    before.iter().chain(&builder.packets).copied().chain(after).collect()
}

/// A picture with a NAL unit of 20 MB before this packet.
fn with_huge(packets: &[Packet], at: usize) -> Vec<Packet> {
    let mut builder = TransportBuilder::default();
    let mut huge = vec![0x41; 20_000_000];
    huge[1] = 0x9a;
    builder.picture(VIDEO, 90_000, &[&[9, 0x10], &huge]);
    [&packets[..at], &builder.packets[..], &packets[at..]].concat()
}

/// The pictures and sounds of a transport stream.
fn counts(bytes: &[u8]) -> [usize; 2] {
    let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
    splitter.push(bytes, &mut frames);
    splitter.end(&mut frames);
    let sounds = frames.iter().filter(|frame| frame.class == FrameClass::Audio).count();
    [frames.iter().filter(|frame| frame.class.is_video()).count(), sounds]
}

/// The duration of all segments of a playlist; zero without one.
fn duration(playlist: &Path) -> f64 {
    let text = fs::read_to_string(playlist).unwrap_or_default();
    let durations = text.lines().filter_map(|line| line.strip_prefix("#EXTINF:"));
    durations.map(|one| one.trim_end_matches(',').parse::<f64>().unwrap()).sum()
}

/// Publishes the input at `fra`. It is received at `ber` through a relay, as a transport stream and as HLS.
fn pass(fra: &Host, ber: &Host, name: &str, row: &Row) -> Result<(), String> {
    let mut publisher = Running::start(fra, &[&["stream", "publish", name], &LATENCY[..]].concat());
    until("it is listed", || fra.ok(&["stream", "list"]).contains(name));
    let subscribe = |more: &[&str]| {
        let args = ["stream", "subscribe", name, "--from", "nyc"];
        ber.command(&[&args[..], &LATENCY, more].concat()).spawn().unwrap()
    };
    let mut subscribers = [subscribe(&[]), subscribe(&["--hls-dir", name])];
    until("both have subscribed", || {
        subscribers.iter_mut().for_each(assert_runs);
        legs(ber, name) == 2 && legs(fra, name) == 1
    });
    deliver(&mut publisher, &row.bytes);
    let mut said = String::new();
    publisher.errors().read_to_string(&mut said).unwrap();
    let code = publisher.child.wait().unwrap().code();
    let outputs = subscribers.map(|one| one.wait_with_output().unwrap());
    let codes = outputs.each_ref().map(|output| output.status.code());
    let arrived = counts(&outputs[0].stdout);
    let duration = duration(&ber.path(name).join("stream.m3u8"));
    // The sample has two seconds; a jump costs 40 ms.
    let is_shown = match row.arrives[0] {
        0 => duration == 0.0,
        24 => (1.9..2.3).contains(&duration),
        _ => (1.0..2.3).contains(&duration),
    };
    // Besides the first line, which says what is published.
    let warnings = said.lines().skip(1).collect::<Vec<_>>().join("\n");
    let is_said = if row.said.is_empty() { warnings.is_empty() } else { said.contains(row.said) };
    let is_right = is_said
        && is_shown
        && arrived == row.arrives
        && (code, codes) == (Some(0), [Some(0), Some(0)]);
    is_right.then_some(()).ok_or_else(|| {
        let errors = outputs.each_ref().map(|o| String::from_utf8_lossy(&o.stderr).into_owned());
        format!("{}: {code:?} {codes:?} {arrived:?} {duration} s, {said}; {errors:?}", row.what)
    })
}

/// Panics with what the command has said if it has ended.
fn assert_runs(command: &mut Child) {
    if let Some(status) = command.try_wait().unwrap() {
        let mut said = String::new();
        command.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        panic!("a subscriber has ended, {status}: {said}");
    }
}

/// The most memory that a node may have besides what it had before: its streams' rings and legs, and reserve.
const MEMORY: u64 = 64 << 20;

/// A stream of plain frames that a program publishes at `fra` and another one receives at `ber`.
struct Other {
    publisher: Child,
    received: std::thread::JoinHandle<Vec<u8>>,
    subscriber: Child,
    sent: u64,
}

impl Other {
    fn begin(fra: &Host, ber: &Host) -> Self {
        let format = ["--format", "frames"];
        let publish = ["stream", "publish", "other"];
        let mut publish = fra.command(&[&publish[..], &format, &LATENCY].concat());
        let publisher = publish.stdin(Stdio::piped()).spawn().unwrap();
        until("it is listed", || fra.ok(&["stream", "list"]).contains("other"));
        let subscribe = ["stream", "subscribe", "other", "--from", "nyc"];
        let mut subscriber =
            ber.command(&[&subscribe[..], &format, &LATENCY].concat()).spawn().unwrap();
        let mut output = subscriber.stdout.take().unwrap();
        let received = std::thread::spawn(move || {
            let mut received = Vec::new();
            output.read_to_end(&mut received).unwrap();
            received
        });
        until("it is subscribed to", || legs(ber, "other") == 1 && legs(fra, "other") == 1);
        Self { publisher, received, subscriber, sent: 0 }
    }

    /// Sends some more frames.
    fn go_on(&mut self) {
        let numbers = self.sent..self.sent + 30;
        self.sent = numbers.end;
        self.publisher.stdin.as_mut().unwrap().write_all(&frames(numbers)).unwrap();
    }

    /// Ends the stream, all of which must have arrived.
    fn assert_complete(mut self) {
        drop(self.publisher.stdin.take());
        assert_eq!(self.publisher.wait().unwrap().code(), Some(0));
        assert_eq!(self.subscriber.wait().unwrap().code(), Some(0));
        let (mut splitter, mut came) = (PlainSplitter::default(), Vec::new());
        splitter.push(&self.received.join().unwrap(), &mut came).unwrap();
        let numbers: Vec<u8> = came.iter().map(|frame| frame.bytes[0]).collect();
        assert_eq!(numbers, (0..self.sent).map(|n| n as u8).collect::<Vec<_>>());
    }
}

#[test]
fn bad_input_of_one_stream_leaves_another_one_complete() {
    let fra = Host::founder();
    let fra_runs = fra.start_with(SETTINGS, None);
    let nyc = Host::relay(&fra, "nyc", &[]);
    let nyc_runs = nyc.start_with(&format!("{SETTINGS}relay = true\n"), None);
    let ber = Host::relay(&fra, "ber", &[]);
    let ber_runs = ber.start();
    let nodes = [&fra_runs, &nyc_runs, &ber_runs];
    let mut other = Other::begin(&fra, &ber);
    let before = nodes.map(Daemon::memory);
    let mut wrong = Vec::new();
    for (number, row) in rows().iter().enumerate() {
        other.go_on();
        wrong.extend(pass(&fra, &ber, &format!("stage-{number}"), row).err());
        for (node, before) in nodes.iter().zip(before) {
            let more = node.memory().saturating_sub(before);
            assert!(more < MEMORY, "{}: {more} bytes more than before", row.what);
        }
        other.go_on();
    }
    other.assert_complete();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
