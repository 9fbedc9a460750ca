//! The probe service of a node (docs/probe-service.md), as this program uses it; [`ByNode`]: for tools.

mod by_node;

pub use by_node::ByNode;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};
use thalweg_measure::train::{Calibration, Flight, Probe, Stamp, Tally, Train};
use thalweg_units::{Rate, Time};

/// An answer comes so soon: the longest train, its round trip, and a session that is opened anew.
const PATIENCE: Duration = Duration::from_secs(45);

/// A connection to it, for trains to one member.
pub struct Service {
    lines: BufReader<UnixStream>,
    to: String,
}

/// What the service says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Opened(Opened),
    Report(Box<Told>),
    Receiving {},
    Probe(Arrival),
    Missed(u64),
    Error(String),
}

/// What can be sent.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Opened {
    rtt_us: u64,
    /// The longest probe that passes, bytes.
    pub largest: u16,
    /// What IP and UDP add to each probe, bytes.
    pub overhead: u32,
    hosts: [Found; 2],
}

/// What calibration found of a host.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Found {
    send_ns: u64,
    receive_ns: u64,
    gap_error_ns: [u64; 2],
    honest_bps: u64,
    is_valid: bool,
}

impl From<Found> for Calibration {
    fn from(found: Found) -> Self {
        Self {
            send_latency: Duration::from_nanos(found.send_ns),
            receive_latency: Duration::from_nanos(found.receive_ns),
            gap_error: found.gap_error_ns.map(Duration::from_nanos),
            honest: Rate::from_bps(found.honest_bps),
            is_valid: found.is_valid,
        }
    }
}

impl Opened {
    /// The round trip.
    pub fn rtt(&self) -> Duration {
        Duration::from_micros(self.rtt_us)
    }

    /// What calibration found of this host, and of the member's.
    pub fn hosts(&self) -> [Calibration; 2] {
        self.hosts.map(Calibration::from)
    }
}

/// A train's report.
#[derive(Clone, Debug, Deserialize)]
pub struct Told {
    sent_ns: Vec<Option<u64>>,
    arrived_ns: Vec<Option<u64>>,
    transmitted_us: u64,
    hidden_packets: u64,
    hidden_bytes: u64,
    carriers: u64,
    carried_bytes: u64,
    /// Riders' bytes in each probe.
    pub carried: Vec<u32>,
    dropped: u64,
    /// Whether nothing speaks against its timing.
    pub is_valid: bool,
}

/// A probe that came to the other node.
#[derive(Clone, Debug, Deserialize)]
pub struct Arrival {
    /// Its place in its train.
    pub place: u16,
    /// The tool's bytes, in hexadecimal digits.
    pub header: String,
    /// ns since 1970.
    pub arrived_ns: u64,
}

impl Told {
    /// Which probes left.
    pub fn left(&self) -> impl Iterator<Item = bool> {
        self.sent_ns.iter().map(Option::is_some)
    }

    /// When each arrived, ns since 1970.
    pub fn arrived(&self) -> &[Option<u64>] {
        &self.arrived_ns
    }

    /// As tools see it.
    pub fn flight(&self) -> Flight {
        let tally = Tally {
            transmitted: Duration::from_micros(self.transmitted_us),
            hidden_packets: self.hidden_packets,
            hidden_bytes: self.hidden_bytes,
            carriers: self.carriers,
            carried_bytes: self.carried_bytes,
        };
        let sent = self.sent_ns.iter().map(|at| at.map(Time::from_nanos)).collect();
        let arrived = self.arrived_ns.iter().map(|at| at.map(Stamp::from_unix_nanos)).collect();
        Flight { sent, arrived, tally, dropped: self.dropped, ..Flight::default() }
    }
}

/// How a train is to go.
pub struct Order<'a> {
    /// It.
    pub train: &'a Train,
    /// It goes so much later.
    pub after: Duration,
    /// The tool's bytes of each probe.
    pub header: &'a [u8],
    /// Whether its report waits for arrivals.
    pub awaits: bool,
    /// Whether it goes although a host is too busy to time probes.
    pub accepts_busy: bool,
}

impl Service {
    /// At this socket, for trains to that member.
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
        self.hear()
    }

    fn hear(&mut self) -> anyhow::Result<Said> {
        let mut line = String::new();
        self.lines.read_line(&mut line).context("the probe service does not answer")?;
        serde_json::from_str(&line).with_context(|| format!("the probe service said `{line}`"))
    }

    /// Opens a session to the member.
    ///
    /// # Errors
    /// The service's.
    pub fn open(&mut self) -> anyhow::Result<Opened> {
        match self.ask(&json!({ "open": { "to": self.to } }))? {
            Said::Opened(opened) => Ok(opened),
            other => bail!("the probe service answered {other:?}"),
        }
    }

    /// Sends a train; what came of it, or why nothing did.
    ///
    /// # Errors
    /// When the service is gone.
    pub fn send(&mut self, order: &Order<'_>) -> anyhow::Result<Result<Told, String>> {
        match self.ask(&words(&self.to, order))? {
            Said::Report(told) => Ok(Ok(*told)),
            Said::Error(why) => Ok(Err(why)),
            other => bail!("the probe service answered {other:?}"),
        }
    }

    /// From now on it only tells probes that come whose headers begin so.
    ///
    /// # Errors
    /// The service's.
    pub fn receive(&mut self, prefix: &[u8]) -> anyhow::Result<()> {
        match self.ask(&json!({ "receive": { "prefix": hex(prefix) } }))? {
            // However long none comes.
            Said::Receiving {} => Ok(self.lines.get_ref().set_read_timeout(None)?),
            other => bail!("the probe service answered {other:?}"),
        }
    }

    /// The next one; `None`: the connection was closed.
    ///
    /// # Errors
    /// When the service lost some, as this end was too slow.
    pub fn heard(&mut self) -> anyhow::Result<Option<Arrival>> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match serde_json::from_str(&line)? {
            Said::Probe(arrival) => Ok(Some(arrival)),
            Said::Missed(count) => bail!("{count} probes came too fast to be counted"),
            other => bail!("the probe service said {other:?}"),
        }
    }

    /// When shut down, [`Self::heard`] ends.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ender(&self) -> std::io::Result<UnixStream> {
        self.lines.get_ref().try_clone()
    }
}

/// A train in the service's words: runs of equal probes; gaps are whole microseconds there.
fn words(to: &str, order: &Order<'_>) -> Value {
    let header = hex(order.header);
    let run = |run: &[Probe]| {
        json!({
            "size": run[0].size, "gap_us": micros(run[0].gap), "may_carry": run[0].may_carry,
            "count": run.len(), "header": header,
        })
    };
    let runs = order.train.probes().chunk_by(|one, other| one == other);
    json!({ "send": {
        "to": to, "accept_busy": order.accepts_busy, "after_us": micros(order.after),
        "await_arrivals": order.awaits, "probes": runs.map(run).collect::<Vec<_>>(),
    } })
}

/// The nearest whole number of microseconds.
fn micros(time: Duration) -> u64 {
    (time.as_nanos() as u64 + 500) / 1000
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_measure::estimators::{Estimator as _, PK2, Pathchirp, PathchirpSettings, Step};

    fn said(train: &Train, header: &[u8]) -> Value {
        let after = Duration::from_millis(20);
        let order = Order { train, after, header, awaits: false, accepts_busy: true };
        words("m5", &order)["send"].clone()
    }

    #[test]
    fn a_fixed_train_is_said_as_documented() {
        let said = said(&PK2.train().unwrap(), &[1, 0xab]);
        // The first probe of a train has no gap before it.
        let probes = said["probes"].as_array().unwrap();
        let count: u64 = probes.iter().map(|run| run["count"].as_u64().unwrap()).sum();
        assert_eq!((count, &said["after_us"], &said["to"]), (20, &20_000.into(), &"m5".into()));
        let last = probes.last().unwrap();
        assert_eq!((&last["size"], &last["gap_us"]), (&472.into(), &1000.into()));
        assert_eq!((&last["may_carry"], &last["header"]), (&true.into(), &"01ab".into()));
    }

    #[test]
    fn trains_of_any_shape_are_said_as_documented() {
        let mut tool = Pathchirp::new(PathchirpSettings::default());
        let Step::Send { train, .. } = tool.next() else { panic!("no chirp") };
        let chirp = said(&train, &[]);
        let probes = chirp["probes"].as_array().unwrap();
        assert_eq!(probes.len(), train.probes().len());
        assert_eq!((&probes[0]["gap_us"], &probes[1]["gap_us"]), (&json!(0), &json!(822)));
        let even = said(&Train::uniform(train.probes()[1], 50).unwrap(), &[]);
        let probes = even["probes"].as_array().unwrap();
        assert_eq!((&probes[1]["count"], probes.len()), (&json!(49), 2));
    }

    #[test]
    fn tools_are_told_what_calibration_found() {
        let host = r#"{"send_ns":3000,"receive_ns":2000,"gap_error_ns":[5,7],"honest_bps":20,"is_valid":true}"#;
        let line = format!(
            r#"{{"opened":{{"rtt_us":41000,"largest":1472,"overhead":28,"shortest_gap_us":1.0,"is_valid":true,"hosts":[{host},{host}]}}}}"#
        );
        let Ok(Said::Opened(opened)) = serde_json::from_str(&line) else { panic!("{line}") };
        assert_eq!((opened.rtt(), opened.largest), (Duration::from_millis(41), 1472));
        let [here, there] = opened.hosts();
        assert_eq!(
            (here.send_latency, here.honest),
            (Duration::from_micros(3), Rate::from_bps(20))
        );
        assert_eq!(there.receive_latency, Duration::from_micros(2));
    }

    #[test]
    fn a_report_is_read_as_documented() {
        let line = r#"{"report":{"sent_ns":[5,null],"arrived_ns":[7,null],"transmitted_us":5,"hidden_packets":0,
            "hidden_bytes":3,"carriers":1,"carried_bytes":9,"carried":[9,0],"bytes":3000,"dropped":2,"is_valid":true,"doubts":[]}}"#;
        let Ok(Said::Report(told)) = serde_json::from_str(line) else { panic!("{line}") };
        let flight = told.flight();
        assert_eq!((flight.left(), flight.passed().count(), flight.dropped), (1, 1, 2));
        assert_eq!((flight.tally.hidden_bytes, told.carried), (3, vec![9, 0]));
        assert!(matches!(serde_json::from_str(r#"{"error":"no"}"#), Ok(Said::Error(_))));
        assert!(matches!(serde_json::from_str(r#"{"receiving":{}}"#), Ok(Said::Receiving {})));
    }
}
