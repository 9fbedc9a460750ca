//! SRT by libsrt's `srt-live-transmit`.
//!
//! A receiver of SRT passes a packet on `latency` after it was sent, plus the time of travel. So that a picture arrives
//! within the same end-to-end latency as by `thalweg stream`, the time of travel is subtracted, and a relay shares the
//! rest with the receiver. All other options are the defaults: no limit of bandwidth, late packets dropped.

use super::{
    Args, Via,
    media::{EncodedStream, Feed},
    mesh::{Sender, SilentProgram},
    viewer::ViewerProgram,
};
use crate::load::mgrp::program::Program;
use anyhow::{Context as _, ensure};
use std::{
    fs::File,
    path::Path,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::client::Lab;

/// The port of receivers.
const PORT: u16 = 9000;

/// How long a program may take to listen.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Starts receiver, relay and sender.
///
/// # Errors
/// When a program does not start.
pub fn start(
    args: &Args,
    lab: &Lab,
    dir: &Path,
    source: &Arc<EncodedStream>,
    window: (Instant, Instant),
) -> anyhow::Result<(Feed, ViewerProgram)> {
    let hops = if args.via == Via::Relay { 2 } else { 1 };
    let latency = args.latency.saturating_sub(args.rtt / 2).as_millis() / hops;
    let listen = format!("srt://:{PORT}?mode=listener&latency={latency}");
    let to = |host| format!("srt://{}:{PORT}?mode=caller&latency={latency}", lab.address(host));
    let receiver = program(lab, dir, "m5", &listen, "file://con")?;
    let receiver = Program::start(receiver, "the receiver".to_owned())?;
    wait_for_listener(lab, "m5")?;
    let mut others = Vec::new();
    let mut next = "m5";
    if args.via == Via::Relay {
        let relay = program(lab, dir, "x", &listen, &to("m5"))?;
        others.push(SilentProgram::start(relay)?);
        wait_for_listener(lab, "x")?;
        next = "x";
    }
    let sender = Sender::start(program(lab, dir, "m3", "file://con", &to(next))?)?;
    Ok((Feed::start(source, window, sender), ViewerProgram::start(receiver, others)?))
}

/// Waits until a host has a socket at the port: srt-live-transmit does not say when it listens.
fn wait_for_listener(lab: &Lab, host: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    let port = format!(":{PORT:04X} ");
    loop {
        let mut cat = lab.command(host, "cat");
        let sockets = cat.args(["/proc/net/udp", "/proc/net/udp6"]).output()?.stdout;
        if String::from_utf8_lossy(&sockets).contains(&port) {
            return Ok(());
        }
        ensure!(began.elapsed() < TIMEOUT, "srt-live-transmit does not listen at {host}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn program(lab: &Lab, dir: &Path, host: &str, from: &str, to: &str) -> anyhow::Result<Command> {
    let mut command = lab.command(host, "srt-live-transmit");
    // Seven packets of a transport stream to a datagram, and each is sent at once: the default reads ten before it
    // sends them, which delays pictures of a low rate by more than 100 ms. A relay does not pass the source's times on: the time that
    // packets waited at it would count against the next hop's latency.
    command
        .args(["-quiet", "-chunk:1316", "-buffering:1", "-srctime:no", "-loglevel:error"])
        .args([from, to]);
    let log = dir.join(format!("{host}-srt.log"));
    command.stderr(File::create(&log).with_context(|| format!("cannot write {}", log.display()))?);
    Ok(command)
}
