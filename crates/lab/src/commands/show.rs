//! `thalweg-bench lab show`: checks a topology file and prints what it expands to.

use anyhow::Result;
use std::{fmt::Write as _, path::PathBuf, process::ExitCode};
use thalweg_console::say;
use thalweg_lab::topology::{Resolved, Topology};

/// Arguments of `thalweg-bench lab show`.
#[derive(clap::Args)]
pub struct Args {
    /// The topology file (`-`: standard input)
    topology: PathBuf,
}

/// Prints hosts, links and, for every pair of interfaces, the path with its rate limit and round-trip time.
pub fn run(args: Args) -> Result<ExitCode> {
    let text = super::read_topology(&args.topology)?;
    let network = Topology::from_toml(&text)?.resolve()?;
    // Writing to a string cannot fail.
    let mut text = String::new();
    for host in &network.hosts {
        let addresses: Vec<_> =
            host.interfaces.iter().map(|i| network.interfaces[*i].v4.to_string()).collect();
        _ = writeln!(text, "host {:<16} {}", host.name, addresses.join(" "));
    }
    for link in &network.links {
        let config = &link.config;
        let rate = config.rate.map_or("no limit".to_owned(), |rate| rate.to_string());
        let queue = config.rate.map(|rate| format!(" queue {} B", config.queue.bytes(rate)));
        let delay = thalweg_units::format_duration(config.delay);
        let queue = queue.unwrap_or_default();
        _ = writeln!(text, "link {:<16} {rate}{queue} delay {delay}", link.name);
    }
    for from in 0..network.interfaces.len() {
        for to in 0..network.interfaces.len() {
            text += &format_path(&network, from, to).unwrap_or_default();
        }
    }
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn format_path(network: &Resolved, from: usize, to: usize) -> Option<String> {
    let links = network.path_links(from, to)?;
    if links.is_empty() || from == to {
        return None;
    }
    let names: Vec<_> = links.iter().map(|l| network.links[*l].name.as_str()).collect();
    let limit = network.physical_limit(from, to).map_or("no limit".to_owned(), |r| r.to_string());
    let rtt = network.rtt(from, to).map_or("no return path".to_owned(), |rtt| {
        format!("round trip {}", thalweg_units::format_duration(rtt))
    });
    let (from, to) = (format_interface(network, from), format_interface(network, to));
    Some(format!("path {from} -> {to}  {}  ({limit}, {rtt})\n", names.join(" ")))
}

fn format_interface(network: &Resolved, interface: usize) -> String {
    let plan = &network.interfaces[interface];
    format!("{}:{}", network.hosts[plan.host].name, plan.index)
}
