//! The messages between a program and the service: one JSON object per line (docs/probe-service.md). Both ends use
//! these types.

use super::super::ReceivedProbe;
use data_encoding::HEXLOWER_PERMISSIVE;
use serde::{Deserialize, Serialize};
use std::{num::NonZeroU16, time::Duration};
use thalweg_measure::train::{Calibration, Doubt, Flight, Probe, Stamp, Tally, Train, TrainError};
use thalweg_units::{Rate, Time};
use thalweg_wire::{mesh::Name, probe::MAX_HEADER};
use thiserror::Error;

/// A program's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Asks what can be sent to a member.
    Open(OpenRequest),
    Send(SendRequest),
    /// Subscribes to probes that arrive from now on, while the connection lasts.
    Receive(ReceiveRequest),
}

/// See [`Request::Open`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenRequest {
    pub to: Name,
}

/// See [`Request::Send`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    pub to: Name,
    /// The train's probes, in order.
    pub probes: Vec<Probes>,
    /// Whether to send it although a host is too busy to time it.
    #[serde(default)]
    pub accept_busy: bool,
    /// How much later to send it, µs: packets of the last milliseconds before wait to ride in it.
    #[serde(default)]
    pub after_us: u32,
    /// Whether the report waits for the arrivals that the member reports.
    #[serde(default = "yes")]
    pub await_arrivals: bool,
}

/// A number of equal probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// The size of each datagram, bytes.
    pub size: u16,
    /// The gap after the previous probe, µs; ignored for the first probe of a train.
    #[serde(default)]
    pub gap_us: u64,
    /// The program's own bytes in each probe, hexadecimal.
    #[serde(default)]
    pub header: String,
    /// Whether the padding may carry riders.
    #[serde(default)]
    pub may_carry: bool,
    /// The number of probes.
    #[serde(default = "one")]
    pub count: NonZeroU16,
}

const fn yes() -> bool {
    true
}

const fn one() -> NonZeroU16 {
    NonZeroU16::MIN
}

/// See [`Request::Receive`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveRequest {
    /// Only probes from this member.
    pub from: Option<Name>,
    /// Only probes whose headers begin with these bytes, hexadecimal.
    #[serde(default)]
    pub prefix: String,
}

/// An answer of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The answer to [`Request::Open`].
    Opened(Opened),
    /// The answer to [`Request::Send`].
    Report(Box<Report>),
    /// The answer to [`Request::Receive`], once; probes follow.
    Receiving {},
    /// A received probe.
    Probe(Arrival),
    /// The number of probes that were dropped because this program reads too slowly.
    Missed(u64),
    Error(String),
}

/// What can be sent to a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// An upper bound of the round trip, µs.
    pub rtt_us: u64,
    /// The longest probe that passes, bytes.
    pub largest: u16,
    /// IP and UDP header bytes per probe.
    pub overhead: u32,
    /// The shortest gap that this host keeps, µs; 0 is always possible.
    pub shortest_gap_us: f64,
    /// Whether this host and the member's were calm at their calibration.
    pub is_valid: bool,
    /// The calibrations of this host and the member's.
    pub hosts: [HostCalibration; 2],
}

/// The calibration of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCalibration {
    /// How long sending a probe takes.
    pub send_ns: u64,
    /// How long receiving a probe takes.
    pub receive_ns: u64,
    /// The errors of gaps: half of all gaps were off by less than the first, 99 of 100 by less than the second.
    pub gap_error_ns: [u64; 2],
    /// The highest rate of the longest probes.
    pub honest_bps: u64,
    /// Whether the host was calm.
    pub is_valid: bool,
}

impl From<&Calibration> for HostCalibration {
    fn from(of: &Calibration) -> Self {
        let nanos = |time: Duration| time.as_nanos() as u64;
        Self {
            send_ns: nanos(of.send_latency),
            receive_ns: nanos(of.receive_latency),
            gap_error_ns: of.gap_error.map(nanos),
            honest_bps: of.honest.as_bps(),
            is_valid: of.is_valid,
        }
    }
}

impl From<HostCalibration> for Calibration {
    fn from(found: HostCalibration) -> Self {
        Self {
            send_latency: Duration::from_nanos(found.send_ns),
            receive_latency: Duration::from_nanos(found.receive_ns),
            gap_error: found.gap_error_ns.map(Duration::from_nanos),
            honest: Rate::from_bps(found.honest_bps),
            is_valid: found.is_valid,
        }
    }
}

/// The report of a train (§2.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When each probe was sent, by a clock of this host.
    pub sent_ns: Vec<Option<u64>>,
    /// When each probe arrived, by the member's wall clock.
    pub arrived_ns: Vec<Option<u64>>,
    /// (a) How long sending took.
    pub transmitted_us: u64,
    /// (b) Riders' packets that would have competed with the train.
    pub hidden_packets: u64,
    /// (b) The bytes of those packets.
    pub hidden_bytes: u64,
    /// (c) Probes that carried riders.
    pub carriers: u64,
    /// (c) Riders' bytes in them.
    pub carried_bytes: u64,
    /// Riders' bytes in each probe, repeats included.
    pub carried: Vec<u32>,
    /// The train's bytes, IP and UDP headers included.
    pub bytes: u64,
    /// Datagrams, of any session, that the member's host dropped since the last report.
    pub dropped: u64,
    /// Whether there is no doubt about the report.
    pub is_valid: bool,
    pub doubts: Vec<String>,
}

/// A received probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The member that sent it.
    pub from: Name,
    /// The number of its train.
    pub train: u32,
    /// Its index in the train.
    pub place: u16,
    /// The size of its datagram, bytes.
    pub size: u16,
    /// The sending program's bytes, hexadecimal.
    pub header: String,
    /// When it was sent, by the sender's clock.
    pub sent_ns: u64,
    /// When it arrived, by this host's wall clock.
    pub arrived_ns: u64,
}

/// Why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidRequest {
    /// A header is no hexadecimal number.
    #[error("`{0}` is not an even number of hexadecimal digits")]
    Hex(String),
    /// A header is longer than members accept.
    #[error(
        "the header has {0} bytes, but at most {MAX_HEADER} are allowed; to send longer probes, set a larger `size`"
    )]
    Header(usize),
    /// The probes are no valid train.
    #[error(transparent)]
    Train(#[from] TrainError),
}

fn bytes(hex: &str) -> Result<Vec<u8>, InvalidRequest> {
    let decoded = HEXLOWER_PERMISSIVE.decode(hex.as_bytes());
    decoded.map_err(|_| InvalidRequest::Hex(hex.chars().take(40).collect()))
}

impl SendRequest {
    /// The train, and the headers of its probes.
    ///
    /// # Errors
    /// [`InvalidRequest`].
    pub fn train(&self) -> Result<(Train, Vec<Vec<u8>>), InvalidRequest> {
        let (mut probes, mut headers) = (Vec::new(), Vec::new());
        for of in &self.probes {
            let own = bytes(&of.header)?;
            if own.len() > MAX_HEADER {
                return Err(InvalidRequest::Header(own.len()));
            }
            let header = u16::try_from(own.len()).unwrap_or(u16::MAX);
            let gap = Duration::from_micros(of.gap_us);
            let probe = Probe { size: of.size, header, gap, may_carry: of.may_carry };
            for _ in 0..of.count.get() {
                probes.push(probe);
                headers.push(own.clone());
            }
            // A request for far too many probes does not get the memory for them.
            if probes.len() > thalweg_measure::train::MAX_PROBES {
                return Err(TrainError::Long(probes.len()).into());
            }
        }
        if let Some(first) = probes.first_mut() {
            first.gap = Duration::ZERO;
        }
        Ok((Train::new(probes)?, headers))
    }
}

/// Selects the received probes that a program wants.
#[derive(Clone, Debug)]
pub struct ProbeFilter {
    from: Option<Name>,
    prefix: Vec<u8>,
}

impl ReceiveRequest {
    /// The selection.
    ///
    /// # Errors
    /// [`InvalidRequest::Hex`].
    pub fn wanted(self) -> Result<ProbeFilter, InvalidRequest> {
        Ok(ProbeFilter { prefix: bytes(&self.prefix)?, from: self.from })
    }
}

impl ProbeFilter {
    /// Whether this probe is selected.
    pub fn has(&self, came: &ReceivedProbe) -> bool {
        let is_from = self.from.as_ref().is_none_or(|from| *from == came.from);
        is_from && came.header.starts_with(&self.prefix)
    }
}

impl From<&ReceivedProbe> for Arrival {
    fn from(came: &ReceivedProbe) -> Self {
        Self {
            from: came.from.clone(),
            train: came.head.train,
            place: came.head.place,
            size: came.size,
            header: HEXLOWER_PERMISSIVE.encode(&came.header),
            sent_ns: came.head.sent,
            arrived_ns: came.at,
        }
    }
}

impl Report {
    /// Creates the report of this flight.
    pub fn of(train: &Train, flight: &Flight, carried: Vec<u32>, doubts: &[Doubt]) -> Self {
        let tally = flight.tally;
        Self {
            sent_ns: flight.sent.iter().map(|at| at.map(Time::as_nanos)).collect(),
            arrived_ns: flight.arrived.iter().map(|at| at.map(Stamp::as_unix_nanos)).collect(),
            transmitted_us: tally.transmitted.as_micros() as u64,
            hidden_packets: tally.hidden_packets,
            hidden_bytes: tally.hidden_bytes,
            carriers: tally.carriers,
            carried_bytes: tally.carried_bytes,
            carried,
            bytes: train.bytes(),
            dropped: flight.dropped,
            is_valid: doubts.is_empty(),
            doubts: doubts.iter().map(ToString::to_string).collect(),
        }
    }

    /// The flight as tools see it, without the doubts, which are only texts here.
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

impl Opened {
    /// Creates the answer from the calibrations of both hosts, the longest probe that passes, and the header bytes per
    /// probe.
    pub fn of(rtt: Duration, (largest, overhead): (u16, u32), hosts: [Calibration; 2]) -> Self {
        Self {
            rtt_us: rtt.as_micros() as u64,
            largest,
            overhead,
            shortest_gap_us: hosts[0].shortest_gap().as_secs_f64() * 1e6,
            is_valid: hosts.iter().all(|host| host.is_valid),
            hosts: hosts.each_ref().map(HostCalibration::from),
        }
    }

    /// An upper bound of the round trip.
    pub fn rtt(&self) -> Duration {
        Duration::from_micros(self.rtt_us)
    }

    /// The calibrations of this host and the member's.
    pub fn calibrations(&self) -> [Calibration; 2] {
        self.hosts.map(Calibration::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Request, String> {
        serde_json::from_str(line).map_err(|why| why.to_string())
    }

    fn train(probes: &str) -> Result<(Train, Vec<Vec<u8>>), String> {
        match asked(&format!(r#"{{"send": {{"to": "fra", "probes": {probes}}}}}"#))? {
            Request::Send(send) => send.train().map_err(|why| why.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn trains_are_read_as_documented() {
        let (pair, headers) =
            train(r#"[{"size": 1000, "header": "0a0B", "gap_us": 70, "count": 2}]"#).unwrap();
        assert_eq!((pair.probes().len(), pair.duration()), (2, Duration::from_micros(70)));
        assert!(pair.probes()[0].gap.is_zero() && pair.probes()[1].header == 2);
        assert_eq!(headers, [[10, 11], [10, 11]]);
        let (two, _) = train(r#"[{"size": 100}, {"size": 200, "may_carry": true}]"#).unwrap();
        assert_eq!((two.probes()[1].size, two.probes()[1].may_carry), (200, true));
    }

    #[test]
    fn invalid_trains_are_refused_with_the_reason() {
        let said = |probes| train(probes).unwrap_err();
        assert!(said("[]").contains("at least one probe"));
        assert!(said(r#"[{"size": 100, "header": "abc"}]"#).contains("hexadecimal"));
        let long = format!(r#"[{{"size": 400, "header": "{}"}}]"#, "ab".repeat(257));
        assert!(said(&long).contains("257 bytes, but at most 256 are allowed"));
        assert!(said(r#"[{"size": 100, "count": 65535}]"#).contains("at most 4096"));
        assert!(said(r#"[{"size": 100, "ttl": 3}]"#).contains("ttl"));
        assert!(
            said(r#"[{"size": 100, "gap_us": 99999999}, {"size": 99, "gap_us": 99999999}]"#)
                .contains("at most 10 s")
        );
        assert!(asked(r#"{"sing": {}}"#).unwrap_err().contains("sing"));
    }

    #[test]
    fn a_program_gets_the_probes_that_it_selected() {
        let head = thalweg_wire::probe::ProbeHead { train: 1, place: 2, sent: 3 };
        let header = vec![0xca, 0xfe, 7];
        let came = ReceivedProbe { from: "nyc".parse().unwrap(), head, size: 99, header, at: 4 };
        let has = |line: &str| match asked(&format!(r#"{{"receive": {line}}}"#)).unwrap() {
            Request::Receive(receive) => receive.wanted().unwrap().has(&came),
            other => panic!("{other:?}"),
        };
        assert!(has("{}") && has(r#"{"prefix": "CAFE"}"#) && has(r#"{"from": "nyc"}"#));
        assert!(!has(r#"{"prefix": "cafe08"}"#) && !has(r#"{"from": "fra"}"#));
        let said = serde_json::to_string(&Reply::Probe(Arrival::from(&came))).unwrap();
        assert_eq!(
            said,
            r#"{"probe":{"from":"nyc","train":1,"place":2,"size":99,"header":"cafe07","sent_ns":3,"arrived_ns":4}}"#
        );
    }
}
