//! Bytes as they come from a client, and when it is no longer waited for.

use std::{io, time::Duration};
use thalweg_base::timeout::within;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::Instant,
};

/// A client that sends nothing for so long has gone; it comes back and goes on where it was.
///
/// TLS gives whole records of up to 16 KiB: at less than 273 B/s one takes longer than this.
const SILENCE: Duration = Duration::from_secs(60);

/// Fewer bytes than this in [`WINDOW`] of waiting (500 B/s) hold a place that others want: a push
/// is ended, and may go on later. A modem of 9,600 bit/s is twice as fast.
const LEAST: u64 = 60_000;

/// The window of [`LEAST`].
const WINDOW: Duration = Duration::from_secs(120);

/// What has come lies no longer than this in memory alone, however slowly the rest comes.
const LINGER: Duration = Duration::from_secs(5);

/// How fast a client's bytes come. Time is counted only while they are waited for, not while the
/// disk is.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    /// In the window that runs.
    came: u64,
    waited: Duration,
}

impl Arriving {
    /// Fills the buffer, or as much of it as comes soon; how much came, and whether more may come.
    ///
    /// What came is given with the error, so that nothing of it is lost: the connection's,
    /// `UnexpectedEof` at its end, `TimedOut` where it is silent or too slow.
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
            if let Err(e) = self.judge(n, asked.elapsed()) {
                return (filled, Err(e));
            }
        }
        (filled, Ok(()))
    }

    /// Counts so many bytes after so long.
    fn judge(&mut self, came: usize, waited: Duration) -> io::Result<()> {
        self.came += came as u64;
        self.waited += waited;
        if self.waited < WINDOW {
            return Ok(());
        }
        let was = std::mem::take(self).came;
        match was < LEAST {
            true => {
                let why = format!("{was} bytes in {WINDOW:?}: fewer than {LEAST} are too slow");
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
            false => Ok(()),
        }
    }
}
