//! `tcp-web`: TCP cross traffic like that of the web, for a bounded time.
//!
//! Flows arrive in a Poisson process, most of them are short, and at most ten are active: the cross traffic WEB of MGRP
//! (Papageorgiou, McCann and Hicks 2009, §4.1). The paper gives the generator (NTools), the range of sizes, 64 KB to 5
//! MB "weighted toward flows in the 64-200 KB range", and the ten connections, but no mean rate. Here sizes have a
//! bounded Pareto distribution ([`SHAPE`]), and the mean rate is an argument.

use super::{
    net::{self, TcpOptions},
    output, pace,
    tcp_source::greeting,
    wire::Greeting,
};
use anyhow::{Context as _, bail};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use thalweg_units::Rate;

/// The smallest and the largest flow, bytes.
const SMALLEST: f64 = 64e3;
const LARGEST: f64 = 5e6;
/// The shape of the Pareto distribution of sizes: nearly three quarters of the flows are below 200 kB, and the mean is
/// 225 kB.
const SHAPE: f64 = 1.2;
/// Bytes per write.
const CHUNK: usize = 64 * 1024;
/// A flow fails after this time without progress.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of `tcp-web`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address of a `tcp-sink`
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// Time for which flows arrive; at most one hour
    #[arg(long = "for", value_name = "TIME", value_parser = net::at_most_an_hour)]
    duration: Duration,
    /// Mean rate of the arriving flows
    #[arg(long, value_name = "RATE", default_value = "3Mbit/s")]
    rate: Rate,
    /// Maximum number of concurrent flows; further flows are not sent
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrent: u16,
    /// Seed of the arrivals and sizes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The report that `tcp-web` prints.
#[derive(Serialize)]
struct WebReport {
    seconds: f64,
    seed: u64,
    /// Flows that arrived.
    flows: u64,
    /// Flows that were not sent because too many were active.
    left_out: u64,
    /// Flows that broke before their end.
    broken: u64,
    /// Bytes of completely delivered flows.
    bytes: u64,
}

/// Sends until the time is over and all flows have ended, and prints a report.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.rate == Rate::ZERO {
        bail!("--rate must be above 0");
    }
    let to = net::resolve(&args.to)?;
    let begin = Instant::now();
    let mut arrivals = FlowArrivals::new(args.rate, args.seed);
    let web = Arc::new(WebLoad::default());
    let mut threads = Vec::new();
    while let Some(arrival) = arrivals.next().filter(|a| a.at < args.duration) {
        pace::sleep_until(begin + arrival.at);
        threads.extend(web.begin(to, arrival.bytes, usize::from(args.concurrent)));
        threads.retain(|t: &thread::JoinHandle<()>| !t.is_finished());
    }
    pace::sleep_until(begin + args.duration);
    for thread in threads {
        thread.join().ok().context("a flow's thread panicked")?;
    }
    output::print_line(&web.report(begin.elapsed(), args.seed))
}

/// The state shared by all flows.
#[derive(Default)]
struct WebLoad {
    active: AtomicUsize,
    flows: AtomicU64,
    left_out: AtomicU64,
    broken: AtomicU64,
    bytes: AtomicU64,
}

impl WebLoad {
    /// Starts a flow of `bytes`, unless `most` flows are active.
    fn begin(
        self: &Arc<Self>,
        to: SocketAddr,
        bytes: u64,
        most: usize,
    ) -> Option<thread::JoinHandle<()>> {
        self.flows.fetch_add(1, Ordering::Relaxed);
        if self.active.load(Ordering::Relaxed) >= most {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.active.fetch_add(1, Ordering::Relaxed);
        let web = Arc::clone(self);
        Some(thread::spawn(move || web.flow(to, bytes)))
    }

    fn flow(&self, to: SocketAddr, bytes: u64) {
        let count = match send(to, bytes) {
            Ok(()) => (&self.bytes, bytes),
            Err(_) => (&self.broken, 1),
        };
        count.0.fetch_add(count.1, Ordering::Relaxed);
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    fn report(&self, took: Duration, seed: u64) -> WebReport {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WebReport {
            seconds: took.as_secs_f64(),
            seed,
            flows: of(&self.flows),
            left_out: of(&self.left_out),
            broken: of(&self.broken),
            bytes: of(&self.bytes),
        }
    }
}

/// Sends one flow and waits until the sink has received it and closes the connection.
fn send(to: SocketAddr, bytes: u64) -> anyhow::Result<()> {
    let mut stream = net::connect_tcp(to, &TcpOptions::default())?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&greeting(&Greeting::Discard)?)?;
    let chunk = vec![0x5a; CHUNK];
    let mut left = usize::try_from(bytes)?;
    while left > 0 {
        let n = left.min(CHUNK);
        stream.write_all(&chunk[..n])?;
        left -= n;
    }
    stream.shutdown(Shutdown::Write)?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The start time and size of a flow.
#[derive(Debug, PartialEq)]
struct FlowArrival {
    at: Duration,
    bytes: u64,
}

/// An endless sequence of flows in the order of their arrival.
struct FlowArrivals {
    random: Xoshiro256PlusPlus,
    /// The mean time between two arrivals.
    between: Duration,
    at: Duration,
}

impl FlowArrivals {
    fn new(rate: Rate, seed: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let between = Duration::from_secs_f64(mean_flow_size() * 8.0 / rate.as_bps() as f64);
        Self { random, between, at: Duration::ZERO }
    }

    /// A uniform variate in (0, 1].
    fn uniform(&mut self) -> f64 {
        ((self.random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

impl Iterator for FlowArrivals {
    type Item = FlowArrival;

    fn next(&mut self) -> Option<FlowArrival> {
        let wait = self.between.mul_f64(-self.uniform().ln());
        self.at += wait;
        let bytes = flow_size(self.uniform()) as u64;
        Some(FlowArrival { at: self.at, bytes })
    }
}

/// The size that a share `u` of all flows reaches or exceeds, bytes: the inverse of the bounded Pareto distribution.
fn flow_size(u: f64) -> f64 {
    let tail = (SMALLEST / LARGEST).powf(SHAPE);
    SMALLEST * (u * (1.0 - tail) + tail).powf(-1.0 / SHAPE)
}

/// The mean of [`flow_size`], bytes.
fn mean_flow_size() -> f64 {
    let ratio = SMALLEST / LARGEST;
    let of_tail = (1.0 - ratio.powf(SHAPE - 1.0)) / (1.0 - ratio.powf(SHAPE));
    SMALLEST * SHAPE / (SHAPE - 1.0) * of_tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_match_the_paper() {
        assert_eq!(flow_size(1.0).round(), SMALLEST);
        assert_eq!(flow_size(0.0).round(), LARGEST);
        assert!(flow_size(0.26) < 200e3, "74 % are below 200 kB: {}", flow_size(0.26));
    }

    #[test]
    fn arrivals_have_the_given_rate_and_depend_only_on_the_seed() {
        let rate = "3Mbit/s".parse().expect("a rate");
        let flows: Vec<FlowArrival> = FlowArrivals::new(rate, 7).take(100_000).collect();
        assert!(flows.iter().zip(FlowArrivals::new(rate, 7)).all(|(a, b)| *a == b));
        let bytes: u64 = flows.iter().map(|f| f.bytes).sum();
        let mean = bytes as f64 / flows.len() as f64;
        assert!((mean / mean_flow_size() - 1.0).abs() < 0.03, "mean size {mean}, seed 7");
        let last = flows.last().expect("flows").at.as_secs_f64();
        let came = bytes as f64 * 8.0 / last;
        assert!((came / 3e6 - 1.0).abs() < 0.05, "{came} bit/s, seed 7");
    }
}
