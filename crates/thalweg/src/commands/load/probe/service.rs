//! The probe service of a node (docs/probe-service.md), for trains of any shape.

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};
use thalweg_measure::train::{Calibration, Flight, LARGEST, Tally, Train, rate_of};
use thalweg_units::Time;

/// An answer comes so soon: the longest train, its round trip, and a session that is opened anew.
const PATIENCE: Duration = Duration::from_secs(45);

/// Of a host that is not calm tools are told that it keeps gaps of this length: probes grow then, and no train is refused.
const LONGEST_GAP: f64 = 500.0;

/// What sending and receiving one probe take, as tools are told: the service says only which gaps are kept.
const INSTANT: Duration = Duration::from_micros(3);

/// A connection to it, for trains to one member.
pub struct Service {
    lines: BufReader<UnixStream>,
    to: String,
}

/// What can be sent.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Opened {
    rtt_us: u64,
    /// The longest probe that passes, bytes.
    pub largest: u16,
    shortest_gap_us: f64,
}

impl Opened {
    /// The round trip.
    pub fn rtt(&self) -> Duration {
        Duration::from_micros(self.rtt_us)
    }

    /// The host, as tools are told of it.
    pub fn host(&self) -> Calibration {
        let gap = Duration::from_secs_f64(self.shortest_gap_us.clamp(1.0, LONGEST_GAP) * 1e-6);
        Calibration {
            send_latency: INSTANT,
            receive_latency: INSTANT,
            gap_error: [Duration::ZERO; 2],
            honest: rate_of(LARGEST, gap),
            is_valid: true,
        }
    }
}

#[derive(Debug, Deserialize)]
struct Report {
    sent_ns: Vec<Option<u64>>,
    arrived_ns: Vec<Option<u64>>,
    transmitted_us: u64,
    hidden_packets: u64,
    hidden_bytes: u64,
    carriers: u64,
    carried_bytes: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Opened(Opened),
    Report(Report),
    Error(String),
}

impl Service {
    /// At this socket.
    ///
    /// # Errors
    /// When nobody is there.
    pub fn at(socket: &Path, to: &str) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket);
        let stream = stream.with_context(|| format!("cannot open {}", socket.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { lines: BufReader::new(stream), to: to.to_owned() })
    }

    fn ask(&mut self, what: &Value) -> anyhow::Result<Said> {
        self.lines.get_mut().write_all(format!("{what}\n").as_bytes())?;
        let mut line = String::new();
        self.lines.read_line(&mut line).context("the probe service does not answer")?;
        serde_json::from_str(&line).with_context(|| format!("the probe service said `{line}`"))
    }

    /// Opens a session.
    ///
    /// # Errors
    /// The service's.
    pub fn open(&mut self) -> anyhow::Result<Opened> {
        match self.ask(&json!({ "open": { "to": self.to } }))? {
            Said::Opened(opened) => Ok(opened),
            other => bail!("the probe service answered {other:?}"),
        }
    }

    /// Sends a train so much later, although the host may be busy; `Err`: why it did not go.
    ///
    /// # Errors
    /// When the service is gone.
    pub fn send(
        &mut self,
        train: &Train,
        after: Duration,
    ) -> anyhow::Result<Result<Flight, String>> {
        match self.ask(&words(&self.to, train, after))? {
            Said::Report(report) => Ok(Ok(report.flight())),
            Said::Error(why) => Ok(Err(why)),
            other => bail!("the probe service answered {other:?}"),
        }
    }
}

impl Report {
    fn flight(self) -> Flight {
        let times =
            |of: Vec<Option<u64>>| of.into_iter().map(|at| at.map(Time::from_nanos)).collect();
        let tally = Tally {
            queued: Duration::ZERO,
            transmitted: Duration::from_micros(self.transmitted_us),
            hidden_packets: self.hidden_packets,
            hidden_bytes: self.hidden_bytes,
            carriers: self.carriers,
            carried_bytes: self.carried_bytes,
        };
        let (sent, arrived) = (times(self.sent_ns), times(self.arrived_ns));
        Flight { sent, arrived, tally, ..Flight::default() }
    }
}

/// A train in the service's words; gaps are whole microseconds there.
fn words(to: &str, train: &Train, after: Duration) -> Value {
    let micros = |time: Duration| (time.as_nanos() as u64 + 500) / 1000;
    let runs = train.probes().chunk_by(|one, other| one == other);
    let probes = runs.map(|run| {
        let probe = run[0];
        json!({
            "size": probe.size, "gap_us": micros(probe.gap), "may_carry": probe.may_carry,
            "count": run.len(),
        })
    });
    json!({ "send": {
        "to": to, "accept_busy": true, "after_us": micros(after),
        "probes": probes.collect::<Vec<_>>(),
    } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_measure::estimators::{Estimator as _, Pathchirp, PathchirpSettings, Step};

    #[test]
    fn trains_of_any_shape_are_said_as_documented() {
        let mut tool = Pathchirp::new(PathchirpSettings::default());
        let Step::Send { train, .. } = tool.next() else { panic!("no chirp") };
        let said = words("b", &train, Duration::from_millis(20));
        let probes = said["send"]["probes"].as_array().unwrap();
        assert_eq!(probes.len(), train.probes().len());
        assert_eq!((&probes[0]["gap_us"], &probes[1]["gap_us"]), (&json!(0), &json!(822)));
        assert_eq!(said["send"]["after_us"], 20_000);
        let even = Train::uniform(train.probes()[1], 50).unwrap();
        let said = words("b", &even, Duration::ZERO);
        assert_eq!(
            (&said["send"]["probes"][1]["count"], said["send"]["probes"].as_array().unwrap().len()),
            (&json!(49), 2)
        );
    }

    #[test]
    fn a_busy_host_s_shortest_gap_is_bounded() {
        let of = |shortest_gap_us| Opened { rtt_us: 20_000, largest: 1472, shortest_gap_us };
        let gap = |us| of(us).host().shortest_gap().as_micros();
        assert_eq!((gap(100.0), gap(1e15)), (100, 500));
    }
}
