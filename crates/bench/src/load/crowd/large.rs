//! Measures the cast of an object that is larger than the memory that a receiver may use.

use super::{
    super::{process::memory_mib, report::Report},
    casting::cast,
    limit::MemoryLimit,
    mesh::{CrowdMesh, FilePlace, NodeStart, SOURCE},
};
use anyhow::{Context as _, ensure};
use std::{
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _},
};
use thalweg_console::note;
use thalweg_units::ByteSize;

/// A number is written at multiples of this offset, so that no two chunks of the object are the same.
const EVERY: u64 = 1 << 20;

/// The receivers; the second gets the object from the first.
const NAMES: [&str; 2] = ["one", "two"];

/// Arguments of `thalweg-bench load crowd large`.
#[derive(clap::Args)]
pub struct Args {
    /// Size of the object; it has holes at the source and is written completely at each receiver
    #[arg(long, default_value = "4 GB")]
    size: ByteSize,
    /// Memory limit of each receiver, including its page cache
    #[arg(long, default_value = "256 MiB")]
    memory: ByteSize,
    /// Number of receivers, in a chain
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    receivers: u8,
    /// Further arguments of `thalweg cast`
    #[arg(last = true)]
    further: Vec<String>,
}

/// Measures and prints the report.
///
/// # Errors
/// When a node does not start, exceeds its memory and is killed, or a cast fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let names: Vec<String> =
        NAMES[..usize::from(args.receivers)].iter().map(|name| (*name).to_owned()).collect();
    // Declared before the mesh, so that the nodes end before their groups in any case.
    let mut limited = Vec::new();
    let mut mesh = CrowdMesh::create(&FilePlace::Disk, &names)?;
    for name in &names {
        let limit = MemoryLimit::new(name, args.memory)?;
        let start = NodeStart { group: Some(&limit.processes()), ..NodeStart::default() };
        let id = mesh.start(name, start)?;
        limited.push((id, limit));
    }
    let object = mesh.file(SOURCE, "bin");
    write(&object, args.size.as_bytes())?;
    note!("thalweg-bench: casting {} to {}", args.size, names.join(", "));
    let rates = mesh.file(SOURCE, "csv");
    fs::write(&rates, format!("from,to,rate\n{SOURCE},one,1 Gbit/s\none,two,1 Gbit/s\n"))?;
    let text = |path: &'_ std::path::Path| {
        path.to_str().map(str::to_owned).context("a path is not valid UTF-8")
    };
    let (path, rates, to) = (text(&object)?, text(&rates)?, names.join(","));
    let wide = ["--rates", &rates, "--parents", "1", "--legs", "open"];
    let further: Vec<&str> = args.further.iter().map(String::as_str).collect();
    let all = [&[&*path, "--to", &to], &wide[..], &further].concat();
    let done = cast(&mesh, &all, None)?;
    let mut report = Report::default();
    report.add("size", "GB", done.bytes / 1e9);
    report.add("took", "s", done.seconds);
    report.add("source_memory", "MiB", done.memory);
    let (mut resident, mut charged) = (0_f64, 0_f64);
    for (id, limit) in &limited {
        resident = resident.max(memory_mib(*id, "VmHWM")?);
        charged = charged.max(limit.peak_mib()?);
    }
    report.add("receiver_memory", "MiB", resident);
    report.add("receiver_charged", "MiB", charged);
    for name in &names {
        let came = fs::metadata(mesh.inbox(name).join("src.bin"))?;
        ensure!(
            came.size() == args.size.as_bytes(),
            "the object at {name} has {} bytes",
            came.size()
        );
    }
    report.print().context("cannot print the report")
}

/// Writes the object, which consists mostly of holes.
fn write(path: &std::path::Path, length: u64) -> anyhow::Result<()> {
    let file = File::create(path)?;
    file.set_len(length)?;
    for at in (0..length.saturating_sub(8)).step_by(EVERY as usize) {
        file.write_all_at(&at.to_le_bytes(), at)?;
    }
    Ok(())
}
