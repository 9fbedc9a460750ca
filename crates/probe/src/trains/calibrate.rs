//! Finds out what this host can send and receive truthfully, over its own loopback (decision 0051).

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    os::fd::AsFd as _,
    time::Duration,
};
use thalweg_measure::train::{CALM, Calibration, KEPT, LARGEST, OVERHEAD, rate_of};
use thalweg_net::probe::{Pacer, now, prepare, receive};
use thalweg_units::Rate;

/// Probes per attempt.
const PROBES: usize = 100;

/// The gaps to try, µs, longest first, until one is not kept.
const GAPS: [u64; 9] = [2000, 1000, 500, 200, 100, 50, 25, 16, 12];

/// How often a host that is not calm is calibrated: one moment says little about it. Trains are compared with their
/// plan again when they are sent.
const TRIES: usize = 3;

/// The longest time of a probe over loopback.
const PATIENCE: Duration = Duration::from_millis(100);

/// Calibrates this host; occupies a thread for about half a second, or three times as long if the host is not calm.
///
/// # Errors
/// The kernel's.
pub fn calibrate() -> io::Result<Calibration> {
    let mut found = once()?;
    for _ in 1..TRIES {
        if found.is_valid {
            break;
        }
        found = once()?;
    }
    Ok(found)
}

fn once() -> io::Result<Calibration> {
    let pacer = Pacer::of_this_thread()?;
    let to = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    prepare(to.as_fd(), PROBES * 4096)?;
    to.set_read_timeout(Some(PATIENCE))?;
    let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    from.connect(to.local_addr()?)?;
    let bench = Bench { pacer, from, to };
    let [send_latency, receive_latency] = bench.latencies()?;
    let (mut honest, mut gap_error) = (Rate::ZERO, [Duration::MAX; 2]);
    for gap in GAPS.map(Duration::from_micros) {
        let errors = bench.errors(gap)?;
        let [half, most] = [errors[errors.len() / 2], errors[errors.len() * 99 / 100]];
        if gap_error[0] == Duration::MAX {
            gap_error = [half, most];
        }
        if half.as_secs_f64() > KEPT * gap.as_secs_f64() {
            break;
        }
        honest = rate_of(LARGEST, OVERHEAD, gap);
    }
    let is_valid = gap_error[1] <= CALM && honest > Rate::ZERO;
    Ok(Calibration { send_latency, receive_latency, gap_error, honest, is_valid })
}

struct Bench {
    pacer: Pacer,
    from: UdpSocket,
    to: UdpSocket,
}

impl Bench {
    /// The median times to send and to receive a probe.
    fn latencies(&self) -> io::Result<[Duration; 2]> {
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let mut buffer = [0; 2048];
        for _ in 0..PROBES {
            let began = now();
            self.from.send(&[0; LARGEST as usize])?;
            let left = now();
            receive(self.to.as_fd(), &mut buffer)?;
            sent.push(left.since(began));
            received.push(now().since(left));
        }
        Ok([sent, received].map(|mut all| {
            all.sort_unstable();
            all[PROBES / 2]
        }))
    }

    /// The errors of gaps between arriving probes, sorted.
    fn errors(&self, gap: Duration) -> io::Result<Vec<Duration>> {
        let send = |()| self.from.send(&[0; LARGEST as usize]).map(drop);
        self.pacer.send(&[gap; PROBES], |_, _| (), send);
        let mut buffer = [0; 2048];
        let mut stamps = Vec::new();
        for _ in 0..PROBES {
            let stamped = receive(self.to.as_fd(), &mut buffer)?;
            stamps.extend(stamped.at.map(|at| at.as_unix_nanos()));
        }
        let asked = gap.as_nanos() as u64;
        let off = |pair: &[u64]| pair[1].saturating_sub(pair[0]).abs_diff(asked);
        let mut errors: Vec<_> =
            stamps.windows(2).map(|pair| Duration::from_nanos(off(pair))).collect();
        errors.sort_unstable();
        match errors.len() + 1 {
            PROBES => Ok(errors),
            _ => Err(io::Error::other("the kernel does not timestamp datagrams")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values depend on the machine; this checks that they are consistent.
    #[test]
    fn a_calibration_is_consistent() {
        let found = calibrate().unwrap();
        println!("{found:?}");
        assert!(found.gap_error[0] <= found.gap_error[1]);
        assert!(found.send_latency > Duration::ZERO && found.receive_latency > Duration::ZERO);
        assert!(
            !found.is_valid
                || found.honest >= rate_of(LARGEST, OVERHEAD, Duration::from_micros(GAPS[0]))
        );
    }
}
