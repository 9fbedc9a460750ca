//! Measures how accurate the emulation is: each probe starts a lab, runs tools in its hosts, and compares their
//! measurements with theory.
//!
//! Every probe also reports the lateness of the emulator and the CPU pressure during the measurement, so that an
//! inaccurate emulation can be told from an overloaded machine.

mod fairness;
mod lateness;
mod loss;
mod metrics;
mod rtt;
mod scene;
mod setup;
mod tcp;
mod theory;
mod train;

use std::process::ExitCode;

/// The help text about the metrics that every probe except `setup` adds.
const METRICS: &str = "\
`probe NAME --help` lists each probe's own metrics. All except `setup` add these, for the time of
the measurement:
  lateness_p50, _p99, _p999, _max   delay of a packet's delivery after its logical time, us
  cpu_pressure                      share of the time in which some thread waited for a
                                    processor, %, if the kernel reports it
  realtime                          1 if the emulator had real-time priority, else 0";

/// `thalweg-lab probe …`
#[derive(Debug, clap::Args)]
#[command(after_help = METRICS)]
pub struct Args {
    /// Print JSON: {"metrics":{"NAME":{"unit":…,"value":…}}}
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    probe: Probe,
}

#[derive(Debug, clap::Subcommand)]
enum Probe {
    /// One cubic flow over a link with a queue of 1 BDP: its share of the link
    Tcp(tcp::Args),
    /// Two cubic flows over one link: each one's share
    Fairness(fairness::Args),
    /// Pings over a path: by how much they miss its round-trip time
    Rtt(rtt::Args),
    /// Packet trains through a bottleneck: by how much their dispersion misses its rate
    Train(train::Args),
    /// Random and Gilbert loss: by how many standard errors the frequency misses its mean
    Loss(loss::Args),
    /// How long a network takes until all its hosts are up
    Setup(setup::Args),
    /// Ten cubic flows among fifty hosts: how late packets are delivered
    Lateness(lateness::Args),
}

/// Runs one probe and prints its metrics.
///
/// # Errors
/// If the lab does not start or a tool in it fails.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let metrics = match args.probe {
        Probe::Tcp(a) => tcp::run(&a),
        Probe::Fairness(a) => fairness::run(&a),
        Probe::Rtt(a) => rtt::run(&a),
        Probe::Train(a) => train::run(&a),
        Probe::Loss(a) => loss::run(&a),
        Probe::Setup(a) => setup::run(&a),
        Probe::Lateness(a) => lateness::run(&a),
    }?;
    metrics.print(args.json)?;
    Ok(ExitCode::SUCCESS)
}
