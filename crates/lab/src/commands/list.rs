//! `thalweg-bench lab list`: lists the running labs.

use anyhow::Result;
use std::{fmt::Write as _, process::ExitCode};
use thalweg_console::{note, say, say_line};
use thalweg_lab::{client, discover};

/// Arguments of `thalweg-bench lab list`.
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints every running lab with the addresses of its hosts and its links.
pub fn run(args: Args) -> Result<ExitCode> {
    let labs: Vec<_> = discover::list_running()?
        .into_iter()
        .filter_map(|socket| Some((socket.clone(), client::describe(&socket).ok()?)))
        .collect();
    if args.json {
        let labs: serde_json::Map<_, _> = labs
            .into_iter()
            .map(|(socket, lab)| {
                let private = discover::is_private(&socket);
                let (hosts, links) = (lab.hosts, lab.links);
                let lab = serde_json::json!({"private": private, "hosts": hosts, "links": links});
                (discover::lab_name(&socket), lab)
            })
            .collect();
        say_line(serde_json::json!({"labs": labs}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if labs.is_empty() {
        note!("no lab is running; start one with `thalweg-bench lab up TOPO.toml`");
    }
    let mut text = String::new();
    for (socket, lab) in labs {
        let owner = if discover::is_private(&socket) { "  (started by a program)" } else { "" };
        // Writing to a string cannot fail.
        _ = writeln!(text, "{}{owner}", discover::lab_name(&socket));
        for (host, addresses) in &lab.hosts {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            _ = writeln!(text, "  host {host:<16} {}", addresses.join(" "));
        }
        _ = writeln!(text, "  links {}", lab.links.join(" "));
    }
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}
