//! Measures one cast to hundreds of receivers in one tree.

use super::{
    super::report::Report,
    casting::{Cast, cast},
    mesh::{CrowdMesh, FilePlace, SOURCE, TAG},
};
use anyhow::{Context as _, ensure};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{fmt::Write as _, fs, path::Path, time::Instant};
use thalweg_console::note;
use thalweg_units::ByteSize;

/// The number of known legs to each receiver besides the one from the source.
const LEGS: u64 = 4;

/// The rate of each leg, Mbit/s, low enough for this machine to carry hundreds at once.
const LEG: u32 = 4;

/// A host's upload capacity in legs; the plan knows it from one leg of this rate.
const EGRESS: u32 = 4;

/// Arguments of `thalweg-bench load crowd scale`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of receivers, each a separate node
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(2..=1000))]
    receivers: u16,
    /// Size of the object
    #[arg(long, default_value = "8 MiB")]
    size: ByteSize,
    /// Number of concurrent parents of a receiver
    #[arg(long, default_value = "1")]
    parents: String,
    /// Seed of the known legs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Founds the mesh, casts once, and prints the report.
///
/// # Errors
/// When a node does not start or a receiver does not get the right object.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let names: Vec<String> = (1..=args.receivers).map(|n| format!("r{n:04}")).collect();
    let began = Instant::now();
    let mut mesh = CrowdMesh::create(&FilePlace::Disk, &names)?;
    mesh.start_all()?;
    let starting = began.elapsed().as_secs_f64();
    note!("thalweg-bench: {} nodes are running after {starting:.0} s", names.len());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    let rates = mesh.file(SOURCE, "csv");
    fs::write(&rates, legs(&names, &mut random))?;
    let object = mesh.file(SOURCE, "bin");
    let mut bytes = vec![0; usize::try_from(args.size.as_bytes())?];
    random.fill_bytes(&mut bytes);
    fs::write(&object, &bytes)?;
    let done = cast(&mesh, &arguments(&object, &rates, args)?, None)?;
    for name in &names {
        let came = fs::read(mesh.inbox(name).join("object")).with_context(|| name.clone())?;
        ensure!(came == bytes, "{name} received wrong bytes");
    }
    report(&done, starting).print().context("cannot print the report")
}

fn arguments<'a>(
    object: &'a Path,
    rates: &'a Path,
    args: &'a Args,
) -> anyhow::Result<[&'a str; 10]> {
    let text = |path: &'a Path| path.to_str().context("a path is not valid UTF-8");
    let parents = args.parents.as_str();
    let (object, rates) = (text(object)?, text(rates)?);
    Ok([
        object,
        "--to-all",
        "--tag",
        TAG,
        "--name",
        "object",
        "--rates",
        rates,
        "--parents",
        parents,
    ])
}

/// A file of rates: a few legs from random hosts to each receiver, and for each host the leg that shows its upload
/// capacity.
fn legs(names: &[String], random: &mut Xoshiro256PlusPlus) -> String {
    let mut text = "from,to,rate\n".to_owned();
    let mut leg = |from: &str, to: &str, rate: u32| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{from},{to},{rate} Mbit/s");
    };
    for (at, to) in names.iter().enumerate() {
        let mut from: Vec<usize> = (0..LEGS).map(|_| random_below(names.len(), random)).collect();
        from.sort_unstable();
        from.dedup();
        leg(SOURCE, to, LEG);
        from.into_iter().filter(|from| *from != at).for_each(|from| leg(&names[from], to, LEG));
        leg(to, SOURCE, EGRESS * LEG);
    }
    leg(SOURCE, "hub", EGRESS * LEG);
    text
}

fn random_below(below: usize, random: &mut Xoshiro256PlusPlus) -> usize {
    // Scales a 64-bit number to a number below `below`, which is at most a thousand.
    ((u128::from(random.next_u64()) * below as u128) >> 64) as usize
}

fn report(done: &Cast, starting: f64) -> Report {
    let mut report = Report::default();
    let beside = done.wire.0 - done.served + done.wire.1;
    report.add("receivers_done", "receivers", done.complete);
    report.add("objects_sent", "objects", done.served / done.bytes);
    report.add("source_children", "receivers", done.children());
    report.add("depth", "hops", done.depth());
    report.add("control", "kB/receiver", beside / done.complete / 1e3);
    report.add("control_rate", "B/s/receiver", beside / done.complete / done.seconds);
    report.add("source_cpu", "s", done.cpu);
    report.add("source_memory", "MiB", done.memory);
    report.add("beyond", "%", 100.0 * (done.received.0 / done.complete / done.bytes - 1.0));
    report.add("took", "s", done.seconds);
    report.add("starting", "s", starting);
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_paths::estimates::Estimates;

    #[test]
    fn each_receiver_has_a_leg_from_the_source_and_none_to_itself() {
        let names: Vec<String> = (1..=30).map(|n| format!("r{n:04}")).collect();
        let text = legs(&names, &mut Xoshiro256PlusPlus::seed_from_u64(1));
        Estimates::parse(&text).unwrap();
        for name in &names {
            assert!(text.contains(&format!("{SOURCE},{name},")));
            assert!(!text.contains(&format!("{name},{name},")));
        }
    }
}
