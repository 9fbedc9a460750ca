//! `thalweg-bench lab stats`: prints the accuracy of the emulation and the record of each link.

use super::LabSelection;
use anyhow::Result;
use std::{fmt::Write as _, process::ExitCode};
use thalweg_console::{say, say_line};
use thalweg_lab::stats::Stats;

/// Arguments of `thalweg-bench lab stats`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: LabSelection,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// With --json: include every link's record over time
    #[arg(long, requires = "json")]
    series: bool,
    /// Restart the windows of lateness and processor pressure
    #[arg(long)]
    reset: bool,
}

/// Prints the statistics, and restarts their windows if asked to.
pub fn run(args: Args) -> Result<ExitCode> {
    let lab = args.which.attach()?;
    let stats = lab.stats(args.series)?;
    if args.reset {
        lab.reset_stats()?;
    }
    if args.json {
        say_line(serde_json::to_string(&stats)?)?;
    } else {
        say(&format_stats(&stats))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn format_stats(stats: &Stats) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let l = &stats.lateness;
    let mode = if stats.realtime { "real-time priority" } else { "ordinary priority" };
    _ = writeln!(text, "{} hosts for {:.1} s, emulator at {mode}", stats.hosts, stats.elapsed_s);
    _ = writeln!(
        text,
        "lateness  median {} µs, 99 % {} µs, 99.9 % {} µs, largest {} µs, of {} packets",
        l.p50_us, l.p99_us, l.p999_us, l.max_us, l.n
    );
    if let Some(percent) = stats.cpu_pressure_percent {
        _ = writeln!(text, "processor pressure  {percent:.1} %");
    }
    _ = writeln!(
        text,
        "{:<20} {:>13} {:>5} {:>12} {:>14} {:>11} {:>9} {:>9} {:>9} {:>11}",
        "link",
        "rate",
        "state",
        "packets",
        "bytes",
        "queue drops",
        "lost",
        "held back",
        "down",
        "max queue B"
    );
    for link in &stats.links {
        _ = writeln!(
            text,
            "{:<20} {:>13} {:>5} {:>12} {:>14} {:>11} {:>9} {:>9} {:>9} {:>11}",
            link.name,
            link.rate.map_or("no limit".to_owned(), |rate| rate.to_string()),
            if link.up { "up" } else { "down" },
            link.packets,
            link.bytes,
            link.queue_drops,
            link.random_losses,
            link.reordered,
            link.down_drops,
            link.queue_max_bytes
        );
    }
    text
}
