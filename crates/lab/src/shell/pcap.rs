//! Writes captures in the pcap format (draft-ietf-opsawg-pcap; link type 101, raw IP).

use std::{
    fs::File,
    io::{self, Write},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The most packets that wait for a slow writer: about 1 MB, a tenth of a second at 100 Mbit/s. Further packets are
/// counted as missed.
pub const BACKLOG: usize = 1_000;
/// Magic number of files with timestamps in nanoseconds.
const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// How often a capture on a quiet link checks whether its client has disconnected.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// LINKTYPE_RAW.
const RAW_IP: u32 = 101;

/// A packet with the time at which it entered the link.
pub struct PcapRecord {
    at_ns: u64,
    bytes: Vec<u8>,
}

impl PcapRecord {
    /// Creates the record of a packet that entered at `at`.
    pub fn new(at: SystemTime, bytes: &[u8]) -> Self {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { at_ns: since.as_nanos() as u64, bytes: bytes.to_vec() }
    }

    fn encode(&self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        let head = [
            (self.at_ns / 1_000_000_000) as u32,
            (self.at_ns % 1_000_000_000) as u32,
            length,
            length,
        ];
        head.iter().flat_map(|word| word.to_ne_bytes()).chain(self.bytes.iter().copied()).collect()
    }
}

/// Writes records until the sender of `stop` or of `records` is dropped, or the file's reader is gone.
pub fn write(
    mut file: File,
    records: &Receiver<PcapRecord>,
    stop: &Receiver<()>,
) -> io::Result<()> {
    // Version 2.4, no time zone, no accuracy stated, packets up to 64 kB.
    let head = [MAGIC_NS, 2 | 4 << 16, 0, 0, 65_535, RAW_IP];
    file.write_all(&head.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>())?;
    while stop.try_recv() != Err(TryRecvError::Disconnected) {
        match records.recv_timeout(STOP_CHECK) {
            Ok(record) => file.write_all(&record.encode())?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}
