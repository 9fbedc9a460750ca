//! `tcp-flood`: real TCP cross traffic for a bounded time.

use super::{
    net::{self, TcpOptions},
    output, pace,
    tcp_source::{self, SenderStatistics},
    wire::Greeting,
};
use anyhow::{Context, bail};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// Bytes per write.
const CHUNK: usize = 64 * 1024;
/// The write timeout, after which a blocked writer checks the time.
const WRITE_SLICE: Duration = Duration::from_millis(20);

/// Arguments of `tcp-flood`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address of a `tcp-sink`
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// Duration; at most one hour
    #[arg(long = "for", value_name = "TIME", value_parser = net::at_most_an_hour)]
    duration: Duration,
    /// Number of flows
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    flows: u16,
    /// Mean of the exponentially distributed time for which a flow sends (default: without pauses)
    #[arg(long, value_name = "TIME", value_parser = net::parse_span, requires = "off")]
    on: Option<Duration>,
    /// Mean of the exponentially distributed time for which a flow then pauses
    #[arg(long, value_name = "TIME", value_parser = net::parse_span, requires = "on")]
    off: Option<Duration>,
    /// Seed of the on and off times
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Congestion control (default: that of the route or the kernel)
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
}

/// The report that `tcp-flood` prints.
#[derive(Serialize)]
struct FloodReport {
    seconds: f64,
    seed: u64,
    flows: Vec<SenderStatistics>,
}

/// Sends for the given duration and prints the statistics of each flow.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let to = net::resolve(&args.to)?;
    let options = TcpOptions { from: None, congestion: args.congestion.clone() };
    let open = || open_flow(to, &options);
    let streams: Vec<TcpStream> = (0..args.flows).map(|_| open()).collect::<Result<_, _>>()?;
    let begin = Instant::now();
    let start = |(i, stream): (usize, TcpStream)| {
        let mut periods = Periods::new(args, args.seed.wrapping_add(i as u64));
        let deadline = begin + args.duration;
        thread::spawn(move || flood(stream, &mut periods, deadline))
    };
    let threads: Vec<_> = streams.into_iter().enumerate().map(start).collect();
    let join =
        |t: thread::JoinHandle<_>| t.join().unwrap_or_else(|_| bail!("a flow's thread panicked"));
    let flows = threads.into_iter().map(join).collect::<Result<_, _>>()?;
    output::print_line(&FloodReport {
        seconds: begin.elapsed().as_secs_f64(),
        seed: args.seed,
        flows,
    })
}

fn open_flow(to: SocketAddr, options: &TcpOptions) -> anyhow::Result<TcpStream> {
    let mut stream = net::connect_tcp(to, options)?;
    stream.set_write_timeout(Some(WRITE_SLICE))?;
    stream.write_all(&tcp_source::greeting(&Greeting::Discard)?)?;
    Ok(stream)
}

fn flood(
    mut stream: TcpStream,
    periods: &mut Periods,
    deadline: Instant,
) -> anyhow::Result<SenderStatistics> {
    let chunk = vec![0x5a; CHUNK];
    while Instant::now() < deadline {
        let pause = periods.on().map_or(deadline, |on| deadline.min(Instant::now() + on));
        while Instant::now() < pause {
            tcp_source::write_some(&mut stream, &chunk).context("the sink closed a flow")?;
        }
        let off = periods.off().unwrap_or_default();
        pace::sleep_until(deadline.min(Instant::now() + off));
    }
    let sender = SenderStatistics::sample(&stream);
    net::reset(stream);
    sender
}

/// The on and off times of one flow.
struct Periods {
    random: Xoshiro256PlusPlus,
    on: Option<Duration>,
    off: Option<Duration>,
}

impl Periods {
    fn new(args: &Args, seed: u64) -> Self {
        Self { random: Xoshiro256PlusPlus::seed_from_u64(seed), on: args.on, off: args.off }
    }

    fn on(&mut self) -> Option<Duration> {
        self.on.map(|mean| mean.mul_f64(self.exponential()))
    }

    fn off(&mut self) -> Option<Duration> {
        self.off.map(|mean| mean.mul_f64(self.exponential()))
    }

    /// An exponential variate with mean 1, by inversion: −ln of a uniform variate in (0, 1].
    fn exponential(&mut self) -> f64 {
        let uniform = ((self.random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -uniform.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_the_given_mean_and_depend_only_on_the_seed() {
        let seconds = Duration::from_secs;
        let periods = || Periods {
            random: Xoshiro256PlusPlus::seed_from_u64(7),
            on: Some(seconds(2)),
            off: Some(seconds(1)),
        };
        let (mut a, mut b) = (periods(), periods());
        let on: Vec<Duration> = (0..10_000).filter_map(|_| a.on()).collect();
        assert!(on.iter().all(|d| Some(*d) == b.on()));
        let mean = on.iter().sum::<Duration>().as_secs_f64() / 10_000.0;
        // Five standard errors: 5·2/√10000.
        assert!((mean - 2.0).abs() < 0.1, "mean {mean}, seed 7");
    }
}
