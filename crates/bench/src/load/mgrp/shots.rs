//! Sends the trains of Table 1 at a fixed period, without waiting for their results, and logs their probes.

use super::run::{Clock, ReadyCopy};
use anyhow::{Context as _, bail, ensure};
use std::{
    net::Shutdown,
    path::Path,
    thread::{self, JoinHandle},
    time::Duration,
};
use thalweg_measure::{estimators::FixedTrains, train::Train};
use thalweg_probe::client::{ProbeServiceClient, TrainOrder};
use thalweg_probe::trains::messages::Report;

/// The first bytes of the probes' headers.
const TAG: &[u8; 4] = b"mgrp";

/// The longest delay of the last probes: the queue and the longest round trip.
const LATE: Duration = Duration::from_secs(1);

/// The most trains in a row that may be refused.
pub const PATIENCE: u32 = 20;

/// A probe that was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SentProbe {
    /// The time at which its train was sent, s.
    pub at: f64,
    /// Its place in the train.
    pub place: usize,
    /// Its bytes on the network.
    pub bytes: u32,
    /// Bytes of riders in it.
    pub carried: u32,
    /// Its arrival time, s.
    pub arrived: Option<f64>,
}

/// The probes that a tool sent.
#[derive(Debug, Default)]
pub struct ProbeLog {
    trains: Vec<SentTrain>,
    /// Trains whose timing is doubtful.
    pub doubted: u32,
    /// Trains that the node refused or could not report on.
    pub refused: u32,
}

/// A train that was sent.
#[derive(Debug)]
struct SentTrain {
    at: f64,
    bytes: u32,
    left: Vec<bool>,
    carried: Vec<u32>,
    arrived: Vec<Option<f64>>,
}

impl ProbeLog {
    /// Adds a train that was sent at `at`.
    pub fn add(&mut self, train: &Train, report: &Report, at: f64, clock: &Clock) {
        let size = train.probes().first().map_or(0, |probe| probe.size);
        let arrived = report.arrived_ns.iter().map(|at| at.map(|at| clock.lab_time_of(at)));
        self.doubted += u32::from(!report.is_valid);
        self.trains.push(SentTrain {
            at,
            bytes: u32::from(size) + train.overhead(),
            left: report.sent_ns.iter().map(Option::is_some).collect(),
            carried: report.carried.clone(),
            arrived: arrived.collect(),
        });
    }

    fn arrived(&mut self, (train, place, at): (u32, u16, f64)) {
        let of = self.trains.get_mut(train as usize);
        if let Some(slot) = of.and_then(|of| of.arrived.get_mut(usize::from(place))) {
            *slot = Some(at);
        }
    }

    /// The number of trains.
    pub fn trains(&self) -> usize {
        self.trains.len()
    }

    /// All probes that were sent, in order.
    pub fn shots(&self) -> impl Iterator<Item = SentProbe> {
        self.trains.iter().flat_map(|of| {
            let each = of.left.iter().zip(&of.carried).zip(&of.arrived).enumerate();
            each.filter(|(_, ((left, _), _))| **left).map(|(place, ((_, carried), arrived))| {
                SentProbe {
                    at: of.at,
                    place,
                    bytes: of.bytes,
                    carried: *carried,
                    arrived: *arrived,
                }
            })
        })
    }
}

/// The delay of the first train, s, in which packets may wait to ride on it.
const FIRST: f64 = 0.02;

/// Sends trains until `until`, each a period after the one before by the clock. Waiting for orders and answers would
/// lengthen the period.
///
/// # Errors
/// When a service is gone or refuses repeatedly.
pub fn send_trains(
    of: FixedTrains,
    ready: &mut ReadyCopy<'_>,
    clock: &Clock,
    until: f64,
) -> anyhow::Result<ProbeLog> {
    let train = of.train()?;
    let mut due = clock.now() + FIRST;
    let names = ready.pair.names();
    let heard = ArrivalReceiver::begin(&ready.pair.sockets()[1], &names.m5, *clock)?;
    let mut log = ProbeLog::default();
    while clock.now() < until {
        let header = header(log.trains() as u32);
        let period = of.period().as_secs_f64();
        // A train that is late by more than a period is skipped, so that two are not sent at once.
        due = due.max(clock.now() - period);
        let after = Duration::from_secs_f64((due - clock.now()).max(0.0));
        due += period;
        let order =
            TrainOrder { train: &train, after, header: &header, awaits: false, accepts_busy: true };
        match ready.node.service().send(&order)? {
            Ok(report) => {
                log.add(&train, &report, clock.now() - train.duration().as_secs_f64(), clock)
            }
            Err(why) => {
                log.refused += 1;
                ensure!(log.refused < PATIENCE, "the node refuses trains: {why}");
            }
        }
    }
    thread::sleep(LATE);
    heard.end()?.into_iter().for_each(|arrival| log.arrived(arrival));
    Ok(log)
}

/// The header of a probe: the tag, the train's number, and padding to the tool's twelve bytes.
fn header(train: u32) -> Vec<u8> {
    [&TAG[..], &train.to_be_bytes(), &[0; 4]].concat()
}

/// The train's number in a probe's header.
fn parse_train(header: &str) -> Option<u32> {
    u32::from_str_radix(header.get(8..16)?, 16).ok()
}

/// Receives the probes at the other node.
struct ArrivalReceiver {
    ender: std::os::unix::net::UnixStream,
    thread: JoinHandle<anyhow::Result<Vec<(u32, u16, f64)>>>,
}

impl ArrivalReceiver {
    fn begin(socket: &Path, node: &str, clock: Clock) -> anyhow::Result<Self> {
        let mut service = ProbeServiceClient::at(socket, node)?;
        service.receive(TAG)?;
        let ender = service.ender()?;
        let hear = move || {
            let mut all = Vec::new();
            while let Some(arrival) = service.next_probe()? {
                let train = parse_train(&arrival.header)
                    .context("a probe's header is not from this tool")?;
                all.push((train, arrival.place, clock.lab_time_of(arrival.arrived_ns)));
            }
            Ok(all)
        };
        Ok(Self { ender, thread: thread::spawn(hear) })
    }

    fn end(self) -> anyhow::Result<Vec<(u32, u16, f64)>> {
        // The service then sends no more arrivals and closes.
        self.ender.shutdown(Shutdown::Both)?;
        self.thread.join().unwrap_or_else(|_| bail!("the receiving thread panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_measure::estimators::PK1;

    #[test]
    fn a_header_has_the_train_s_number_and_the_tool_s_length() {
        let header = header(0x0102_0304);
        assert_eq!(header.len(), usize::from(PK1.train().unwrap().probes()[0].header));
        assert_eq!(parse_train(&thalweg_probe::client::hex(&header)), Some(0x0102_0304));
        assert_eq!(parse_train("ff"), None);
    }

    #[test]
    fn arrivals_are_assigned_to_their_probes() {
        let gone = || SentTrain {
            at: 1.0,
            bytes: 300,
            left: vec![true, false, true],
            carried: vec![9, 0, 0],
            arrived: vec![None; 3],
        };
        let mut log = ProbeLog { trains: vec![gone(), gone()], ..ProbeLog::default() };
        log.arrived((1, 2, 1.5));
        log.arrived((7, 0, 1.5));
        let shots: Vec<SentProbe> = log.shots().collect();
        assert_eq!(shots.len(), 4, "one of three never left");
        assert_eq!((shots[3].place, shots[3].arrived), (2, Some(1.5)));
        assert_eq!((shots[0].carried, shots[0].arrived), (9, None));
    }
}
