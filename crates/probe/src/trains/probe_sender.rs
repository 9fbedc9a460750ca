//! Sends a train, on a thread of its own.

use super::riders::{Riders, TrainRiders};
use parking_lot::Mutex;
use std::{
    cell::RefCell,
    fmt, io,
    net::{SocketAddr, UdpSocket},
    num::NonZeroU8,
    sync::Arc,
    time::Duration,
};
use thalweg_measure::{
    riders::Fragment,
    train::{Expired, Probe, Stamp, Tally, Train, overhead},
};
use thalweg_net::probe::{HopSocket, Pacer, Sealer, now};
use thalweg_units::Time;
use thalweg_wire::probe::{NO_TRAIN, Outer, Payload, ProbeHead};
use tokio::sync::oneshot;

/// The size of a datagram that shows this end's address, bytes: what each probe needs, and no more.
const LEAST: u16 = 64;

/// Sends datagrams of a session to its other end.
#[derive(Clone)]
pub(super) struct ProbeSender {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) to: SocketAddr,
    pub(super) sealer: Arc<Mutex<Sealer>>,
    /// The riders of trains; set by [`ProbeRequest::Carry`](thalweg_wire::probe::ProbeRequest::Carry).
    pub(super) riders: Option<Arc<dyn Riders>>,
}

impl fmt::Debug for ProbeSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeSender").field("to", &self.to).finish_non_exhaustive()
    }
}

/// A train to send.
pub(super) struct OutgoingTrain {
    pub(super) number: u32,
    pub(super) train: Train,
    /// The tool's bytes in each probe; empty if no probe has any.
    pub(super) headers: Vec<Vec<u8>>,
    /// The earliest time to send it; riders wait until then.
    pub(super) at: Time,
}

/// A train that was sent.
pub(super) struct SentTrain {
    /// When each probe was sent; `None` if it was not.
    pub(super) sent: Vec<Option<Time>>,
    /// What routers reported of probes with a hop limit; empty if there are none.
    pub(super) expired: Vec<Option<Expired>>,
    /// Why the first of the unsent probes was not sent.
    pub(super) failed: Option<io::Error>,
    /// The time from the first probe to the last.
    pub(super) took: Duration,
    /// The riders in total.
    pub(super) tally: Tally,
    /// Riders' bytes in each probe.
    pub(super) carried: Vec<u32>,
}

impl OutgoingTrain {
    fn header(&self, place: usize) -> Vec<u8> {
        self.headers.get(place).cloned().unwrap_or_default()
    }
}

impl ProbeSender {
    /// IP and UDP header bytes per probe.
    pub(super) fn overhead(&self) -> u32 {
        overhead(self.to.ip())
    }

    /// Sends a datagram that belongs to no train, and shows this end's address.
    pub(super) fn show(&self) -> io::Result<()> {
        let probe = Probe { size: LEAST, header: 0, gap: Duration::ZERO, may_carry: false };
        let head = ProbeHead { train: NO_TRAIN, place: 0, sent: now().as_nanos() };
        let (datagram, _) = self.datagram(head, probe, Vec::new(), Vec::new());
        self.socket.send_to(&datagram?, self.to).map(drop)
    }

    /// Sends riders without a probe, at once.
    pub(super) fn send_riders(&self, to: SocketAddr, riders: Vec<Fragment>) -> io::Result<()> {
        let datagram = self.seal(&Payload::Riders(riders))?;
        self.socket.send_to(&datagram, to).map(drop)
    }

    fn seal(&self, payload: &Payload) -> io::Result<Vec<u8>> {
        self.sealer.lock().seal(&payload.encode())
    }

    /// Seals the datagram of a probe. Returns its riders as well, in case it cannot be sent.
    fn datagram(
        &self,
        head: ProbeHead,
        probe: Probe,
        header: Vec<u8>,
        riders: Vec<Fragment>,
    ) -> (io::Result<Vec<u8>>, Vec<Fragment>) {
        let size = Payload::size_in(probe.size);
        let payload = Payload::Probe { head, header, riders, size };
        let datagram = self.seal(&payload);
        let (Payload::Probe { riders, .. } | Payload::Riders(riders)) = payload;
        (datagram, riders)
    }

    /// Sends a whole train. If probes have a hop limit, waits up to `wait` after it for routers' reports.
    ///
    /// # Errors
    /// The thread's. A probe that cannot be sent is no error; [`SentTrain::sent`] shows it.
    pub(super) async fn send_train(
        &self,
        outgoing: OutgoingTrain,
        wait: Duration,
    ) -> io::Result<SentTrain> {
        let (sender, (done, sent_train)) = (self.clone(), oneshot::channel());
        let work = move || {
            let sent_train = match outgoing.train.is_limited() {
                false => sender.send_unlimited(&outgoing),
                true => sender.send_limited(&outgoing, wait),
            };
            // Nobody may wait any more.
            _ = done.send(sent_train);
        };
        std::thread::Builder::new().name("train".to_owned()).spawn(work)?;
        sent_train.await.map_err(io::Error::other)?
    }

    fn send_unlimited(&self, outgoing: &OutgoingTrain) -> io::Result<SentTrain> {
        self.paced(outgoing, |_, datagram, _| self.socket.send_to(datagram, self.to).map(drop))
    }

    /// Uses a socket of its own, whose errors are the routers' reports.
    fn send_limited(&self, outgoing: &OutgoingTrain, wait: Duration) -> io::Result<SentTrain> {
        let socket = HopSocket::to(self.to)?;
        let mut numbers = vec![None; outgoing.train.probes().len()];
        let mut sent_train = self.paced(outgoing, |place, datagram, hops| {
            let number = Outer::read(datagram).map(|outer| outer.number);
            numbers[place] = number.filter(|_| hops.is_some());
            socket.send(datagram, hops.map(NonZeroU8::get))
        })?;
        sent_train.expired = expirations(&socket, &numbers, wait)?;
        Ok(sent_train)
    }

    fn paced(
        &self,
        outgoing: &OutgoingTrain,
        mut put: impl FnMut(usize, &[u8], Option<NonZeroU8>) -> io::Result<()>,
    ) -> io::Result<SentTrain> {
        let pacer = Pacer::of_this_thread()?;
        let probes = outgoing.train.probes();
        let gaps: Vec<_> = probes.iter().map(|probe| probe.gap).collect();
        pacer.wait(outgoing.at);
        let train_riders = RefCell::new(TrainRiders::of(self.riders.as_ref(), &outgoing.train));
        let ready = |place: usize, leaves: Time| {
            let (train, sent) = (outgoing.number, leaves.as_nanos());
            let head = ProbeHead { train, place: place as u16, sent };
            let (header, probe) = (outgoing.header(place), probes[place]);
            let riders = match outgoing.train.hops(place) {
                None => train_riders.borrow_mut().fill(place, probe, &header),
                // A probe with a hop limit does not reach the member, and neither would its riders.
                Some(_) => Vec::new(),
            };
            (place, self.datagram(head, probe, header, riders))
        };
        let mut failed = None;
        let began = now();
        let sent = pacer.send(&gaps, ready, |(place, (datagram, riders))| {
            let hops = outgoing.train.hops(place);
            datagram.and_then(|datagram| put(place, &datagram, hops)).inspect_err(|why| {
                train_riders.borrow_mut().take_back(place, riders);
                failed.get_or_insert_with(|| copy(why));
            })
        });
        let (took, expired) = (now().since(began), Vec::new());
        let (tally, carried) = train_riders.into_inner().end();
        Ok(SentTrain { sent, expired, failed, took, tally, carried })
    }
}

/// A copy of the error, which is not `Clone`.
fn copy(of: &io::Error) -> io::Error {
    let same = of.raw_os_error().map(io::Error::from_raw_os_error);
    same.unwrap_or_else(|| io::Error::new(of.kind(), of.to_string()))
}

/// Waits for routers' reports about the datagrams with these numbers, until all have come or `wait` has passed.
fn expirations(
    socket: &HopSocket,
    numbers: &[Option<u64>],
    wait: Duration,
) -> io::Result<Vec<Option<Expired>>> {
    let mut expirations = vec![None; numbers.len()];
    let mut missing = numbers.iter().flatten().count();
    let until = now() + wait;
    while missing > 0 {
        let Some(report) = socket.expired(until)? else { break };
        // A report that quotes too little of the datagram cannot be assigned.
        let number = Outer::read(&report.quoted).map(|outer| outer.number);
        let place = numbers.iter().position(|one| number.is_some() && *one == number);
        if let Some(place) = place.filter(|place| expirations[*place].is_none()) {
            let at = Stamp::from_unix_nanos(report.at.as_unix_nanos());
            expirations[place] = Some(Expired { by: report.by, at });
            missing -= 1;
        }
    }
    Ok(expirations)
}
