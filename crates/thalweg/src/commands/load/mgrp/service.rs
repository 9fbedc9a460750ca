//! The probe service of a node (docs/probe-service.md), as this program uses it.

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::json;
use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};
use thalweg_measure::train::{Flight, Tally, Train};
use thalweg_units::Time;

/// An answer comes so soon: the longest train, its round trip, and a session that is opened anew.
const PATIENCE: Duration = Duration::from_secs(45);

/// A connection to it.
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
#[derive(Clone, Debug, Deserialize)]
pub struct Opened {
    /// µs.
    pub rtt_us: u64,
    /// Bytes.
    pub largest: u16,
    /// µs; the host keeps shorter ones badly.
    pub shortest_gap_us: f64,
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
        let times = |of: &[Option<u64>]| of.iter().map(|at| at.map(Time::from_nanos)).collect();
        let tally = Tally {
            queued: Duration::ZERO,
            transmitted: Duration::from_micros(self.transmitted_us),
            hidden_packets: self.hidden_packets,
            hidden_bytes: self.hidden_bytes,
            carriers: self.carriers,
            carried_bytes: self.carried_bytes,
        };
        let (sent, arrived) = (times(&self.sent_ns), times(&self.arrived_ns));
        Flight { sent, arrived, tally, ..Flight::default() }
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

    fn ask(&mut self, what: &serde_json::Value) -> anyhow::Result<Said> {
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

    /// Sends a train of equal probes, although the host may be busy; what came of it, or why nothing did.
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

/// A train of equal probes in the service's words.
fn words(to: &str, order: &Order<'_>) -> serde_json::Value {
    let probes = order.train.probes();
    let last = probes
        .last()
        .map_or((0, Duration::ZERO, false), |probe| (probe.size, probe.gap, probe.may_carry));
    let equal = json!({
        "size": last.0, "gap_us": last.1.as_micros() as u64, "may_carry": last.2,
        "count": probes.len(), "header": hex(order.header),
    });
    json!({ "send": {
        "to": to, "accept_busy": true, "after_us": order.after.as_micros() as u64,
        "await_arrivals": order.awaits, "probes": [equal],
    } })
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_measure::estimators::PK2;

    #[test]
    fn a_train_is_said_as_documented() {
        let train = PK2.train().unwrap();
        let after = Duration::from_millis(20);
        let order = Order { train: &train, after, header: &[1, 0xab], awaits: false };
        let equal = json!({ "size": 472, "gap_us": 1000, "may_carry": true, "count": 20, "header": "01ab" });
        let said = words("m5", &order);
        assert_eq!(
            (&said["send"]["probes"][0], &said["send"]["after_us"]),
            (&equal, &20_000.into())
        );
    }

    #[test]
    fn a_report_is_read_as_documented() {
        let line = r#"{"report":{"sent_ns":[5,null],"arrived_ns":[7,null],"transmitted_us":5,"hidden_packets":0,
            "hidden_bytes":3,"carriers":1,"carried_bytes":9,"carried":[9,0],"bytes":3000,"is_valid":true,"doubts":[]}}"#;
        let Ok(Said::Report(told)) = serde_json::from_str(line) else { panic!("{line}") };
        let flight = told.flight();
        assert_eq!((flight.left(), flight.passed().count()), (1, 1));
        assert_eq!((flight.tally.hidden_bytes, told.carried), (3, vec![9, 0]));
        assert!(matches!(serde_json::from_str(r#"{"error":"no"}"#), Ok(Said::Error(_))));
        assert!(matches!(serde_json::from_str(r#"{"receiving":{}}"#), Ok(Said::Receiving {})));
    }
}
