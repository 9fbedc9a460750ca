//! What arrives of a stream at the standard output of a receiver.

use super::{
    media::EncodedStream,
    mesh::SilentProgram,
    outcome::{self, ViewerOutcome},
};
use crate::load::mgrp::program::Program;
use anyhow::{Context as _, ensure};
use std::{
    collections::BTreeMap,
    io::{self, Read},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use thalweg_media::{PACKET, TsSplitter};

/// A decodable picture that arrived.
#[derive(Clone, Copy, Debug)]
pub struct PictureArrival {
    /// When its last packet arrived.
    pub at: Instant,
    pub bytes: usize,
}

/// Decodable pictures by their decoding time stamps.
pub type PictureArrivals = BTreeMap<u64, PictureArrival>;

/// A receiver, and a thread that reads its output.
pub struct ViewerProgram {
    receiver: Program,
    /// Relays.
    _others: Vec<SilentProgram>,
    reader: JoinHandle<io::Result<PictureArrivals>>,
}

impl ViewerProgram {
    /// Reads the receiver's output.
    ///
    /// # Errors
    /// When its output is read already.
    pub fn start(mut receiver: Program, others: Vec<SilentProgram>) -> anyhow::Result<Self> {
        let output =
            receiver.take_output().context("the receiver's output is already being read")?;
        Ok(Self { receiver, _others: others, reader: thread::spawn(move || read(output)) })
    }

    /// Ends the receiver and counts what arrived.
    ///
    /// # Errors
    /// When the output could not be read.
    pub fn end(
        self,
        source: &EncodedStream,
        window: (Instant, Instant, Duration),
        latency: Duration,
    ) -> anyhow::Result<ViewerOutcome> {
        drop(self.receiver);
        let arrivals =
            self.reader.join().map_err(|_| anyhow::anyhow!("the reading thread panicked"))??;
        ensure!(
            !arrivals.is_empty(),
            "no picture arrived; the programs' logs may say why (--logs)"
        );
        Ok(outcome::of_arrivals(source, &arrivals, window, latency))
    }
}

/// Reads a transport stream to its end.
fn read(mut output: impl Read) -> io::Result<PictureArrivals> {
    let (mut reader, mut buffer) = (PictureReader::default(), vec![0; 64 << 10]);
    loop {
        match output.read(&mut buffer)? {
            0 => return Ok(reader.arrivals),
            length => reader.push(&buffer[..length], Instant::now()),
        }
    }
}

/// Finds when each picture was complete.
#[derive(Default)]
struct PictureReader {
    splitter: TsSplitter,
    waiting: Vec<u8>,
    /// When the newest packet of each PID arrived.
    newest: BTreeMap<u16, Instant>,
    arrivals: PictureArrivals,
}

impl PictureReader {
    fn push(&mut self, bytes: &[u8], now: Instant) {
        self.waiting.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(packet) = self.waiting.get(at..at + PACKET) {
            let is_packet = packet[0] == 0x47;
            let packet = if is_packet { packet } else { &packet[..1] };
            at += packet.len();
            let mut frames = Vec::new();
            self.splitter.push(packet, &mut frames);
            for frame in frames.into_iter().filter(|frame| frame.class.is_video()) {
                // A picture is known to be complete only when the next one begins.
                let complete = pid(&frame.bytes).and_then(|pid| self.newest.get(&pid));
                if let Some(dts) = frame.dts() {
                    let at = complete.copied().unwrap_or(now);
                    self.arrivals
                        .entry(dts)
                        .or_insert(PictureArrival { at, bytes: frame.bytes.len() });
                }
            }
            if let Some(pid) = pid(packet).filter(|_| is_packet) {
                self.newest.insert(pid, now);
            }
        }
        self.waiting.drain(..at);
    }
}

fn pid(packet: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes([packet.get(1)? & 0x1f, *packet.get(2)?]))
}
