//! Streams of programs that do not know the carrier ride in trains between two overlay addresses: SRT and RTP, as in
//! docs/stream.md. Skipped without ffmpeg or srt-live-transmit.

use crate::{
    carrier_lab::{CARRIES, Scene},
    host::{text, until},
    in_lab::{Running, within},
    stream_video::{ONE, decode, video},
};
use std::{
    fs,
    process::{Command, Stdio},
};

const SECONDS: usize = 12;

/// On a busy machine trains are not valid, but carry packets.
const MEASURE: [&str; 5] = ["measure", "nyc", "--accept-busy", "--riders", "on"];

/// Whether the program is installed; prints a message otherwise.
fn has(program: &str, version: &str) -> bool {
    let found =
        Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok();
    if !is_there {
        eprintln!("skipped: {program} is not installed");
    }
    is_there
}

/// A shell command line as a user types it, with the product in PATH and the state of the host at `place`.
fn typed(scene: &Scene, place: &str, line: &str) -> Command {
    let host = if place == "fra" { &scene.fra } else { &scene.nyc };
    let product = host.command(&[]);
    let directory = std::path::Path::new(product.get_program()).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(host.path(""));
    command.env("PATH", format!("{}:{path}", directory.display()));
    command.env("THALWEG_STATE", host.state());
    within(&scene.lab, place, &command)
}

/// Sends a video from fra to nyc with these command lines while fra measures, and checks that it rode and arrived.
fn check_riding(receive: &str, send: &str) {
    let Some(bytes) = video(SECONDS as u32, ONE) else { return };
    let Some(scene) = Scene::new(CARRIES) else { return };
    scene.wait_until_up();
    fs::write(scene.fra.path("input.ts"), bytes).unwrap();
    let mut receive = typed(&scene, "nyc", receive);
    let _receiver = Running(receive.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let mut sender = Running(typed(&scene, "fra", send).spawn().unwrap());
    let carried = || scene.status("fra")["counts"]["ridden_bytes"].as_u64().unwrap();
    let before = carried();
    while sender.0.try_wait().unwrap().is_none() {
        // On a busy machine the measurement may fail; packets ride nevertheless.
        let measured = within(&scene.lab, "fra", &scene.fra.command(&MEASURE)).output().unwrap();
        println!("{}{}", text(&measured.stdout), text(&measured.stderr));
    }
    let rode = carried() - before;
    println!("{rode} bytes rode");
    assert!(rode > 10_000, "{rode} bytes rode: {}", scene.status("fra")["counts"]);
    let file = scene.nyc.path("stream.ts");
    let pictures = || fs::read(&file).map(|bytes| decode(&bytes).0.first().copied().unwrap_or(0));
    until("nearly all pictures arrived", || {
        pictures().is_ok_and(|count| count >= SECONDS * 30 * 3 / 4)
    });
    assert_eq!(scene.status("nyc")["counts"]["strange_packets"], 0);
    println!("{} pictures", pictures().unwrap());
}

#[test]
fn srt_rides() {
    if !has("srt-live-transmit", "-version") {
        return;
    }
    check_riding(
        "srt-live-transmit \"srt://[$(thalweg carrier address)]:9000?mode=listener\" file://con > stream.ts",
        "ffmpeg -v error -nostdin -re -i input.ts -c copy -f mpegts \
            \"srt://[$(thalweg carrier address nyc)]:9000\"",
    );
}

#[test]
fn rtp_rides() {
    check_riding(
        "ffmpeg -v error -nostdin -y -i \"rtp://[$(thalweg carrier address)]:5004\" -c copy -f mpegts \
            -flush_packets 1 stream.ts",
        "ffmpeg -v error -nostdin -re -i input.ts -c copy -f rtp_mpegts \
            \"rtp://[$(thalweg carrier address nyc)]:5004\"",
    );
}
