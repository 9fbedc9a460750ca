//! A rolling upgrade: a mesh of real nodes under load, whose program is exchanged for that of another release, one node
//! after the other, and back again.
//!
//! Workers run the product's commands all the while: downloads through relays, collections, sends and casts between
//! members drawn by the seed, each with the program that its own host has at that time. What arrives is compared with
//! what was sent. The results are:
//!
//! - `failed`: transfers that were not done by so many runs of the same command as a user is told to make;
//! - `wrong`: transfers that reported success, but brought other bytes;
//! - `repeated`: runs that failed and were repeated, most of them with an end that was just restarting;
//! - `between_versions`: transfers between nodes of different programs;
//! - `away_max`: the longest time from a node's signal to end until its successor served.

use super::{
    jobs::server::FileServer,
    report::Report,
    strangers::test_mesh::{Daemon, TestMesh, TestNode},
};
use anyhow::{Context as _, bail, ensure};
use parking_lot::{Mutex, RwLock};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Settings of every node. Measurements of rates would only load the machine.
const SETTINGS: &str = "allow_to = [\"127.0.0.0/8\"]\nports = [\"1-65535\"]\ndrain = \"2 s\"\n[measure]\nenabled = false\n";

/// How often the same command is run until a transfer counts as failed.
const ATTEMPTS: u32 = 6;

/// The time before a command is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(500);

/// The longest time for a step of the rollout.
const PATIENCE: Duration = Duration::from_secs(180);

/// Arguments of `thalweg-bench load upgrade`.
#[derive(clap::Args)]
pub struct Args {
    /// The program of the other release, by path or by its name in PATH
    #[arg(long, value_name = "PROGRAM")]
    old: PathBuf,
    /// Number of nodes
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(3..=64))]
    nodes: u32,
    /// Number of transfers at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Number of transfers that end between two restarts
    #[arg(long, default_value_t = 8)]
    between: u64,
    /// Size of a file, bytes
    #[arg(long, default_value_t = 1_000_000)]
    size: usize,
    /// The seed of the transfers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Founds a mesh of the old program, upgrades and downgrades it, and prints the report.
///
/// # Errors
/// When a program or a node does not start, or transfers stop.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let server = FileServer::start(args.size).await?;
    let mut report = Report::default();
    tokio::task::block_in_place(|| roll_out(args, &server, &mut report))?;
    report.print()?;
    Ok(())
}

/// The mesh, and what its workers count.
struct Rollout<'a> {
    hosts: Vec<Host>,
    server: &'a FileServer,
    size: usize,
    has_ended: AtomicBool,
    next: AtomicU64,
    counts: Mutex<Counts>,
}

/// One node with its directories.
struct Host {
    name: String,
    node: RwLock<TestNode>,
    daemon: Mutex<Option<Daemon>>,
    is_new: AtomicBool,
    data: PathBuf,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    ended: u64,
    failed: u64,
    wrong: u64,
    repeated: u64,
    between_versions: u64,
}

fn roll_out(args: &Args, server: &FileServer, report: &mut Report) -> anyhow::Result<()> {
    let old = resolve(&args.old)?;
    let new = crate::program::product()?;
    let mesh = TestMesh::of_program(old.clone())?;
    let data = tempfile::tempdir()?;
    let rollout = Rollout {
        hosts: found(&mesh, args, data.path())?,
        server,
        size: args.size,
        has_ended: AtomicBool::new(false),
        next: AtomicU64::new(0),
        counts: Mutex::default(),
    };
    let began = Instant::now();
    let away = thread::scope(|scope| {
        for worker in 0..args.workers {
            let rollout = &rollout;
            let random = Xoshiro256PlusPlus::seed_from_u64((args.seed << 8) | u64::from(worker));
            scope.spawn(move || rollout.work(random));
        }
        // The oracle's node, which is the first, comes last, as operators are told; back it goes first.
        let forth: Vec<usize> = (1..rollout.hosts.len()).chain([0]).collect();
        let result = rollout.exchange(&forth, &new, true, args.between).and_then(|there| {
            let back: Vec<usize> = forth.into_iter().rev().collect();
            let again = rollout.exchange(&back, &old, false, args.between)?;
            Ok(there.max(again))
        });
        rollout.has_ended.store(true, Ordering::Relaxed);
        result
    })?;
    let counts = *rollout.counts.lock();
    report.add("nodes", "", f64::from(args.nodes));
    report.add("transfers", "", counts.ended as f64);
    report.add("failed", "", counts.failed as f64);
    report.add("wrong", "", counts.wrong as f64);
    report.add("repeated", "", counts.repeated as f64);
    report.add("between_versions", "", counts.between_versions as f64);
    report.add("away_max", "s", away.as_secs_f64());
    report.add("seconds", "s", began.elapsed().as_secs_f64());
    report.add_text("old", build_of(&old)?);
    report.add_text("new", build_of(&new)?);
    Ok(())
}

/// The path of a program that may be given by its name.
fn resolve(program: &Path) -> anyhow::Result<PathBuf> {
    let found = match program.components().count() {
        1 => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|directory| directory.join(program))
            .find(|file| file.is_file()),
        _ => Some(program.to_owned()),
    };
    let found = found.with_context(|| format!("{} is not in PATH", program.display()))?;
    fs::canonicalize(&found).with_context(|| format!("there is no {}", found.display()))
}

/// The version of a program, and a hash that tells builds of one version apart.
fn build_of(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).arg("--version").output()?;
    let hash = blake3::hash(&fs::read(program)?).to_hex();
    Ok(format!("{} ({})", String::from_utf8_lossy(&output.stdout).trim(), &hash[..12]))
}

/// Founds the mesh and starts its nodes, each of which offers a directory, and accepts files and casts in another.
fn found(mesh: &TestMesh, args: &Args, data: &Path) -> anyhow::Result<Vec<Host>> {
    let mut hosts: Vec<Host> = Vec::new();
    for number in 0..args.nodes {
        let name = format!("n{number}");
        let data = fs::canonicalize(data)?.join(&name);
        let [offer, inbox] = ["offer", "inbox"].map(|part| data.join(part));
        fs::create_dir_all(&offer)?;
        fs::create_dir_all(&inbox)?;
        fs::write(offer.join("file"), content(number.into(), args.size))?;
        let settings = format!(
            "{SETTINGS}[files]\noffer = [{{ path = {offer:?}, to = [\"*\"] }}]\n\
             accept = [{{ path = {inbox:?}, from = [\"*\"] }}]\n\
             [cast]\ninbox = [{{ path = {inbox:?}, from = [\"*\"] }}]\n"
        );
        let node = match hosts.first() {
            None => mesh.create_mesh(&name, &settings)?,
            Some(founder) => {
                mesh.join_with(&founder.node.read(), &name, &["--role", "relay"], &settings)?
            }
        };
        let daemon = Mutex::new(Some(node.start()?));
        let (node, is_new) = (RwLock::new(node), AtomicBool::new(false));
        hosts.push(Host { name, node, daemon, is_new, data });
    }
    Ok(hosts)
}

/// Bytes that follow from a number.
fn content(number: u64, size: usize) -> Vec<u8> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
    let mut bytes = vec![0; size];
    random.fill_bytes(&mut bytes);
    bytes
}

impl Rollout<'_> {
    /// Restarts the nodes in this order with another program, with so many transfers in between. Returns the longest
    /// time without a node.
    fn exchange(
        &self,
        order: &[usize],
        program: &Path,
        is_new: bool,
        between: u64,
    ) -> anyhow::Result<Duration> {
        let mut longest = Duration::ZERO;
        for &index in order {
            self.wait_for(between)?;
            let host = &self.hosts[index];
            let began = Instant::now();
            let daemon = host.daemon.lock().take().context("the node runs")?;
            daemon.terminate(PATIENCE)?;
            host.node.write().set_program(program.to_owned());
            host.is_new.store(is_new, Ordering::Relaxed);
            let started = host.node.read().start();
            let started =
                started.with_context(|| format!("{} with {}", host.name, program.display()))?;
            *host.daemon.lock() = Some(started);
            longest = longest.max(began.elapsed());
            let word = if is_new { "new" } else { "old" };
            thalweg_console::note!(
                "{}: the {word} program, after {:.1?}",
                host.name,
                began.elapsed()
            );
        }
        self.wait_for(between)?;
        Ok(longest)
    }

    /// Waits until so many more transfers have ended.
    fn wait_for(&self, more: u64) -> anyhow::Result<()> {
        let (began, before) = (Instant::now(), self.counts.lock().ended);
        while self.counts.lock().ended < before + more {
            ensure!(
                began.elapsed() < PATIENCE,
                "fewer than {more} transfers ended in {PATIENCE:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Runs transfers until the rollout has ended.
    fn work(&self, mut random: Xoshiro256PlusPlus) {
        while !self.has_ended.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let ends = self.draw(&mut random);
            let is_mixed = {
                let new = ends.map(|end| self.hosts[end].is_new.load(Ordering::Relaxed));
                new.iter().any(|is_new| *is_new != new[0])
            };
            let outcome = Transfer { rollout: self, number, ends }.run();
            let mut counts = self.counts.lock();
            counts.ended += 1;
            counts.between_versions += u64::from(is_mixed);
            match outcome {
                Ok(outcome) => {
                    counts.repeated += u64::from(outcome.repeated);
                    counts.wrong += u64::from(outcome.is_wrong);
                }
                Err(error) => {
                    counts.failed += 1;
                    thalweg_console::note!("transfer {number} failed: {error:#}");
                }
            }
        }
    }

    /// Three different hosts.
    fn draw(&self, random: &mut Xoshiro256PlusPlus) -> [usize; 3] {
        let mut all: Vec<usize> = (0..self.hosts.len()).collect();
        let mut take = || all.swap_remove((random.next_u64() % all.len() as u64) as usize);
        [take(), take(), take()]
    }
}

struct Outcome {
    repeated: u32,
    is_wrong: bool,
}

/// A transfer: its number and its hosts. The first host runs the command.
struct Transfer<'a> {
    rollout: &'a Rollout<'a>,
    number: u64,
    ends: [usize; 3],
}

impl Transfer<'_> {
    fn run(&self) -> anyhow::Result<Outcome> {
        let [own, to, third] = self.ends.map(|end| &self.rollout.hosts[end]);
        let (number, size) = (self.number, self.rollout.size);
        let file = format!("t{number}");
        let here = own.data.join(&file);
        let path = |file: &Path| file.display().to_string();
        let (args, arrived, bytes) = match number % 4 {
            0 => {
                let url = self.rollout.server.url(number);
                let words =
                    ["get", &url, "--via", &to.name, "--history", "none", "-o", &path(&here)];
                (
                    words.map(str::to_owned).to_vec(),
                    vec![here.clone()],
                    self.rollout.server.content(number),
                )
            }
            1 => {
                let source = format!("{}:{}", to.name, path(&to.data.join("offer/file")));
                let words = ["gather", &source, "--into", &path(&here), "--flat"];
                let bytes = content(self.ends[1] as u64, size);
                (words.map(str::to_owned).to_vec(), vec![here.join("file")], bytes)
            }
            kind => {
                let bytes = content(number, size);
                fs::write(&here, &bytes)?;
                if kind == 2 {
                    let target = format!("{}:{}/", to.name, path(&to.data.join("inbox")));
                    let words = ["send", &path(&here), &target].map(str::to_owned);
                    (words.to_vec(), vec![to.data.join("inbox").join(&file)], bytes)
                } else {
                    let receivers = format!("{},{}", to.name, third.name);
                    let words = ["cast", &path(&here), "--to", &receivers].map(str::to_owned);
                    let inboxes = [to, third].map(|host| host.data.join("inbox").join(&file));
                    (words.to_vec(), inboxes.to_vec(), bytes)
                }
            }
        };
        let repeated = self.repeat(own, &args);
        let is_right = |file: &PathBuf| fs::read(file).is_ok_and(|found| found == bytes);
        let is_wrong = repeated.is_ok() && !arrived.iter().all(is_right);
        // Thousands of transfers would fill the disk.
        for file in arrived.iter().chain([&here]) {
            _ = fs::remove_file(file);
        }
        _ = fs::remove_dir_all(&here);
        Ok(Outcome { repeated: repeated?, is_wrong })
    }

    /// Runs the command until it succeeds; returns how often it was repeated.
    fn repeat(&self, own: &Host, args: &[String]) -> anyhow::Result<u32> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut said = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                thread::sleep(REPEAT_AFTER);
            }
            let mut command = own.node.read().command(&args);
            let output = command.current_dir(&own.data).output()?;
            if output.status.success() {
                return Ok(attempt);
            }
            said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        }
        bail!("{} {}: {said}", own.name, args.join(" "))
    }
}
