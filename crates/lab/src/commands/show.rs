//! `thalweg lab show`: a topology file, checked and expanded.

use anyhow::Result;
use std::{path::PathBuf, process::ExitCode};
use thalweg_lab::topology::{Resolved, Topology};

/// Arguments of `thalweg lab show`.
#[derive(clap::Args)]
pub struct Args {
    /// The topology file (`-`: standard input)
    topology: PathBuf,
}

/// Prints hosts, links and, for every pair of interfaces, the path with its limit and round trip.
pub fn run(args: Args) -> Result<ExitCode> {
    let text = super::read_topology(&args.topology)?;
    let network = Topology::from_toml(&text)?.resolve()?;
    for host in &network.hosts {
        let addresses: Vec<_> =
            host.interfaces.iter().map(|i| network.interfaces[*i].v4.to_string()).collect();
        println!("host {:<16} {}", host.name, addresses.join(" "));
    }
    for link in &network.links {
        let config = &link.config;
        let rate = config.rate.map_or("no limit".to_owned(), |rate| rate.to_string());
        let queue = config.rate.map(|rate| format!(" queue {} B", config.queue.bytes(rate)));
        let delay = thalweg_units::format_duration(config.delay);
        println!("link {:<16} {rate}{} delay {delay}", link.name, queue.unwrap_or_default());
    }
    for from in 0..network.interfaces.len() {
        for to in 0..network.interfaces.len() {
            print_path(&network, from, to);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_path(network: &Resolved, from: usize, to: usize) {
    let Some(links) = network.path_links(from, to) else { return };
    if links.is_empty() || from == to {
        return;
    }
    let names: Vec<_> = links.iter().map(|l| network.links[*l].name.as_str()).collect();
    let limit = network.physical_limit(from, to).map_or("no limit".to_owned(), |r| r.to_string());
    let rtt = network.rtt(from, to).map_or("no way back".to_owned(), |rtt| {
        format!("round trip {}", thalweg_units::format_duration(rtt))
    });
    let (from, to) = (label(network, from), label(network, to));
    println!("path {from} -> {to}  {}  ({limit}, {rtt})", names.join(" "));
}

fn label(network: &Resolved, interface: usize) -> String {
    let plan = &network.interfaces[interface];
    format!("{}:{}", network.hosts[plan.host].name, plan.index)
}
