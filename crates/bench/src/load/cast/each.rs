//! Runs another program in each host, all at the same time, until all hosts have the file.

use super::{super::report::Report, content, outcome::spread};
use anyhow::{Context as _, bail, ensure};
use std::{
    fs,
    io::BufReader,
    path::PathBuf,
    process::{Child, Stdio},
    sync::mpsc::{SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::client::Lab;

/// The line that a program prints when it has the file; it may then continue, to serve others. Otherwise it ends with
/// success.
const DONE: &str = "done";

/// Arguments of `thalweg-bench load cast each`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's socket
    #[arg(long, value_name = "SOCKET")]
    lab: PathBuf,
    /// Hosts in which the program runs
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', required = true)]
    hosts: Vec<String>,
    /// Further hosts in which it runs but need not end: sources
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    also: Vec<String>,
    /// The file that each host must have at the end
    #[arg(long)]
    file: PathBuf,
    /// Directory with one directory for each host, in which the program starts and leaves the file under its
    /// name
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Time after which the program has failed
    #[arg(long, value_name = "TIME", default_value = "10 min", value_parser = thalweg_units::parse_duration)]
    within: Duration,
    /// The program and its arguments; the environment variable NODE contains the host's name
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The running programs, killed on drop.
struct ReceiverPrograms(Vec<Child>);

impl Drop for ReceiverPrograms {
    fn drop(&mut self) {
        for child in &mut self.0 {
            _ = child.kill();
        }
        for child in &mut self.0 {
            _ = child.wait();
        }
    }
}

/// Runs the programs and prints the report.
///
/// # Errors
/// When a program fails, takes too long, or leaves other bytes.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let lab = Lab::attach(&args.lab)?;
    if args.dir.exists() {
        fs::remove_dir_all(&args.dir)?;
    }
    // Each program sends at most two messages.
    let (done, ended) = sync_channel(2 * (args.hosts.len() + args.also.len()));
    let (mut programs, began) = (ReceiverPrograms(Vec::new()), Instant::now());
    for (at, host) in args.also.iter().chain(&args.hosts).enumerate() {
        let child = start(args, &lab, host)?;
        programs.0.push(child);
        let stdout = programs.0[at].stdout.take().context("cannot read the program's output")?;
        let (host, done) = (host.clone(), done.clone());
        thread::spawn(move || watch(BufReader::new(stdout), &host, &done));
    }
    let mut finishes: Vec<(String, f64)> = Vec::new();
    while finishes.len() < args.hosts.len() {
        let left = args.within.saturating_sub(began.elapsed());
        let Ok((host, is_done)) = ended.recv_timeout(left) else {
            bail!(
                "only {} of {} hosts have the file after {:?}",
                finishes.len(),
                args.hosts.len(),
                args.within
            )
        };
        let is_new = finishes.iter().all(|(known, _)| *known != host);
        if args.hosts.contains(&host) && is_new {
            // A program that ends without the line has succeeded only if the file is there, which is compared below.
            ensure!(
                is_done || has_received(args, &host),
                "{host}: the program ended without the file"
            );
            finishes.push((host, began.elapsed().as_secs_f64()));
        }
    }
    drop(programs);
    report(args, &finishes)
}

fn has_received(args: &Args, host: &str) -> bool {
    let wanted = fs::metadata(&args.file).map_or(0, |file| file.len());
    let name = args.file.file_name().unwrap_or_default();
    fs::metadata(args.dir.join(host).join(name)).is_ok_and(|file| file.len() == wanted)
}

fn start(args: &Args, lab: &Lab, host: &str) -> anyhow::Result<Child> {
    let dir = args.dir.join(host);
    fs::create_dir_all(&dir)?;
    let mut command = lab.command(host, "sh");
    command.args(["-c", "cd \"$0\" && export NODE=\"$1\" && shift && exec \"$@\""]).arg(&dir);
    command.arg(host).args(&args.command).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().with_context(|| format!("cannot run the program in {host}"))
}

/// Reports when the program prints that it is done, and when it ends. It reads on meanwhile, so that the pipe never
/// fills.
fn watch(lines: impl std::io::BufRead, host: &str, done: &SyncSender<(String, bool)>) {
    let mut is_told = false;
    for line in lines.lines().map_while(Result::ok) {
        if line.trim() == DONE && !is_told {
            is_told = true;
            // The receiver may have gone already.
            _ = done.send((host.to_owned(), true));
        }
    }
    _ = done.send((host.to_owned(), false));
}

fn report(args: &Args, finishes: &[(String, f64)]) -> anyhow::Result<()> {
    let length = fs::metadata(&args.file)?.len() as f64;
    let name = args.file.file_name().context("the file's path has no file name")?;
    let mut report = Report::default();
    for (host, seconds) in finishes {
        content::compare_files(&args.file, &args.dir.join(host).join(name))?;
        report.add(format!("finish/{host}"), "s", *seconds);
        report.add(format!("rate/{host}"), "Mbit/s", length * 8e-6 / seconds);
    }
    let seconds: Vec<f64> = finishes.iter().map(|(_, seconds)| *seconds).collect();
    let rates = seconds.iter().map(|seconds| length * 8e-6 / seconds).collect();
    spread(&mut report, "finish", "s", seconds);
    spread(&mut report, "rate", "Mbit/s", rates);
    Ok(report.print()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_done_line_is_reported_before_the_end() {
        let (done, ended) = sync_channel(2);
        watch("begun\ndone\nmore\n".as_bytes(), "a", &done);
        assert_eq!(ended.recv().unwrap(), ("a".to_owned(), true));
        assert_eq!(ended.recv().unwrap(), ("a".to_owned(), false));
        assert!(ended.try_recv().is_err());
    }
}
