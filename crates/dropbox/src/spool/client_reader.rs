//! Reads a client's data, and ends pushes that are silent or too slow.

use std::{io, time::Duration};
use thalweg_base::timeout::within;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::Instant,
};

/// A client that sends nothing for this long counts as gone; it can return and resume.
///
/// TLS delivers whole records of up to 16 KiB; below 273 B/s one record takes longer than this.
const SILENCE: Duration = Duration::from_secs(60);

/// A push that delivers fewer bytes than this within [`WINDOW`] of waiting (500 B/s) is ended, because it occupies one
/// of the concurrent pushes; it may resume later. A modem with 9,600 bit/s is twice as fast.
const MIN_BYTES: u64 = 60_000;

/// The window of [`MIN_BYTES`].
const WINDOW: Duration = Duration::from_secs(120);

/// The maximum time that received data stays only in memory, however slowly the rest arrives.
const LINGER: Duration = Duration::from_secs(5);

/// Measures the rate of a client's data. Only time spent waiting for the client counts, not time spent on the disk.
#[derive(Debug, Default)]
pub(super) struct ClientReader {
    /// Bytes received in the current window.
    received: u64,
    waited: Duration,
}

impl ClientReader {
    /// Fills the buffer, or as much of it as arrives within [`LINGER`]. Returns the number of bytes, and an error if
    /// the push cannot continue.
    ///
    /// Both are returned together, so that the bytes received before an error are not lost. The error is the
    /// connection's; `UnexpectedEof` at its end; or `TimedOut` if the client is silent or too slow.
    pub async fn fill(
        &mut self,
        channel: &mut (impl AsyncRead + Unpin),
        buffer: &mut [u8],
    ) -> (usize, io::Result<()>) {
        let (begun, mut filled) = (Instant::now(), 0);
        while filled < buffer.len() && (filled == 0 || begun.elapsed() < LINGER) {
            let asked = Instant::now();
            let read = within(SILENCE, "data", channel.read(&mut buffer[filled..])).await;
            let n = match read {
                Ok(0) => return (filled, Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => n,
                Err(e) => return (filled, Err(e)),
            };
            filled += n;
            if let Err(e) = self.check_rate(n, asked.elapsed()) {
                return (filled, Err(e));
            }
        }
        (filled, Ok(()))
    }

    /// Counts received bytes and the time waited for them; an error if the window's rate was too low.
    fn check_rate(&mut self, received: usize, waited: Duration) -> io::Result<()> {
        self.received += received as u64;
        self.waited += waited;
        if self.waited < WINDOW {
            return Ok(());
        }
        let was = std::mem::take(self).received;
        match was < MIN_BYTES {
            true => {
                let why = format!(
                    "{was} bytes in {WINDOW:?} are too slow: at least {MIN_BYTES} are required"
                );
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
            false => Ok(()),
        }
    }
}
