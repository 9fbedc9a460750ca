//! Measures how accurately this host keeps gaps, idle and busy, and compares with its calibration.

use super::{super::report::Report, median};
use anyhow::{Context as _, ensure};
use std::{
    net::{Ipv4Addr, UdpSocket},
    num::NonZeroU32,
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use thalweg_measure::train::KEPT;
use thalweg_net::probe::{Pacer, prepare, receive};
use thalweg_probe::trains::calibrate;

/// The requested gaps, µs, from the issue.
const GAPS: [u64; 3] = [100, 200, 1000];

/// The number of probes of a train.
const PROBES: usize = 100;

/// The size of a probe, bytes.
const SIZE: usize = 1000;

/// The longest time of a probe over loopback, even on a busy host.
const PATIENCE: Duration = Duration::from_secs(2);

/// Arguments of `thalweg-bench load probe pacing`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of busy threads that only count during the measurement
    #[arg(long, default_value_t = 0)]
    busy: u8,
    /// Number of trains for each gap
    #[arg(long, default_value = "20")]
    trains: NonZeroU32,
}

/// Runs the measurement and prints the report.
///
/// # Errors
/// When a system call fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let is_over = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        for _ in 0..args.busy {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let report = measure(args);
        is_over.store(true, Ordering::Relaxed);
        report
    })?;
    report.print().context("cannot print the report")
}

fn measure(args: &Args) -> anyhow::Result<Report> {
    let calibration = calibrate()?;
    let mut report = Report::default();
    report.add("calm", "of 1", f64::from(calibration.is_valid));
    report.add("said_p50", "us", micros(calibration.gap_error[0]));
    report.add("said_p99", "us", micros(calibration.gap_error[1]));
    let least = calibration.shortest_gap();
    report.add("shortest", "us", if calibration.is_valid { micros(least) } else { f64::NAN });
    let (mut promised, mut broken) = (0.0, 0.0);
    for gap in GAPS {
        let asked = Duration::from_micros(gap);
        let [sent, arrived] = send_trains(asked, args.trains.get())?;
        let is_kept = add(&mut report, &format!("sent_{gap}us"), &sent, asked);
        add(&mut report, &format!("arrived_{gap}us"), &arrived, asked);
        if calibration.is_valid && least <= asked {
            promised += 1.0;
            broken += f64::from(!is_kept);
        }
    }
    report.add("promised", "gaps", promised);
    report.add("broken", "gaps", broken);
    Ok(report)
}

/// Reports how far gaps differ from the requested one; returns whether the median difference counts as kept.
fn add(report: &mut Report, name: &str, gaps: &[f64], asked: Duration) -> bool {
    let asked = micros(asked);
    let mut off: Vec<f64> = gaps.iter().map(|gap| (gap - asked).abs()).collect();
    off.sort_by(f64::total_cmp);
    let half = median(off.clone());
    report.add(format!("{name}_off_p50"), "us", half);
    report.add(format!("{name}_off_p99"), "us", off[off.len() * 99 / 100]);
    let kept = off.iter().filter(|off| **off < KEPT * asked).count();
    report.add(format!("{name}_kept"), "%", 100.0 * kept as f64 / off.len() as f64);
    half < KEPT * asked
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// Sends trains over loopback and returns their gaps in µs: at departure, and at arrival by the kernel's timestamps.
fn send_trains(gap: Duration, trains: u32) -> anyhow::Result<[Vec<f64>; 2]> {
    let pacer = Pacer::of_this_thread()?;
    let to = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    prepare(to.as_fd(), PROBES * 4096)?;
    to.set_read_timeout(Some(PATIENCE))?;
    let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    from.connect(to.local_addr()?)?;
    let (mut sent, mut arrived) = (Vec::new(), Vec::new());
    for _ in 0..trains {
        let left = pacer.send(&[gap; PROBES], |_, _| (), |()| from.send(&[0; SIZE]).map(drop));
        let left: Vec<u64> = left.into_iter().flatten().map(|at| at.as_nanos()).collect();
        let mut buffer = [0; 2048];
        let mut came = Vec::new();
        for _ in 0..left.len() {
            came.extend(receive(to.as_fd(), &mut buffer)?.at.map(|at| at.as_unix_nanos()));
        }
        ensure!(
            came.len() == PROBES,
            "probes were lost on loopback, or the kernel does not timestamp them"
        );
        sent.extend(gaps(&left));
        arrived.extend(gaps(&came));
    }
    Ok([sent, arrived])
}

fn gaps(times: &[u64]) -> impl Iterator<Item = f64> {
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_judged_by_the_bound_of_the_calibration() {
        let mut report = Report::default();
        let asked = Duration::from_micros(100);
        assert!(add(&mut report, "x", &[100.0, 105.0, 130.0], asked));
        assert!(!add(&mut report, "y", &[100.0, 115.0, 130.0], asked));
        let value = |name| report.value(name).and_then(serde_json::Value::as_f64).unwrap();
        assert!(
            (value("x_off_p50") - 5.0).abs() < 1e-9 && (value("x_kept") - 200.0 / 3.0).abs() < 1e-9
        );
        assert_eq!(gaps(&[1000, 3000, 3500]).collect::<Vec<_>>(), [2.0, 0.5]);
    }
}
