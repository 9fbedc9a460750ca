//! Sends a train, on a thread of its own.

use super::riders::{Aboard, Riders};
use std::{
    cell::RefCell,
    fmt, io,
    net::{SocketAddr, UdpSocket},
    num::NonZeroU8,
    sync::{Arc, Mutex, PoisonError},
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

/// The size of a datagram that shows where this end is: what each probe needs, and no more.
const LEAST: u16 = 64;

/// What is sent by, and to whom.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) socket: Arc<UdpSocket>,
    pub(super) to: SocketAddr,
    pub(super) sealer: Arc<Mutex<Sealer>>,
    /// Who rides in trains; set by [`Ask::Carry`](thalweg_wire::probe::Ask::Carry).
    pub(super) riders: Option<Arc<dyn Riders>>,
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("to", &self.to).finish_non_exhaustive()
    }
}

/// A train that is to go.
pub(super) struct Volley {
    pub(super) number: u32,
    pub(super) train: Train,
    /// The tool's bytes of each probe; empty: none has any.
    pub(super) headers: Vec<Vec<u8>>,
    /// Not before; packets wait for it that long.
    pub(super) at: Time,
}

/// A train that went.
pub(super) struct Flown {
    /// When each of its probes left.
    pub(super) sent: Vec<Option<Time>>,
    /// What routers said of those that were limited; empty where none was.
    pub(super) expired: Vec<Option<Expired>>,
    /// Why the first of those that did not leave did not.
    pub(super) failed: Option<io::Error>,
    /// From its first probe to its last.
    pub(super) took: Duration,
    /// What rode in it.
    pub(super) tally: Tally,
    /// Riders' bytes in each of its probes.
    pub(super) carried: Vec<u32>,
}

impl Volley {
    fn header(&self, place: usize) -> Vec<u8> {
        self.headers.get(place).cloned().unwrap_or_default()
    }
}

impl Way {
    /// What IP and UDP add to each probe that goes there, bytes.
    pub(super) fn overhead(&self) -> u32 {
        overhead(self.to.ip())
    }

    /// A datagram of no train, which shows where this end is.
    pub(super) fn show(&self) -> io::Result<()> {
        let probe = Probe { size: LEAST, header: 0, gap: Duration::ZERO, may_carry: false };
        let head = ProbeHead { train: NO_TRAIN, place: 0, sent: now().as_nanos() };
        let (datagram, _) = self.datagram(head, probe, Vec::new(), Vec::new());
        self.socket.send_to(&datagram?, self.to).map(drop)
    }

    /// Riders without a probe, at once.
    pub(super) fn send_riders(&self, to: SocketAddr, riders: Vec<Fragment>) -> io::Result<()> {
        let datagram = self.seal(&Payload::Riders(riders))?;
        self.socket.send_to(&datagram, to).map(drop)
    }

    fn seal(&self, payload: &Payload) -> io::Result<Vec<u8>> {
        self.sealer.lock().unwrap_or_else(PoisonError::into_inner).seal(&payload.encode())
    }

    /// A probe's datagram, and the riders in it once more.
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

    /// All of a train. Routers' words, if it asks for any, are waited for so long after it.
    ///
    /// # Errors
    /// The thread's; of single probes none: those did not leave.
    pub(super) async fn fly(&self, volley: Volley, wait: Duration) -> io::Result<Flown> {
        let (way, (done, flown)) = (self.clone(), oneshot::channel());
        let work = move || {
            let flown = match volley.train.is_limited() {
                false => way.fly_here(&volley),
                true => way.fly_limited(&volley, wait),
            };
            // Nobody waits any more.
            _ = done.send(flown);
        };
        std::thread::Builder::new().name("train".to_owned()).spawn(work)?;
        flown.await.map_err(io::Error::other)?
    }

    fn fly_here(&self, volley: &Volley) -> io::Result<Flown> {
        self.paced(volley, |_, datagram, _| self.socket.send_to(datagram, self.to).map(drop))
    }

    /// By a socket of its own, whose errors are routers' words.
    fn fly_limited(&self, volley: &Volley, wait: Duration) -> io::Result<Flown> {
        let socket = HopSocket::to(self.to)?;
        let mut numbers = vec![None; volley.train.probes().len()];
        let mut flown = self.paced(volley, |place, datagram, hops| {
            let number = Outer::read(datagram).map(|outer| outer.number);
            numbers[place] = number.filter(|_| hops.is_some());
            socket.send(datagram, hops.map(NonZeroU8::get))
        })?;
        flown.expired = words(&socket, &numbers, wait)?;
        Ok(flown)
    }

    fn paced(
        &self,
        volley: &Volley,
        mut put: impl FnMut(usize, &[u8], Option<NonZeroU8>) -> io::Result<()>,
    ) -> io::Result<Flown> {
        let pacer = Pacer::of_this_thread()?;
        let probes = volley.train.probes();
        let gaps: Vec<_> = probes.iter().map(|probe| probe.gap).collect();
        pacer.wait(volley.at);
        let aboard = RefCell::new(Aboard::of(self.riders.as_ref(), &volley.train));
        let ready = |place: usize, leaves: Time| {
            let (train, sent) = (volley.number, leaves.as_nanos());
            let head = ProbeHead { train, place: place as u16, sent };
            let (header, probe) = (volley.header(place), probes[place]);
            let riders = match volley.train.hops(place) {
                None => aboard.borrow_mut().fill(place, probe, &header),
                // What does not reach the member takes nobody there.
                Some(_) => Vec::new(),
            };
            (place, self.datagram(head, probe, header, riders))
        };
        let mut failed = None;
        let began = now();
        let sent = pacer.send(&gaps, ready, |(place, (datagram, riders))| {
            let hops = volley.train.hops(place);
            datagram.and_then(|datagram| put(place, &datagram, hops)).inspect_err(|why| {
                aboard.borrow_mut().stayed(place, riders);
                failed.get_or_insert_with(|| copy(why));
            })
        });
        let (took, expired) = (now().since(began), Vec::new());
        let (tally, carried) = aboard.into_inner().end();
        Ok(Flown { sent, expired, failed, took, tally, carried })
    }
}

/// The same error once more.
fn copy(of: &io::Error) -> io::Error {
    let same = of.raw_os_error().map(io::Error::from_raw_os_error);
    same.unwrap_or_else(|| io::Error::new(of.kind(), of.to_string()))
}

/// What routers say of the datagrams with these numbers, until all have been spoken of or so long.
fn words(
    socket: &HopSocket,
    numbers: &[Option<u64>],
    wait: Duration,
) -> io::Result<Vec<Option<Expired>>> {
    let mut words = vec![None; numbers.len()];
    let mut missing = numbers.iter().flatten().count();
    let until = now() + wait;
    while missing > 0 {
        let Some(word) = socket.expired(until)? else { break };
        // Who quotes too little cannot be understood.
        let number = Outer::read(&word.quoted).map(|outer| outer.number);
        let place = numbers.iter().position(|one| number.is_some() && *one == number);
        if let Some(place) = place.filter(|place| words[*place].is_none()) {
            let at = Stamp::from_unix_nanos(word.at.as_unix_nanos());
            words[place] = Some(Expired { by: word.by, at });
            missing -= 1;
        }
    }
    Ok(words)
}
