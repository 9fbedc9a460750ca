//! Measures TCP alone on each leg with iperf3: the rate from a receiver's parent, or from the source, while nothing
//! else is sent, or the rates of all legs at the same time.

use super::{
    super::report::Report,
    legs::{self, Leg, LegRates, Legs},
    outcome::spread,
};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};
use thalweg_lab::client::Lab;

/// The port of the first server; concurrent legs use the ports from it on.
const PORT: u16 = 9310;

/// The time until a server listens.
const STARTS: Duration = Duration::from_millis(300);

/// Arguments of `thalweg-bench load cast solo`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's socket
    #[arg(long, value_name = "SOCKET")]
    lab: PathBuf,
    /// The legs, such as `s>a,a>b`
    #[arg(long, value_name = "LEGS", required_unless_present = "all")]
    legs: Option<Legs>,
    /// Measure the legs between all these hosts, in both directions
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', conflicts_with = "legs")]
    all: Vec<String>,
    /// Measure all legs at the same time (default: only legs that share neither sender nor receiver)
    #[arg(long)]
    together: bool,
    /// Measured time of each leg, s, after one second that does not count
    #[arg(long = "for", default_value_t = 3, value_name = "SECONDS")]
    seconds: u32,
    /// File to write the rates to
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Measures, writes the rates, and prints the report.
///
/// # Errors
/// When iperf3 is not installed or a connection fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let lab = Lab::attach(&args.lab)?;
    let legs = args.legs.clone().unwrap_or_else(|| Legs::between_all(&args.all));
    let mut rates = LegRates::new();
    let groups = if args.together { vec![legs.0.clone()] } else { groups(&legs) };
    for group in groups {
        rates.extend(measure(&lab, &group, args.seconds)?);
    }
    if let Some(file) = &args.out {
        legs::write(file, &rates)?;
    }
    let mut report = Report::default();
    for ((from, to), bps) in &rates {
        report.add(format!("solo/{from}>{to}"), "Mbit/s", bps / 1e6);
        if args.together {
            report.add(format!("rate/{to}"), "Mbit/s", bps / 1e6);
        }
    }
    spread(&mut report, "rate", "Mbit/s", rates.values().map(|bps| bps / 1e6).collect());
    Ok(report.print()?)
}

/// Groups legs that share neither sender nor receiver and can be measured at the same time.
fn groups(legs: &Legs) -> Vec<Vec<Leg>> {
    let mut groups: Vec<Vec<Leg>> = Vec::new();
    for leg in &legs.0 {
        let is_free = |group: &&mut Vec<Leg>| group.iter().all(|g| g.0 != leg.0 && g.1 != leg.1);
        match groups.iter_mut().find(is_free) {
            Some(group) => group.push(leg.clone()),
            None => groups.push(vec![leg.clone()]),
        }
    }
    groups
}

fn measure(lab: &Lab, group: &[Leg], seconds: u32) -> anyhow::Result<LegRates> {
    let mut servers = Servers(Vec::new());
    let port = |at: usize| (PORT + at as u16).to_string();
    for (at, (from, _)) in group.iter().enumerate() {
        let mut server = lab.command(from, "iperf3");
        server.args(["-s", "-1", "-p", &port(at)]);
        let server = silent(&mut server).stdout(Stdio::null()).spawn();
        servers.0.push(server.context("cannot run iperf3")?);
    }
    thread::sleep(STARTS);
    let mut clients = Vec::new();
    for (at, (from, to)) in group.iter().enumerate() {
        let mut client = lab.command(to, "iperf3");
        client.args(["-c", from, "-p", &port(at), "-R", "-J", "-O", "1"]);
        client.args(["-t", &seconds.to_string()]);
        clients.push(silent(&mut client).stdout(Stdio::piped()).spawn()?);
    }
    let mut rates = LegRates::new();
    for (leg, client) in group.iter().zip(clients) {
        let output = client.wait_with_output()?;
        rates.insert(leg.clone(), received(&output.stdout).with_context(|| format!("{leg:?}"))?);
    }
    Ok(rates)
}

fn silent(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stderr(Stdio::null())
}

/// Running servers, killed on drop.
struct Servers(Vec<Child>);

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            _ = server.kill();
            _ = server.wait();
        }
    }
}

fn received(json: &[u8]) -> anyhow::Result<f64> {
    let report: Value = serde_json::from_slice(json).context("iperf3 printed nothing")?;
    let error = report.pointer("/error").and_then(Value::as_str);
    ensure!(error.is_none(), "iperf3: {}", error.unwrap_or_default());
    let rate = report.pointer("/end/sum_received/bits_per_second").and_then(Value::as_f64);
    rate.context("the output of iperf3 has no rate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legs_of_a_group_share_neither_sender_nor_receiver() {
        let hosts = ["a", "b", "c", "d"].map(str::to_owned);
        let legs = Legs::between_all(&hosts);
        let groups = groups(&legs);
        assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), 12);
        for group in &groups {
            for (at, leg) in group.iter().enumerate() {
                assert!(group[..at].iter().all(|other| other.0 != leg.0 && other.1 != leg.1));
            }
        }
    }

    #[test]
    fn the_output_of_iperf3_is_parsed() {
        let report = br#"{"end":{"sum_received":{"bits_per_second":9.5e6}}}"#;
        assert_eq!(received(report).unwrap(), 9.5e6);
        assert!(received(br#"{"error":"unable to connect"}"#).is_err());
        assert!(received(b"").is_err());
    }
}
