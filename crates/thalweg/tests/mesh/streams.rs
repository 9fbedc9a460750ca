//! `thalweg stream` between two hosts.

use super::host::{Host, text, until};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
    time::Duration,
};
use thalweg_media::{Frame, FrameClass};
use thalweg_stream::container::{Frames, Splitter as _};
use thalweg_wire::stream::leg::FrameHead;

const SETTINGS: &str = "[stream]\nsubscribe = [\"*\"]\n";

/// Frames in the plain format, 30 a second, in groups of a key frame and fourteen others.
fn frames(count: u64) -> Vec<u8> {
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
        Frames::encode(head, &frame)
    };
    (0..count).flat_map(frame).collect()
}

#[test]
fn a_stream_passes_from_program_to_program() {
    let fra = Host::founder();
    let _fra = fra.start_with(SETTINGS, None);
    let ber = Host::relay(&fra, "ber", &[]);
    let _ber = ber.start();
    std::fs::write(fra.path("movie"), frames(150)).unwrap();
    let publish =
        ["stream", "publish", "stage", "movie", "--pace", "--latency", "20s", "--format", "frames"];
    let mut publisher = fra.command(&publish).spawn().unwrap();
    until("fra has it", || fra.ok(&["stream", "list"]).contains("stage"));
    let subscribe =
        ["stream", "subscribe", "stage", "--from", "fra", "--latency", "20s", "--format", "frames"];
    let output = ber.run(&subscribe);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut came = Vec::new();
    let mut splitter = Frames::default();
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
    std::fs::write(fra.path("movie"), frames(3000)).unwrap();
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
    // A view is a line of the stream and an empty one.
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
