//! `thalweg stream` between two hosts.

use super::host::{Host, text, until};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
    time::Duration,
};
use thalweg_media::{Frame, FrameClass};
use thalweg_stream::container::{PlainSplitter, Splitter as _};
use thalweg_wire::stream::leg::FrameHead;

pub const SETTINGS: &str = "[stream]\nsubscribe = [\"*\"]\n";

/// Frames with these numbers in the plain format, 30 per second, in groups of a key frame and fourteen others.
pub fn frames(numbers: std::ops::Range<u64>) -> Vec<u8> {
    let frame = |n: u64| {
        let class = match n % 15 {
            0 => FrameClass::Key,
            n if n % 3 == 0 => FrameClass::Reference,
            _ => FrameClass::Disposable,
        };
        let bytes = vec![n as u8; 1000];
        let frame =
            Frame { track: 0, class, time: Duration::from_micros(n * 33_333), bytes: bytes.into() };
        let head = FrameHead {
            sequence: n,
            track: 0,
            class: class as u8,
            time_us: n * 33_333,
            age_us: 0,
            sent_us: 0,
            length: 1000,
        };
        PlainSplitter::encode(head, &frame)
    };
    numbers.flat_map(frame).collect()
}

#[test]
fn a_stream_passes_from_program_to_program() {
    let fra = Host::founder();
    let _fra = fra.start_with(SETTINGS, None);
    let ber = Host::relay(&fra, "ber", &[]);
    let _ber = ber.start();
    std::fs::write(fra.path("movie"), frames(0..150)).unwrap();
    let publish =
        ["stream", "publish", "stage", "movie", "--pace", "--latency", "20s", "--format", "frames"];
    let mut publisher = fra.command(&publish).spawn().unwrap();
    until("fra has it", || fra.ok(&["stream", "list"]).contains("stage"));
    let subscribe =
        ["stream", "subscribe", "stage", "--from", "fra", "--latency", "20s", "--format", "frames"];
    let output = ber.run(&subscribe);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut came = Vec::new();
    let mut splitter = PlainSplitter::default();
    splitter.push(&output.stdout, &mut came).unwrap();
    assert_eq!((splitter.end(&mut Vec::new()), came[0].class), (0, FrameClass::Key));
    let places: Vec<u8> = came.iter().map(|frame| frame.bytes[0]).collect();
    let first = places[0];
    assert_eq!(places, (first..150).collect::<Vec<_>>(), "all frames from a key frame to the end");
    assert!(publisher.wait().unwrap().success());
    until("it is over", || fra.json(&["stream", "list", "--json"]) == serde_json::json!([]));
    assert_eq!(fra.ok(&["stream", "status"]), "no streams\n");
}

#[test]
fn a_watch_shows_a_stream_each_second() {
    let fra = Host::founder();
    let _fra = fra.start_with(SETTINGS, None);
    std::fs::write(fra.path("movie"), frames(0..3000)).unwrap();
    let publish = ["stream", "publish", "stage", "movie", "--pace", "--format", "frames"];
    let mut publisher = fra.command(&publish).spawn().unwrap();
    until("fra has it", || fra.ok(&["stream", "list"]).contains("stage"));
    let lines = |args: &[&str], count: usize| {
        let mut watch =
            fra.command(args).env("NO_COLOR", "1").stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(watch.stdout.take().unwrap());
        let lines: Vec<String> = out.lines().take(count).map(Result::unwrap).collect();
        watch.kill().unwrap();
        watch.wait().unwrap();
        lines
    };
    let views = lines(&["stream", "status", "--watch", "--json"], 2);
    let views: Vec<serde_json::Value> =
        views.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let next = |view: &serde_json::Value| view["streams"][0]["next"].as_u64().unwrap();
    assert!(next(&views[1]) > next(&views[0]), "{views:?}");
    assert_eq!(views[1]["oracle"]["standing"], "live", "{views:?}");
    // A view is a line about the stream and an empty one.
    let views = lines(&["stream", "status", "stage", "--watch"], 3);
    assert!(views[0].starts_with("stage  at fra,") && views[1].is_empty(), "{views:?}");
    assert_eq!(views[2].split(',').next(), Some("stage  at fra"), "{views:?}");
    let other = fra.ok(&["stream", "status", "hall"]);
    assert_eq!(other, "no streams\n");
    publisher.kill().unwrap();
    publisher.wait().unwrap();
}

#[test]
fn errors_say_what_failed() {
    let fra = Host::founder();
    let said = fra.fails(4, &["stream", "subscribe", "stage"]);
    assert!(said.contains("no daemon answers") && said.contains("thalweg node"), "{said}");
    let _fra = fra.start();
    let said = fra.fails(4, &["stream", "subscribe", "stage"]);
    assert!(said.contains("the node has no stream `stage`"), "{said}");
    let said = fra.fails(2, &["stream", "publish", "stage", "--listen", "tcp://0.0.0.0:9000"]);
    assert!(said.contains("loopback"), "{said}");
    let mut garbage = fra
        .command(&["stream", "publish", "noise", "--format", "frames"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    garbage.stdin.take().unwrap().write_all(&[7; 100]).unwrap();
    let output = garbage.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("at byte 0 of the input"), "{}", text(&output.stderr));
    let mut first =
        fra.command(&["stream", "publish", "stage"]).stdin(Stdio::piped()).spawn().unwrap();
    until("the first one has it", || fra.ok(&["stream", "list"]).contains("stage"));
    let said = fra.fails(3, &["stream", "publish", "stage"]);
    assert!(said.contains("is published already, by a program of this host"), "{said}");
    let json = fra.json(&["stream", "status", "stage", "--json"]);
    assert_eq!(json["streams"][0]["name"], "stage");
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
}

/// Starts a host's daemon with this shell script as a transcoder of `stage`, and a publisher of `stage`. `name` is the
/// line of the settings that names the result.
fn transcoding(
    host: &Host,
    name: &str,
    script: &str,
) -> (super::host::Daemon, std::process::Child) {
    let settings = format!(
        "[[stream.transcoder]]\nof = \"stage\"\n{name}\ncommand = [\"sh\", \"-c\", '{script}']\n"
    );
    let daemon = host.start_with(&settings, None);
    let publish = ["stream", "publish", "stage", "--latency", "20s"];
    let publisher = host.command(&publish).stdin(Stdio::piped()).spawn().unwrap();
    (daemon, publisher)
}

/// The result is a separate stream.
const COPY: &str = "name = \"copy\"";

/// A second of H.264.
fn sample() -> Vec<u8> {
    let samples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../media/samples");
    std::fs::read(samples.join("h264-low-latency.ts")).unwrap()
}

fn assert_ends(mut child: std::process::Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_transcoder_makes_a_stream_of_another_one() {
    let fra = Host::founder();
    let pid = fra.path("pid");
    // The script does not end by itself.
    let script = format!("echo $$ > {}; cat; exec sleep 1000", pid.display());
    let (_fra, mut publisher) = transcoding(&fra, COPY, &script);
    publisher.stdin.as_mut().unwrap().write_all(&sample()).unwrap();
    until("it is made", || fra.ok(&["stream", "list"]).contains("copy"));
    let subscribe = ["stream", "subscribe", "copy", "--latency", "20s"];
    let subscriber = fra.command(&subscribe).stdout(Stdio::piped()).spawn().unwrap();
    until("it is subscribed to", || {
        let status = fra.json(&["stream", "status", "--json"]);
        let streams = status["streams"].as_array().cloned().unwrap_or_default();
        streams.iter().any(|one| one["name"] == "copy" && one["legs"][0].is_object())
    });
    publisher.stdin.as_mut().unwrap().write_all(&sample()).unwrap();
    publisher.stdin.as_mut().unwrap().write_all(&sample()).unwrap();
    assert_ends(publisher);
    let output = subscriber.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "the stream ends with the one that it is made of");
    let (mut splitter, mut made) = (thalweg_media::TsSplitter::default(), Vec::new());
    splitter.push(&output.stdout, &mut made);
    splitter.end(&mut made);
    let pictures = made.iter().filter(|frame| frame.class.is_video()).count();
    assert!(pictures >= 24, "{pictures}");
    let pid = std::fs::read_to_string(pid).unwrap();
    let process = std::path::Path::new("/proc").join(pid.trim());
    until("the command is gone", || !process.exists());
}

#[test]
fn a_transcoder_makes_another_rendition_of_its_stream() {
    let fra = Host::founder();
    let pid = fra.path("pid");
    // The script does not end by itself.
    let script = format!("echo $$ > {}; cat; exec sleep 1000", pid.display());
    let (_fra, mut publisher) = transcoding(&fra, "", &script);
    let sample = sample();
    let (first, second) = sample.split_at(sample.len() / 376 * 188);
    // A transcoder gets the source from the next key frame on, and only the first half has one.
    until("the command runs", || pid.exists());
    publisher.stdin.as_mut().unwrap().write_all(first).unwrap();
    let stage = || fra.json(&["stream", "status", "--json"])["streams"][0].clone();
    until("its pictures come", || {
        let pictures = stage()["rates"][1].as_array().cloned().unwrap_or_default();
        pictures.iter().skip(2).any(|bps| bps.as_u64() > Some(0))
    });
    let subscribe = ["stream", "subscribe", "stage", "--rendition", "all", "--latency", "20s"];
    let subscriber = fra.command(&subscribe).stdout(Stdio::piped()).spawn().unwrap();
    until("it is subscribed to", || stage()["legs"][0].is_object());
    publisher.stdin.as_mut().unwrap().write_all(second).unwrap();
    assert_ends(publisher);
    let output = subscriber.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "the stream ends with its publisher");
    let (mut splitter, mut frames) = (thalweg_media::TsSplitter::default(), Vec::new());
    splitter.push(&output.stdout, &mut frames);
    splitter.end(&mut frames);
    assert_eq!(splitter.take_warnings(), []);
    let pictures = |track| {
        let of_track = frames.iter().filter(|one| one.track == track && one.class.is_video());
        of_track.map(|frame| (frame.class, frame.time)).collect::<Vec<_>>()
    };
    // A picture is complete when the next one begins, and the script does not end.
    let (whole, made) = (pictures(0), pictures(1));
    assert!(made.len() >= 7 && made.len() + 1 >= whole.len(), "{} of {}", made.len(), whole.len());
    assert_eq!(whole[..made.len()], made);
    let pid = std::fs::read_to_string(pid).unwrap();
    let process = std::path::Path::new("/proc").join(pid.trim());
    until("the command is gone", || !process.exists());
}

#[test]
fn a_failed_transcoder_is_restarted_after_a_pause() {
    let fra = Host::founder();
    let runs = fra.path("runs");
    let script = format!("echo run >> {}; echo no codec >&2; exit 3", runs.display());
    let (_fra, mut publisher) = transcoding(&fra, COPY, &script);
    publisher.stdin.as_mut().unwrap().write_all(&sample()).unwrap();
    until("it runs twice", || {
        std::fs::read_to_string(&runs).is_ok_and(|text| text.lines().count() >= 2)
    });
    assert_ends(publisher);
}
