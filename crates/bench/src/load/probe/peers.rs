//! The public tools, as built from their C sources (`scripts/peer-probes`).

use super::{super::carrier::testbed::ChildGuard, median, probe_lab::ProbeLab};
use anyhow::{Context as _, ensure};
use std::{
    fs,
    process::{Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long PathChirp measures; it prints a mean of eleven chirps about every second.
const CHIRPS: Duration = Duration::from_secs(20);

/// The time until a sender listens.
const STARTS: Duration = Duration::from_millis(500);

/// The interval between two checks whether a program has ended.
const LOOK: Duration = Duration::from_millis(50);

/// A public tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicTool {
    Pathload,
    /// PathChirp 2.3.7.
    Pathchirp,
}

/// Makes the sender's host forget closed connections, because the public pathload does not listen again beside one.
///
/// # Errors
/// When the host's kernel does not allow it.
pub fn prepare(lab: &ProbeLab) -> anyhow::Result<()> {
    let forget = ["-c", "echo 0 > /proc/sys/net/ipv4/tcp_max_tw_buckets"];
    let forgets = lab.command("a", "sh").args(forget).status()?;
    ensure!(forgets.success(), "cannot disable TIME_WAIT in a host of the lab");
    Ok(())
}

/// Measures from `a` to `b` within `within`, Mbit/s; NaN if the tool prints no result.
///
/// # Errors
/// When a program is not installed.
pub fn measure(which: PublicTool, lab: &ProbeLab, within: Duration) -> anyhow::Result<f64> {
    let sender = match which {
        PublicTool::Pathload => "pathload_snd",
        PublicTool::Pathchirp => "pathchirp_snd",
    };
    let mut sender = lab.command("a", sender);
    let _sender = ChildGuard::start(sender.stdout(Stdio::null()).stderr(Stdio::null()))?;
    thread::sleep(STARTS);
    match which {
        PublicTool::Pathload => pathload(lab, within),
        PublicTool::Pathchirp => pathchirp(lab, within.min(CHIRPS)),
    }
}

fn pathload(lab: &ProbeLab, within: Duration) -> anyhow::Result<f64> {
    let log = lab.dir().join("pathload.log");
    let mut receiver = lab.command("b", "pathload_rcv");
    receiver.args(["-s", &lab.address("a"), "-o"]).arg(&log);
    let output = run_within(receiver.current_dir(lab.dir()), within)?;
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    Ok(text.and_then(|text| parse_range(&text)).unwrap_or(f64::NAN))
}

/// The middle of the range that Pathload prints, or its lower bound.
fn parse_range(text: &str) -> Option<f64> {
    let line = text.lines().rev().find(|line| line.contains("vailable bandwidth"))?;
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [low, high] => Some(f64::midpoint(low, high)),
        [low] => Some(low),
        _ => None,
    }
}

fn pathchirp(lab: &ProbeLab, lasts: Duration) -> anyhow::Result<f64> {
    let dir = lab.dir().join("chirps");
    _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let mut receiver = lab.command("b", "pathchirp_rcv");
    receiver.args(["-S", &lab.address("a"), "-t", &lasts.as_secs().to_string()]);
    // The estimates that it has written count even if it does not end by itself.
    run_within(receiver.current_dir(&dir), lasts + Duration::from_secs(10))?;
    let file = fs::read_dir(&dir)?
        .flatten()
        .find(|entry| entry.path().extension().is_some_and(|e| e == "instbw"));
    let text = file.map(|file| fs::read_to_string(file.path())).transpose()?.unwrap_or_default();
    Ok(estimates(&text))
}

/// The median of the estimates in the second half of the time, because PathChirp first searches for a range of rates.
fn estimates(text: &str) -> f64 {
    let estimate = |line: &str| line.split_whitespace().nth(1)?.parse::<f64>().ok();
    let all: Vec<f64> = text.lines().filter_map(estimate).collect();
    median(all[all.len() / 2..].to_vec())
}

/// Runs a command to its end, for at most `within`; `None` if it did not end.
fn run_within(
    command: &mut std::process::Command,
    within: Duration,
) -> anyhow::Result<Option<Output>> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let since = Instant::now();
    while since.elapsed() < within {
        if child.try_wait()?.is_some() {
            let output = child.wait_with_output().context("cannot read the tool's output")?;
            ensure!(output.status.code() != Some(127), "cannot run {command:?}");
            return Ok(Some(output));
        }
        thread::sleep(LOOK);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_public_tools_is_parsed() {
        let text = "\n\t*****  RESULT *****\nAvailable bandwidth range : 5.50 - 6.50 (Mbps)\nMeasurement duration : 9 sec\n";
        assert_eq!(parse_range(text), Some(6.0));
        assert_eq!(parse_range("Available bandwidth is greater than 94.20 (Mbps)"), Some(94.2));
        assert_eq!(parse_range("nothing"), None);
        assert!((estimates("1.0 90.0\n2.0 70.0\n3.0 5.0\n4.0 7.0\n5.0 6.0\n") - 6.0).abs() < 1e-9);
        assert!(estimates("").is_nan());
    }
}
