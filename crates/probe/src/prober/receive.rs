//! The receiving end of a flow: it counts, judges, and ends the flow.

use super::{
    flow::{AFTER, COUNTS, STEP, read},
    pace::Pace,
};
use std::{io, time::Duration};
use thalweg_base::timeout::within;
use thalweg_measure::bulk::{self, Bulk, BulkEnd, BulkResult};
use thalweg_net::{TcpInfo, channel::Channel};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::{
    GO, GO_ACK,
    measure_flow::{Answer, Hello, Limits, Message, ReceiverMessage, Refusal, Verdict},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

/// The most bytes of one read: four reads a millisecond at 8 Gbit/s.
const BUFFER: usize = 256 * 1024;

/// How long to wait for the first byte, since a sender that has left TLS begins at once.
const FIRST: Duration = Duration::from_secs(1);

/// The most bytes that may still arrive after the verdict: 1 Gbit/s over 250 ms. A sender of more ignores what it is
/// told.
const ON_THE_WAY: u64 = 32_000_000;

/// Reads the sender's hello.
///
/// # Errors
/// The connection's; an invalid message.
pub(super) async fn hello(channel: &mut Channel<TcpStream>) -> io::Result<Hello> {
    within(STEP, "hello", read(channel)).await
}

/// Tells the sender that it is refused.
///
/// # Errors
/// The connection's.
pub(super) async fn refuse(mut channel: Channel<TcpStream>, why: Refusal) -> io::Result<()> {
    within(STEP, "room in the send buffer for the refusal", async {
        channel.write_all(&Answer::Refused(why).encode()).await?;
        channel.shutdown().await
    })
    .await
}

/// Accepts with these limits and leaves TLS: GO is this end's last byte in it, GO-ACK the sender's.
///
/// # Errors
/// The connection's; a sender that violates the protocol.
pub(super) async fn accept(
    mut channel: Channel<TcpStream>,
    limits: Limits,
) -> io::Result<(TcpStream, Vec<u8>)> {
    let mut answer = Answer::Accepted(limits).encode();
    answer.push(GO);
    let acknowledged = within(STEP, "GO-ACK", async {
        channel.write_all(&answer).await?;
        channel.flush().await?;
        channel.read_u8().await
    });
    match acknowledged.await? {
        GO_ACK => channel.into_clear(),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the sender sent another byte instead of GO-ACK",
        )),
    }
}

/// A flow that is being received.
pub(super) struct Flow {
    tcp: TcpStream,
    bulk: Bulk,
    /// All bytes that arrived, also after the verdict.
    pub bytes: u64,
    first: Option<Instant>,
    pace: Pace,
    /// The rest of a count for which the connection had no room.
    unsent: Vec<u8>,
}

impl Flow {
    /// Creates the flow, whose first bytes were read already.
    pub fn new(tcp: TcpStream, early: &[u8], limits: Limits, pace: Pace) -> Self {
        let round_trip = TcpInfo::of(&tcp).unwrap_or_default().min_rtt;
        let round_trip = if round_trip == Duration::MAX { Duration::ZERO } else { round_trip };
        let bytes = early.len() as u64;
        let limits =
            bulk::BulkLimits { time: limits.time(), bytes: ByteSize::from_bytes(limits.bytes) };
        let bulk = Bulk::new(limits, round_trip);
        let first = (bytes > 0).then(Instant::now);
        Self { tcp, bulk, bytes, first, pace, unsent: Vec::new() }
    }

    /// Receives to the end; `None` if nothing arrived. An error of the connection ends the flow.
    pub async fn judge(&mut self, longest: Duration) -> Option<BulkResult> {
        let began = Instant::now();
        let mut ticks = interval((self.bulk.width() / 2).min(COUNTS / 2));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut counted = Instant::now();
        let mut buffer = vec![0; self.pace.piece(BUFFER)];
        loop {
            let until = began + if self.first.is_none() { FIRST } else { longest + AFTER };
            tokio::select! {
                read = self.tcp.read(&mut buffer) => match read {
                    Ok(n @ 1..) => self.receive_bytes(n),
                    Ok(0) | Err(_) => return self.finish(BulkEnd::Sender),
                },
                _ = ticks.tick() => {}
                () = sleep_until(until) => return self.finish(BulkEnd::Time),
            }
            if let Some(found) = self.sample() {
                return Some(found);
            }
            if counted.elapsed() >= COUNTS {
                counted = Instant::now();
                self.send_count();
            }
            self.pace.wait(self.bytes).await;
        }
    }

    fn receive_bytes(&mut self, n: usize) {
        self.first.get_or_insert_with(Instant::now);
        self.bytes += n as u64;
    }

    fn since_first(&self) -> Duration {
        self.first.map_or(Duration::ZERO, |first| first.elapsed())
    }

    fn sample(&mut self) -> Option<BulkResult> {
        self.first?;
        match self.bulk.sample(self.since_first(), self.bytes) {
            bulk::BulkStatus::Done(found) => Some(found),
            bulk::BulkStatus::GoOn => None,
        }
    }

    /// Includes bytes that came with the cut-over, which no sample has seen.
    fn finish(&mut self, end: BulkEnd) -> Option<BulkResult> {
        self.sample().or_else(|| self.bulk.finish(end))
    }

    /// Never waits: a sender that does not read gets fewer counts.
    fn send_count(&mut self) {
        if self.unsent.is_empty() {
            let micros = self.since_first().as_micros() as u64;
            self.unsent = ReceiverMessage::Count { bytes: self.bytes, micros }.encode();
        }
        let said = self.tcp.try_write(&self.unsent).unwrap_or(0);
        self.unsent.drain(..said);
    }

    /// Sends the verdict, and reads what is still on its way until the sender has closed. From a sender that sent
    /// nothing, nothing is read.
    pub async fn send_verdict(&mut self, verdict: Verdict) {
        let mut last = std::mem::take(&mut self.unsent);
        last.extend(ReceiverMessage::Verdict(verdict).encode());
        let mut bin = vec![0; BUFFER];
        let telling = async {
            self.tcp.write_all(&last).await?;
            if self.bytes == 0 {
                return Ok(());
            }
            // If this end closed with bytes unread, the connection would be reset and the verdict lost.
            let most = self.bytes + ON_THE_WAY;
            while let n @ 1.. = self.tcp.read(&mut bin).await? {
                self.bytes += n as u64;
                if self.bytes > most {
                    break;
                }
            }
            Ok::<(), io::Error>(())
        };
        // A sender that is gone needs no verdict.
        _ = timeout(AFTER, telling).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn flow(limits: Limits) -> (TcpStream, Flow) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (receiver, _) = listener.accept().await.unwrap();
        (sender, Flow::new(receiver, &[], limits, Pace::new(None)))
    }

    const LIMITS: Limits = Limits { bytes: 1 << 20, millis: 5000 };

    /// Uses the test's clock, which advances as soon as every task waits.
    #[tokio::test(start_paused = true)]
    async fn a_sender_that_sends_nothing_gets_a_verdict_after_a_second() {
        let (mut sender, mut flow) = flow(LIMITS).await;
        let began = Instant::now();
        assert_eq!(flow.judge(LIMITS.time()).await, None);
        let verdict = Verdict {
            bytes: 0,
            micros: 0,
            bps: 0.0,
            spread_bps: None,
            steady: false,
            at_least: true,
        };
        flow.send_verdict(verdict).await;
        assert_eq!(began.elapsed().as_secs_f64().round(), FIRST.as_secs_f64());
        drop(flow);
        // The sender's end is still open, which must not hold anybody up.
        loop {
            match read::<ReceiverMessage>(&mut sender).await.unwrap() {
                ReceiverMessage::Count { bytes, .. } => assert_eq!(bytes, 0),
                ReceiverMessage::Verdict(told) => break assert_eq!(told, verdict),
            }
        }
        assert_eq!(sender.read(&mut [0; 9]).await.unwrap(), 0);
    }
}
