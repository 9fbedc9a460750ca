//! How fast files land, beside what `rsync` needs to write the same from memory.
//!
//! `cargo test --release -p thalweg-node --lib landing::tests::speed -- --ignored --nocapture`

use super::*;
use std::{
    process::Command,
    time::{Duration, Instant},
};

const FILES: u64 = 100_000;

/// Where to land; a directory on the disk that is measured.
const INTO: &str = "THALWEG_LANDING_INTO";

fn arena() -> Arena {
    let directory = match std::env::var_os(INTO) {
        Some(directory) => TempDir::new_in(directory).unwrap(),
        None => TempDir::new().unwrap(),
    };
    Arena { directory }
}

fn many() -> Vec<Entry> {
    let name = |i: u64| format!("d{:03}/f{i:06}", i / 1000);
    let directories = (0..FILES / 1000).map(|i| directory(&format!("d{i:03}")));
    directories.chain((0..FILES).map(|i| file(&name(i), 1000 + i * 7919 % 3000))).collect()
}

/// CPU time of this process so far (proc_pid_stat(5); the kernel's ticks are 10 ms).
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ');
    let ticks: u64 = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

fn measure(arena: &Arena, entries: Vec<Entry>, piece: u64) -> (Duration, Duration) {
    let start = Instant::now();
    let (landing, inventory) = arena.open(entries).unwrap();
    eprintln!("  opened after {:?}", start.elapsed());
    let bytes = Bytes::from(vec![7; piece.max(4000) as usize]);
    let cpu_before = cpu();
    let report = wait(async {
        for (file, wanted) in (0..).zip(&inventory.files) {
            let size = wanted.file.snapshot.size;
            for at in (0..size).step_by(piece as usize) {
                let n = piece.min(size - at) as usize;
                landing.write(FileNo(file), at, bytes.slice(..n)).await.unwrap();
            }
        }
        eprintln!("  handed over after {:?}", start.elapsed());
        landing.finish().await
    });
    assert!(report.is_complete(), "{report:?}");
    (start.elapsed(), cpu() - cpu_before)
}

#[test]
#[ignore = "a measurement; see the module"]
fn many_small_files() {
    let arena = arena();
    let (time, cpu) = measure(&arena, many(), 4 << 20);
    eprintln!("{FILES} files landed in {time:?}, CPU {cpu:?}");
    let (from, to) = (arena.path(""), arena.directory.path().join("copy"));
    rustix::fs::sync();
    let start = Instant::now();
    let done = Command::new("rsync").arg("-a").arg(&from).arg(&to).status();
    match done {
        Ok(status) => eprintln!("rsync -a from here to here: {:?}, {status}", start.elapsed()),
        Err(e) => eprintln!("SKIPPED: no rsync to compare with: {e}"),
    }
    rustix::fs::sync();
    eprintln!("and with a sync {:?}", start.elapsed());
}

#[test]
#[ignore = "a measurement; see the module"]
fn one_large_file() {
    let arena = arena();
    let size = 2 << 30;
    let (time, cpu) = measure(&arena, vec![file("large", size)], 256 << 10);
    let rate = size as f64 * 8.0 / time.as_secs_f64() / 1e9;
    eprintln!("2 GiB landed in {time:?}: {rate:.2} Gbit/s, CPU {cpu:?}");
}
