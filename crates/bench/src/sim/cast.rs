//! `thalweg-bench sim cast`: simulates a cast of one object to many receivers with the product's own planner.

use super::summarise_seeds;
use anyhow::ensure;
use clap::ValueEnum;
use std::process::ExitCode;
use thalweg_console::say;
use thalweg_plan::tree::{
    EFFORT,
    depth::{ChainLoss, Shape},
};
use thalweg_sim::{
    cast::{CastArm, Settings, Spread, run as simulated},
    figures::Report,
};
use thalweg_units::{ByteSize, Rate};

/// Arguments of `thalweg-bench sim cast`.
#[derive(clap::Args)]
pub struct Args {
    /// The way of delivery
    #[arg(long, value_enum, default_value_t = DeliveryArm::Bounded)]
    by: DeliveryArm,
    /// Number of receivers
    #[arg(long, default_value_t = 300, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    receivers: u32,
    /// Number of known legs to each receiver, besides the source's
    #[arg(long, default_value_t = 24, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1000))]
    legs: u32,
    /// Size of the object
    #[arg(long, default_value = "1 GiB", value_name = "SIZE")]
    size: ByteSize,
    /// Rate of the source's access link
    #[arg(long, default_value = "1 Gbit/s", value_name = "RATE")]
    egress: Rate,
    /// Receivers forward through rings of this size (default: they store the object)
    #[arg(long, value_name = "SIZE")]
    ring: Option<ByteSize>,
    /// The share that a ring loses at each hop of equal rates, 0 to 1 (0.08 in the paper)
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", requires = "ring")]
    loss: f64,
    /// Share of the receivers that join after half of the time, 0 to 1
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    late: f64,
    /// Effort of the planner, in legs examined
    #[arg(long, default_value_t = EFFORT, value_name = "N")]
    effort: u64,
    /// Seed of the hosts and legs; with several, medians over them are shown
    #[arg(long, default_value = "1", value_name = "N")]
    seed: Vec<u64>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeliveryArm {
    /// Through a tree planned with the hosts' sending rates
    Bounded,
    /// Through the widest-path tree, with ties broken at random (ROMA §VI-C)
    Widest,
    /// From the source to each receiver
    Unicast,
}

impl DeliveryArm {
    fn arm(self) -> CastArm {
        match self {
            Self::Bounded => CastArm::Bounded,
            Self::Widest => CastArm::Widest,
            Self::Unicast => CastArm::Unicast,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// When an argument is invalid.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    check(args)?;
    let summary = summarise_seeds("cast", &args.seed, |seed| Ok(report(&settings(args, seed))))?;
    if args.json {
        let input = format!("{} receivers", args.receivers);
        say(&format!("{}\n", summary.json("cast", &input, &args.seed)))?;
    } else {
        say(&summary.text(|name| name.replace('_', " ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(args: &Args) -> anyhow::Result<()> {
    ensure!((0.0..1.0).contains(&args.loss), "--loss must be at least 0 and less than 1");
    ensure!((0.0..=1.0).contains(&args.late), "--late must be from 0 to 1");
    ensure!(args.size.as_bytes() > 0, "--size must be at least one byte");
    ensure!(args.egress > Rate::ZERO, "--egress must be above 0");
    ensure!(args.ring.is_none_or(|ring| ring.as_bytes() > 0), "--ring must be at least one byte");
    Ok(())
}

fn settings(args: &Args, seed: u64) -> Settings {
    let loss = match args.ring {
        Some(ring) if args.loss > 0.0 => ChainLoss {
            shape: Shape::Exponential,
            dispersion: ChainLoss::dispersion(args.loss, ring),
        },
        _ => ChainLoss::NONE,
    };
    Settings {
        arm: args.by.arm(),
        receivers: args.receivers as usize,
        legs: args.legs as usize,
        length: args.size,
        egress: args.egress,
        ring: args.ring,
        loss,
        late: args.late,
        seed,
        effort: args.effort,
        ..Settings::default()
    }
}

fn report(settings: &Settings) -> Report {
    let found = simulated(settings);
    let mut report = Report::default();
    report.add("receivers_done", "receivers", found.done as f64);
    report.add("source_children", "receivers", found.source.children as f64);
    report.add("objects_sent", "objects", found.source.objects_sent);
    report.add("source_messages", "messages", found.source.messages as f64);
    let each = found.source.messages_per_receiver;
    report.add("source_messages_each", "messages/receiver", each);
    let kilobytes = found.source.control_per_receiver / 1e3;
    report.add("source_control_each", "kB/receiver", kilobytes);
    let mut spread = |name: &str, unit, of: Spread| {
        report.add(format!("{name}_min"), unit, of.min);
        report.add(format!("{name}_median"), unit, of.median);
        report.add(format!("{name}_max"), unit, of.max);
    };
    spread("depth", "hops", found.depth);
    spread("children", "receivers", found.children);
    spread("took", "s", found.took_s);
    spread("of_min_hop", "×", found.of_min_hop);
    spread("of_widest", "×", found.of_widest);
    spread("messages", "messages", found.messages);
    spread("messages_all", "messages", found.messages_all);
    spread("control", "% of the object", found.control);
    spread("control_all", "% of the object", found.control_all);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_of_rings_is_that_of_the_arguments() {
        let ring = Some(ByteSize::from_bytes(1 << 20));
        let args = Args {
            by: DeliveryArm::Bounded,
            receivers: 9,
            legs: 3,
            size: ByteSize::from_bytes(1 << 20),
            egress: Rate::from_mbps(10.0),
            ring,
            loss: 0.08,
            late: 0.0,
            effort: 1000,
            seed: vec![1],
            json: false,
        };
        let settings = settings(&args, 7);
        assert_eq!((settings.receivers, settings.seed, settings.ring), (9, 7, ring));
        assert_eq!(settings.loss.shape, Shape::Exponential);
        assert!(settings.loss.dispersion.as_bytes() > 0);
        check(&args).unwrap();
        assert!(check(&Args { loss: 1.0, ..args }).is_err());
    }
}
