//! The emulator's loop: moves packets from hosts into the network, and due packets out of it to their hosts.
//!
//! One thread, at real-time priority if allowed. It sleeps until the next event, rounded up to [`QUANTUM`], so that
//! close events share one wake-up; events carry logical time, so lateness never accumulates.

use super::{
    lateness::Histogram,
    packet::{PacketHeader, flip_a_bit},
    pcap, sys,
    taps::Taps,
};
use rustix::{
    event::{EventfdFlags, Timespec, epoll, eventfd},
    io::{read, write},
};
use std::{
    collections::HashMap,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::{
    emu::{LinkTruth, Network},
    stats::Lateness,
    topology::{LinkChange, Resolved},
};
use thalweg_units::Time;

/// The shortest time between wake-ups. At 10 flows of 20 Mbit/s the loop takes 0.54–0.60 of a core instead of all of
/// it, for 20 µs more lateness at the median. More than half of the CPU time is the kernel's TCP input within `write`
/// to the devices, and a third is sleeping itself (9,000 times a second at 20 µs each). `epoll_pwait2` and a periodic
/// timerfd gain nothing; with 75 or 100 µs the lateness is greater at the 99th percentile.
const QUANTUM: Duration = Duration::from_micros(50);
/// The most packets read from one device per turn, so that no device starves the others.
const BUDGET: usize = 16;
/// The interval at which all links' records are brought up to date, so that no later turn takes long.
const TICK: Duration = Duration::from_millis(100);
/// The capacity of the queue of orders. A client blocks if it is full; the loop never does.
const ORDERS: usize = 64;
/// The size of the packet buffer, bytes; the MTU of the devices is 1,500.
const PACKET_MAX: usize = 2_048;
/// The real-time priority: above ordinary threads, below those of the kernel.
const PRIORITY: i32 = 10;
/// The time slice without real-time priority, ns: the kernel's smallest.
const SLICE_NS: u64 = 100_000;
/// The epoll data of the wake-up descriptor; the data of a device is its index.
const WAKE: u64 = u64::MAX;

/// A packet in flight, shared by its duplicates.
pub type Packet = Rc<[u8]>;

/// An order that the engine processes between two turns.
pub enum EngineOrder {
    /// Change links, and confirm it.
    Set(Vec<usize>, LinkChange, SyncSender<()>),
    /// Send a report, with or without the links' history.
    Report(bool, SyncSender<EngineReport>),
    /// Restart the measurement window of lateness.
    Reset,
    /// Send the packets that enter this link to a capture.
    Tap(usize, SyncSender<pcap::PcapRecord>),
}

/// The engine's part of [`thalweg_lab::stats::Stats`].
pub struct EngineReport {
    /// Lateness in the measurement window.
    pub lateness: Lateness,
    /// Each link's record.
    pub links: Vec<LinkTruth>,
    /// CPU time of the engine's thread, seconds.
    pub cpu_s: f64,
    /// Packets to addresses without a path.
    pub no_route: u64,
    /// Packets that a host's device rejected.
    pub refused: u64,
    /// Packets that captures missed.
    pub capture_missed: u64,
    /// Whether real-time priority was granted.
    pub realtime: bool,
}

/// A handle to a running engine.
#[derive(Clone)]
pub struct EngineHandle {
    orders: SyncSender<EngineOrder>,
    wake: Arc<OwnedFd>,
}

impl EngineHandle {
    /// Queues an order and wakes the engine.
    pub fn send(&self, order: EngineOrder) -> anyhow::Result<()> {
        self.orders.send(order).map_err(|_| anyhow::anyhow!("the emulator has stopped"))?;
        write(&self.wake, &1_u64.to_ne_bytes())?;
        Ok(())
    }
}

/// Starts the engine's thread. `devices` are in the order of the network's interfaces.
pub fn start(network: &Resolved, devices: Vec<OwnedFd>) -> anyhow::Result<EngineHandle> {
    let (orders, inbox) = sync_channel(ORDERS);
    let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    let handle = EngineHandle { orders, wake: Arc::clone(&wake) };
    let network = network.clone();
    let (ready, started) = sync_channel(1);
    thread::Builder::new().name("emulator".into()).spawn(move || {
        let made = Engine::new(&network, devices, inbox, wake);
        let engine = match made {
            Ok(engine) => engine,
            Err(e) => return ready.send(Err(e)).unwrap_or(()),
        };
        let _waiting = ready.send(Ok(()));
        engine.run();
    })?;
    started.recv()??;
    Ok(handle)
}

struct Engine {
    network: Network<Packet>,
    devices: Vec<OwnedFd>,
    by_address: HashMap<IpAddr, usize>,
    epoll: OwnedFd,
    inbox: Receiver<EngineOrder>,
    wake: Arc<OwnedFd>,
    epoch: Instant,
    next_tick: Time,
    lateness: Histogram,
    taps: Taps,
    no_route: u64,
    refused: u64,
    realtime: bool,
}

impl Engine {
    fn new(
        network: &Resolved,
        devices: Vec<OwnedFd>,
        inbox: Receiver<EngineOrder>,
        wake: Arc<OwnedFd>,
    ) -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (i, device) in devices.iter().enumerate() {
            epoll::add(&epoll, device, epoll::EventData::new_u64(i as u64), epoll::EventFlags::IN)?;
        }
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let both = |(i, plan): (usize, &thalweg_lab::topology::InterfacePlan)| {
            [(IpAddr::V4(plan.v4), i), (IpAddr::V6(plan.v6), i)]
        };
        Ok(Self {
            network: Network::new(network, Time::ZERO),
            devices,
            by_address: network.interfaces.iter().enumerate().flat_map(both).collect(),
            epoll,
            inbox,
            wake,
            epoch: Instant::now(),
            next_tick: Time::ZERO,
            lateness: Histogram::new(),
            taps: Taps::new(),
            no_route: 0,
            refused: 0,
            realtime: take_priority(),
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        loop {
            self.deliver();
            self.tick();
            let timeout = self.sleep_time();
            events.clear();
            let waited = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            );
            if waited.is_err() {
                continue; // interrupted by a signal; pending events are reported again
            }
            for event in &events {
                match event.data.u64() {
                    WAKE => self.process_orders(),
                    device => self.read_packets(device as usize),
                }
            }
        }
    }

    /// Writes every packet that is due to its host's device.
    fn deliver(&mut self) {
        let now = self.now();
        let (epoch, devices) = (self.epoch, &self.devices);
        let (lateness, refused) = (&mut self.lateness, &mut self.refused);
        self.network.deliver(now, &mut |delivery| {
            let packet = match delivery.corrupt {
                Some(random) => flip_a_bit(&delivery.packet, random),
                None => delivery.packet,
            };
            if write(&devices[delivery.interface], &packet).is_err() {
                *refused += 1;
            }
            let wall = Time::from_nanos(epoch.elapsed().as_nanos() as u64);
            lateness.record(wall.since(delivery.at));
        });
        self.taps.pass_on(&mut self.network, self.epoch);
    }

    fn tick(&mut self) {
        let now = self.now();
        if now >= self.next_tick {
            self.network.advance_all(now);
            self.next_tick = now + TICK;
        }
    }

    /// The time until the next event or tick, rounded up to the quantum; zero if one is due.
    fn sleep_time(&self) -> Timespec {
        let now = self.now();
        let next = self.network.next_event().unwrap_or(Time::MAX).min(self.next_tick);
        let quantum = QUANTUM.as_nanos() as u64;
        let wait = match next.since(now).as_nanos() as u64 {
            0 => 0,
            some => (now.as_nanos() + some).next_multiple_of(quantum) - now.as_nanos(),
        };
        Timespec { tv_sec: (wait / 1_000_000_000) as i64, tv_nsec: (wait % 1_000_000_000) as i64 }
    }

    /// Reads packets that a host has sent.
    fn read_packets(&mut self, interface: usize) {
        let mut buffer = [0; PACKET_MAX];
        for _ in 0..BUDGET {
            let Ok(n) = read(&self.devices[interface], &mut buffer) else { return };
            self.route(interface, &buffer[..n]);
        }
    }

    fn route(&mut self, from: usize, bytes: &[u8]) {
        let header = PacketHeader::parse(bytes);
        let to = header.as_ref().and_then(|h| self.by_address.get(&h.destination));
        let (Some(header), Some(to)) = (header, to.copied()) else {
            self.no_route += 1;
            return;
        };
        let now = self.now();
        let class = self.network.classify(header.protocol, header.source_port, header.port);
        let length = bytes.len() as u32;
        if self.network.inject(now, from, to, length, class, Rc::from(bytes)).is_err() {
            self.no_route += 1;
        }
    }

    fn process_orders(&mut self) {
        let _emptied = read(self.wake.as_fd(), &mut [0; 8]);
        while let Ok(order) = self.inbox.try_recv() {
            // A client that has disconnected needs no answer.
            match order {
                EngineOrder::Set(links, change, done) => {
                    let now = self.now();
                    self.network.set(now, &links, &change);
                    let _gone = done.send(());
                }
                EngineOrder::Report(series, reply) => {
                    let report = self.report(series);
                    let _gone = reply.send(report);
                }
                EngineOrder::Reset => self.lateness.clear(),
                EngineOrder::Tap(link, sink) => self.taps.add(&mut self.network, link, sink),
            }
        }
    }

    fn report(&mut self, series: bool) -> EngineReport {
        let now = self.now();
        let links = if series { self.network.truth(now) } else { self.network.totals(now) };
        EngineReport {
            lateness: self.lateness.summary(),
            links,
            cpu_s: sys::thread_cpu_seconds(),
            no_route: self.no_route,
            refused: self.refused,
            capture_missed: self.taps.missed,
            realtime: self.realtime,
        }
    }
}

/// Takes real-time priority if allowed, else the shortest time slice of an ordinary thread. Returns whether it got
/// real-time priority.
fn take_priority() -> bool {
    let _default_is_50_us = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let realtime = sys::realtime(PRIORITY).is_ok();
    if !realtime {
        let _older_kernel = sys::short_slice(SLICE_NS);
    }
    realtime
}
