//! Gives the lab's links the rates of a table, if the table exists.

use super::super::report::Report;
use anyhow::{Context as _, ensure};
use std::{env, fs, path::PathBuf};
use thalweg_lab::{client::Lab, topology::LinkChange};
use thalweg_units::Rate;

/// The table's file name.
const TABLE: &str = "roma-table1.csv";

/// Arguments of `thalweg-bench load cast capacities`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's socket
    #[arg(long, value_name = "SOCKET")]
    lab: PathBuf,
    /// Directory of roma-table1.csv (default: $THALWEG_DATA); without it the links are not changed
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Hosts whose access links keep the rates of the topology, even if the table has rates for them
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    keep: Vec<String>,
    /// Factor for all rates
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
}

/// The rate from one site to another.
#[derive(Debug, PartialEq)]
struct SiteRate {
    from: String,
    to: String,
    mbps: f64,
}

/// Changes the links and prints the number of changed ones.
///
/// # Errors
/// When the table is invalid or the lab has none of its links.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let lab = Lab::attach(&args.lab)?;
    let data = args.data.clone().or_else(|| env::var_os("THALWEG_DATA").map(PathBuf::from));
    let file = data.map(|directory| directory.join(TABLE)).filter(|file| file.is_file());
    let mut report = Report::default();
    let mut changed = 0_u32;
    if let Some(file) = file {
        let text = fs::read_to_string(&file)?;
        let table = parse(&text)
            .with_context(|| format!("{} is not a valid table of rates", file.display()))?;
        let is_kept = |entry: &SiteRate| entry.from == entry.to && args.keep.contains(&entry.from);
        for SiteRate { from, to, mbps } in table.into_iter().filter(|entry| !is_kept(entry)) {
            let rate = LinkChange::rate(Rate::from_mbps(mbps * args.scale));
            for half in halves(&lab, &from, &to) {
                lab.set(&half, &rate)?;
                changed += 1;
            }
        }
        ensure!(changed > 0, "the lab has none of the table's links");
    }
    report.add("changed", "links", f64::from(changed));
    Ok(report.print()?)
}

/// The halves of links between two sites: one half of their link, or both halves of the access if they are the same
/// site.
fn halves(lab: &Lab, from: &str, to: &str) -> Vec<String> {
    let wanted = match from == to {
        true => vec![format!("{from}.access.fwd"), format!("{from}.access.rev")],
        false => vec![format!("{from}_{to}.fwd"), format!("{to}_{from}.rev")],
    };
    let has = |name: &String| lab.resolved().links.iter().any(|link| link.name == *name);
    wanted.into_iter().filter(has).collect()
}

/// Parses the table. The header line is `receiver,…`; each row is a receiver and each column a sender, in Mbit/s.
fn parse(text: &str) -> anyhow::Result<Vec<SiteRate>> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let name = |text: &str| text.trim().to_lowercase();
    let senders: Vec<String> =
        lines.next().context("the table is empty")?.split(',').map(name).collect();
    let mut table = Vec::new();
    for line in lines {
        let mut cells = line.split(',');
        let to = name(cells.next().unwrap_or_default());
        for (from, cell) in senders.iter().skip(1).zip(cells) {
            let mbps = cell.trim().parse().with_context(|| format!("`{cell}` is not a rate"))?;
            table.push(SiteRate { from: from.clone(), to: to.clone(), mbps });
        }
    }
    ensure!(!table.is_empty(), "the table has no rates");
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_receivers_and_columns_are_senders() {
        let table = parse("# note\nreceiver,X,Y\nX,9.5,1\nY,2,8\n").unwrap();
        let entry =
            |from: &str, to: &str, mbps| SiteRate { from: from.into(), to: to.into(), mbps };
        assert_eq!(table[1], entry("y", "x", 1.0));
        assert_eq!(table[2], entry("x", "y", 2.0));
        assert_eq!(table.len(), 4);
        assert!(parse("receiver,X\nX,fast\n").is_err() && parse("").is_err());
    }
}
