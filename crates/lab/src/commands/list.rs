//! `thalweg lab list`: what runs.

use anyhow::Result;
use std::process::ExitCode;
use thalweg_lab::{client, discover};

/// Arguments of `thalweg lab list`.
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints every running lab with its hosts' first addresses and its links.
pub fn run(args: Args) -> Result<ExitCode> {
    let labs: Vec<_> = discover::running()?
        .into_iter()
        .filter_map(|socket| Some((discover::name_of(&socket), client::describe(&socket).ok()?)))
        .collect();
    if args.json {
        let labs: serde_json::Map<_, _> = labs
            .into_iter()
            .map(|(name, lab)| (name, serde_json::json!({"hosts": lab.hosts, "links": lab.links})))
            .collect();
        println!("{}", serde_json::json!({"labs": labs}));
        return Ok(ExitCode::SUCCESS);
    }
    if labs.is_empty() {
        eprintln!("no lab is running; start one with `thalweg lab up TOPO.toml`");
    }
    for (name, lab) in labs {
        println!("{name}");
        for (host, addresses) in &lab.hosts {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            println!("  host {host:<16} {}", addresses.join(" "));
        }
        println!("  links {}", lab.links.join(" "));
    }
    Ok(ExitCode::SUCCESS)
}
