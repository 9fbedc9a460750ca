//! A client of the node's probe service (docs/probe-service.md); [`NodeSession`] runs measuring tools over it.

mod node_session;

pub use node_session::NodeSession;

use crate::trains::messages::{
    Arrival, OpenRequest, Opened, Probes, ReceiveRequest, Reply, Report, Request, SendRequest,
};
use anyhow::{Context as _, bail};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    num::NonZeroU16,
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};
use thalweg_measure::train::{Probe, Train};
use thalweg_wire::mesh::Name;

/// How soon an answer comes: the longest train, its round trip, and the opening of a new session.
const PATIENCE: Duration = Duration::from_secs(45);

/// A connection to the probe service, for trains to one member.
pub struct ProbeServiceClient {
    lines: BufReader<UnixStream>,
    to: Name,
}

/// A train to send.
pub struct TrainOrder<'a> {
    pub train: &'a Train,
    /// How much later to send it.
    pub after: Duration,
    /// The tool's bytes in each probe.
    pub header: &'a [u8],
    /// Whether the report waits for arrivals.
    pub awaits: bool,
    /// Whether to send it although a host is too busy to time probes.
    pub accepts_busy: bool,
}

impl ProbeServiceClient {
    /// Connects to the socket, for trains to this member.
    ///
    /// # Errors
    /// Nobody listens at the socket, or `to` is no valid name.
    pub fn at(socket: &Path, to: &str) -> anyhow::Result<Self> {
        let to = to.parse()?;
        let stream = UnixStream::connect(socket);
        let stream = stream.with_context(|| {
            format!("cannot connect to the probe service at {}", socket.display())
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { lines: BufReader::new(stream), to })
    }

    fn request(&mut self, what: &Request) -> anyhow::Result<Reply> {
        let line = serde_json::to_string(what)? + "\n";
        self.lines.get_mut().write_all(line.as_bytes())?;
        self.read_reply()
    }

    fn read_reply(&mut self) -> anyhow::Result<Reply> {
        let mut line = String::new();
        self.lines.read_line(&mut line).context("the probe service does not answer")?;
        serde_json::from_str(&line)
            .with_context(|| format!("the probe service sent an invalid answer: `{line}`"))
    }

    /// Opens a session to the member.
    ///
    /// # Errors
    /// The service's.
    pub fn open(&mut self) -> anyhow::Result<Opened> {
        match self.request(&Request::Open(OpenRequest { to: self.to.clone() }))? {
            Reply::Opened(opened) => Ok(opened),
            other => bail!("the probe service answered {other:?}"),
        }
    }

    /// Sends a train. Returns its report, or why the service refused it.
    ///
    /// # Errors
    /// The service is gone.
    pub fn send(&mut self, order: &TrainOrder<'_>) -> anyhow::Result<Result<Report, String>> {
        match self.request(&Request::Send(send_request(&self.to, order)))? {
            Reply::Report(report) => Ok(Ok(*report)),
            Reply::Error(why) => Ok(Err(why)),
            other => bail!("the probe service answered {other:?}"),
        }
    }

    /// Subscribes to received probes whose headers begin with `prefix`. Nothing else can be requested afterwards.
    ///
    /// # Errors
    /// The service's.
    pub fn receive(&mut self, prefix: &[u8]) -> anyhow::Result<()> {
        match self.request(&Request::Receive(ReceiveRequest { from: None, prefix: hex(prefix) }))? {
            // Probes may come at any time.
            Reply::Receiving {} => Ok(self.lines.get_ref().set_read_timeout(None)?),
            other => bail!("the probe service answered {other:?}"),
        }
    }

    /// The next probe; `None` if the connection was closed.
    ///
    /// # Errors
    /// The service dropped probes, because this end read too slowly.
    pub fn next_probe(&mut self) -> anyhow::Result<Option<Arrival>> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match serde_json::from_str(&line)? {
            Reply::Probe(arrival) => Ok(Some(arrival)),
            Reply::Missed(count) => {
                bail!("{count} probes were lost because they arrived faster than they were read")
            }
            other => bail!("the probe service sent {other:?} instead of a probe"),
        }
    }

    /// A handle of the connection: once it is shut down, [`Self::next_probe`] ends.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ender(&self) -> std::io::Result<UnixStream> {
        self.lines.get_ref().try_clone()
    }
}

/// The train as a request: runs of equal probes, with gaps in whole microseconds.
fn send_request(to: &Name, order: &TrainOrder<'_>) -> SendRequest {
    let header = hex(order.header);
    let run = |run: &[Probe]| Probes {
        size: run[0].size,
        gap_us: micros(run[0].gap),
        header: header.clone(),
        may_carry: run[0].may_carry,
        count: u16::try_from(run.len()).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MAX),
    };
    let runs = order.train.probes().chunk_by(|one, other| one == other);
    SendRequest {
        to: to.clone(),
        probes: runs.map(run).collect(),
        accept_busy: order.accepts_busy,
        after_us: u32::try_from(micros(order.after)).unwrap_or(u32::MAX),
        await_arrivals: order.awaits,
    }
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
    use thalweg_units::Rate;

    fn said(train: &Train, header: &[u8]) -> SendRequest {
        let after = Duration::from_millis(20);
        let order = TrainOrder { train, after, header, awaits: false, accepts_busy: true };
        send_request(&"m5".parse().unwrap(), &order)
    }

    #[test]
    fn a_fixed_train_is_written_as_documented() {
        let said = said(&PK2.train().unwrap(), &[1, 0xab]);
        // The first probe of a train has no gap before it.
        let count: u16 = said.probes.iter().map(|run| run.count.get()).sum();
        assert_eq!((count, said.after_us, said.to.as_str()), (20, 20_000, "m5"));
        let last = said.probes.last().unwrap();
        assert_eq!((last.size, last.gap_us), (472, 1000));
        assert_eq!((last.may_carry, last.header.as_str()), (true, "01ab"));
        let (train, headers) = said.train().unwrap();
        let header = &headers[19];
        assert_eq!((train.probes().len(), header.as_slice()), (20, [1, 0xab].as_slice()));
    }

    #[test]
    fn trains_of_any_shape_are_written_as_documented() {
        let mut tool = Pathchirp::new(PathchirpSettings::default());
        let Step::Send { train, .. } = tool.next() else { panic!("no chirp") };
        let chirp = said(&train, &[]);
        assert_eq!(chirp.probes.len(), train.probes().len());
        assert_eq!((chirp.probes[0].gap_us, chirp.probes[1].gap_us), (0, 822));
        let even = said(&Train::uniform(train.probes()[1], 50).unwrap(), &[]).probes;
        assert_eq!((even[1].count.get(), even.len()), (49, 2));
    }

    #[test]
    fn tools_get_the_calibrations() {
        let host = r#"{"send_ns":3000,"receive_ns":2000,"gap_error_ns":[5,7],"honest_bps":20,"is_valid":true}"#;
        let line = format!(
            r#"{{"opened":{{"rtt_us":41000,"largest":1472,"overhead":28,"shortest_gap_us":1.0,"is_valid":true,"hosts":[{host},{host}]}}}}"#
        );
        let Ok(Reply::Opened(opened)) = serde_json::from_str(&line) else { panic!("{line}") };
        assert_eq!((opened.rtt(), opened.largest), (Duration::from_millis(41), 1472));
        let [here, there] = opened.calibrations();
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
        let Ok(Reply::Report(told)) = serde_json::from_str(line) else { panic!("{line}") };
        let flight = told.flight();
        assert_eq!(
            (flight.sent_count(), flight.arrived_probes().count(), flight.dropped),
            (1, 1, 2)
        );
        assert_eq!((flight.tally.hidden_bytes, told.carried), (3, vec![9, 0]));
        assert!(matches!(serde_json::from_str(r#"{"error":"no"}"#), Ok(Reply::Error(_))));
        assert!(matches!(serde_json::from_str(r#"{"receiving":{}}"#), Ok(Reply::Receiving {})));
    }
}
