//! The sending end of a flow.

use super::{
    flow::{AFTER, STEP, read},
    meter::Meter,
    pace::Pace,
};
use socket2::SockRef;
use std::{
    io,
    pin::pin,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use thalweg_base::timeout::within;
use thalweg_measure::bulk::BulkResult;
use thalweg_net::{Cause, TcpInfo, channel::Channel, cut_over};
use thalweg_wire::mesh::measure_flow::{
    Answer, Hello, Limits, Message as _, ReceiverMessage, Refusal, Verdict,
};
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    time::{sleep, timeout},
};

/// How long the receiver, which reports its count four times a second, may be silent before it counts as gone.
const SILENCE: Duration = Duration::from_secs(3);

/// The bytes to send, over and over. They are random, so that a link that compresses gains nothing.
static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut noise = vec![0; 256 * 1024];
    // Without randomness the measurement goes on with zeros.
    _ = getrandom::fill(&mut noise);
    noise
});

/// The result of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentFlow {
    pub verdict: Verdict,
    /// This end's own count over the same time; `None` if nothing was acknowledged.
    pub own: Option<BulkResult>,
    /// Bytes that have left this host.
    pub bytes: u64,
    /// The smallest round trip.
    pub round_trip: Option<Duration>,
}

/// A flow without a verdict.
#[derive(Debug, Error)]
#[error("{why}")]
pub(super) struct SendFailure {
    pub why: FlowError,
    /// Bytes that have left this host nevertheless.
    pub bytes: u64,
}

/// Why there is no verdict.
#[derive(Debug, Error)]
pub(super) enum FlowError {
    /// The other end refuses.
    #[error("the receiver refused: {0}")]
    Refused(#[from] Refusal),
    /// The channel could not be changed to a plain connection.
    #[error("{0}")]
    CutOver(#[from] Cause),
    /// The connection broke or fell silent.
    #[error("{0}")]
    Broken(#[from] io::Error),
}

/// Sends hello, then bytes until the receiver has enough, and waits for its verdict.
///
/// # Errors
/// [`SendFailure`].
pub(super) async fn send(
    mut channel: Channel<TcpStream>,
    hello: Hello,
    rate: impl Fn() -> Pace,
) -> Result<SentFlow, SendFailure> {
    let unsent = |why| SendFailure { why, bytes: 0 };
    let limits = greet(&mut channel, &hello).await.map_err(unsent)?;
    let cutting = timeout(STEP, cut_over(channel)).await;
    let cut = cutting.unwrap_or(Err(Cause::TimedOut(STEP))).map_err(|e| unsent(e.into()))?;
    let (mut tcp, early) = cut;
    // A receiver cannot raise the limits that were asked for.
    let limits = limits.tightest(hello.limits);
    let mut meter = Meter::start(&tcp, limits).map_err(|e| unsent(e.into()))?;
    let written = AtomicU64::new(0);
    let said = {
        let (hear, pour) = tcp.split();
        let pouring = send_until(pour, limits, rate(), &written);
        exchange(hear, &early, pouring, &mut meter, limits.time() + AFTER).await
    };
    let info = TcpInfo::of(&tcp).unwrap_or_default();
    // What is still queued is discarded: the verdict is final.
    _ = SockRef::from(&tcp).set_linger(Some(Duration::ZERO));
    let bytes = written.load(Ordering::Relaxed).saturating_sub(info.unsent.into());
    let known = |d: &Duration| !d.is_zero() && *d < Duration::MAX;
    match said {
        Ok(verdict) => {
            let (own, round_trip) = (meter.found(&verdict), Some(info.min_rtt).filter(known));
            Ok(SentFlow { verdict, own, bytes, round_trip })
        }
        Err(e) => Err(SendFailure { why: e.into(), bytes }),
    }
}

/// Sends hello, and reads the answer.
async fn greet(channel: &mut Channel<TcpStream>, hello: &Hello) -> Result<Limits, FlowError> {
    let greeting = async {
        channel.write_all(&hello.encode()).await?;
        channel.flush().await?;
        read(channel).await
    };
    match within(STEP, "answer", greeting).await? {
        Answer::Accepted(limits) => Ok(limits),
        Answer::Refused(refusal) => Err(refusal.into()),
    }
}

/// Sends, reads and counts at once, until the verdict.
async fn exchange(
    mut hear: ReadHalf<'_>,
    early: &[u8],
    pouring: impl Future<Output = io::Result<()>>,
    meter: &mut Meter,
    longest: Duration,
) -> io::Result<Verdict> {
    let mut hear = early.chain(&mut hear);
    let verdict = async {
        loop {
            let said = within(SILENCE, "message from the receiver", read(&mut hear)).await?;
            if let ReceiverMessage::Verdict(verdict) = said {
                return Ok(verdict);
            }
        }
    };
    let (mut verdict, mut pouring) = (pin!(within(longest, "verdict", verdict)), pin!(pouring));
    let (mut looks, mut has_poured) = (Meter::reading_ticks(), false);
    loop {
        tokio::select! {
            // Sending comes last: where the connection always has room, it would keep the others waiting.
            biased;
            said = &mut verdict => {
                meter.read();
                return said;
            }
            _ = looks.tick() => meter.read(),
            // A failed write tells less than what the receiver may have sent before.
            _ = &mut pouring, if !has_poured => has_poured = true,
        }
    }
}

/// Sends noise within the limits. It stops silently, because the receiver knows the limits as well.
async fn send_until(
    mut to: WriteHalf<'_>,
    limits: Limits,
    pace: Pace,
    written: &AtomicU64,
) -> io::Result<()> {
    let pouring = async {
        let mut sent = 0;
        while sent < limits.bytes {
            let left = usize::try_from(limits.bytes - sent).unwrap_or(usize::MAX);
            let piece = pace.piece(NOISE.len()).min(left);
            let n = to.write(&NOISE[..piece]).await?;
            sent += n as u64;
            written.store(sent, Ordering::Relaxed);
            pace.wait(sent).await;
        }
        // Ends this direction, for a receiver that waits for more.
        to.shutdown().await
    };
    tokio::select! { done = pouring => done, () = sleep(limits.time()) => Ok(()) }
}
