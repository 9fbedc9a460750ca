//! What a program and the service say to each other: one JSON object a line (docs/probe-service.md). Both ends are written with
//! these.

use super::super::Came;
use data_encoding::HEXLOWER_PERMISSIVE;
use serde::{Deserialize, Serialize};
use std::{num::NonZeroU16, time::Duration};
use thalweg_measure::train::{Calibration, Doubt, Flight, Probe, Stamp, Tally, Train, TrainError};
use thalweg_units::{Rate, Time};
use thalweg_wire::{mesh::Name, probe::MAX_HEADER};
use thiserror::Error;

/// What a program asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Asked {
    /// What can be sent to a member.
    Open(Open),
    /// That a train is sent.
    Send(SendTrain),
    /// Probes that come from now on, as long as the connection lasts.
    Receive(Receive),
}

/// See [`Asked::Open`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// The member.
    pub to: Name,
}

/// See [`Asked::Send`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendTrain {
    /// The member.
    pub to: Name,
    /// The train's probes, in order.
    pub probes: Vec<Probes>,
    /// Whether it goes although a host is too busy to time it.
    #[serde(default)]
    pub accept_busy: bool,
    /// It goes so much later, µs: packets of the last milliseconds before wait to ride in it.
    #[serde(default)]
    pub after_us: u32,
    /// Whether the report waits for what the member says of arrivals.
    #[serde(default = "yes")]
    pub await_arrivals: bool,
}

/// Some equal probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// Bytes of each one's datagram.
    pub size: u16,
    /// From the one before, µs; a train's very first goes at once.
    #[serde(default)]
    pub gap_us: u64,
    /// The program's own bytes in each, in hexadecimal digits.
    #[serde(default)]
    pub header: String,
    /// Whether their padding may carry riders.
    #[serde(default)]
    pub may_carry: bool,
    /// How many.
    #[serde(default = "one")]
    pub count: NonZeroU16,
}

const fn yes() -> bool {
    true
}

const fn one() -> NonZeroU16 {
    NonZeroU16::MIN
}

/// See [`Asked::Receive`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    /// From this member alone.
    pub from: Option<Name>,
    /// Whose headers begin so, in hexadecimal digits.
    #[serde(default)]
    pub prefix: String,
}

/// What the service answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// To [`Asked::Open`].
    Opened(Opened),
    /// To [`Asked::Send`].
    Report(Box<Report>),
    /// To [`Asked::Receive`], once; probes follow.
    Receiving {},
    /// One that came.
    Probe(Arrival),
    /// So many came that this program did not take in time.
    Missed(u64),
    /// It does not.
    Error(String),
}

/// What can be sent to a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The round trip, at the most.
    pub rtt_us: u64,
    /// The longest probe that passes.
    pub largest: u16,
    /// What IP and UDP add to each probe, bytes.
    pub overhead: u32,
    /// The shortest gap, but none at all.
    pub shortest_gap_us: f64,
    /// Whether this host and the member's were calm when they were calibrated.
    pub is_valid: bool,
    /// What calibration found of this host, and of the member's.
    pub hosts: [Found; 2],
}

/// What calibration found of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What sending a probe takes.
    pub send_ns: u64,
    /// What taking one takes.
    pub receive_ns: u64,
    /// Half of all gaps were off by less, and 99 of 100.
    pub gap_error_ns: [u64; 2],
    /// The highest rate of the longest probes.
    pub honest_bps: u64,
    /// Whether it was calm.
    pub is_valid: bool,
}

impl From<&Calibration> for Found {
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

/// What is known of a train (§2.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When each probe left, by a clock of this host.
    pub sent_ns: Vec<Option<u64>>,
    /// When each came, by the member's wall clock.
    pub arrived_ns: Vec<Option<u64>>,
    /// (a) How long sending took.
    pub transmitted_us: u64,
    /// (b) Riders' packets that would have competed with the train.
    pub hidden_packets: u64,
    /// (b) Their bytes.
    pub hidden_bytes: u64,
    /// (c) Probes that carried riders.
    pub carriers: u64,
    /// (c) Riders' bytes in them.
    pub carried_bytes: u64,
    /// Riders' bytes in each probe, what was repeated included.
    pub carried: Vec<u32>,
    /// What the train cost, IP's and UDP's headers included.
    pub bytes: u64,
    /// Datagrams, of anybody's, that the member's host dropped since that was last told.
    pub dropped: u64,
    /// Whether nothing speaks against it.
    pub is_valid: bool,
    /// What does.
    pub doubts: Vec<String>,
}

/// A probe that came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// From this member.
    pub from: Name,
    /// Its train.
    pub train: u32,
    /// Its place in it.
    pub place: u16,
    /// Bytes of its datagram.
    pub size: u16,
    /// The other program's bytes.
    pub header: String,
    /// When it left, by the sender's clock.
    pub sent_ns: u64,
    /// When it came, by this host's wall clock.
    pub arrived_ns: u64,
}

/// Why words make no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WordsError {
    /// Not hexadecimal digits.
    #[error("`{0}` is not an even number of hexadecimal digits")]
    Hex(String),
    /// More than members take.
    #[error(
        "a header of {0} bytes: a probe's own are {MAX_HEADER} at most; longer probes have a larger `size`"
    )]
    Header(usize),
    /// No train.
    #[error(transparent)]
    Train(#[from] TrainError),
}

fn bytes(hex: &str) -> Result<Vec<u8>, WordsError> {
    let decoded = HEXLOWER_PERMISSIVE.decode(hex.as_bytes());
    decoded.map_err(|_| WordsError::Hex(hex.chars().take(40).collect()))
}

impl SendTrain {
    /// The train, and its probes' headers.
    ///
    /// # Errors
    /// [`WordsError`].
    pub fn train(&self) -> Result<(Train, Vec<Vec<u8>>), WordsError> {
        let (mut probes, mut headers) = (Vec::new(), Vec::new());
        for of in &self.probes {
            let own = bytes(&of.header)?;
            if own.len() > MAX_HEADER {
                return Err(WordsError::Header(own.len()));
            }
            let header = u16::try_from(own.len()).unwrap_or(u16::MAX);
            let gap = Duration::from_micros(of.gap_us);
            let probe = Probe { size: of.size, header, gap, may_carry: of.may_carry };
            for _ in 0..of.count.get() {
                probes.push(probe);
                headers.push(own.clone());
            }
            // Whoever asks for far too many is not given the memory for them.
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

/// Whether a probe that came is one of those that are wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    from: Option<Name>,
    prefix: Vec<u8>,
}

impl Receive {
    /// Which ones.
    ///
    /// # Errors
    /// [`WordsError::Hex`].
    pub fn wanted(self) -> Result<Wanted, WordsError> {
        Ok(Wanted { prefix: bytes(&self.prefix)?, from: self.from })
    }
}

impl Wanted {
    /// Whether this is one.
    pub fn has(&self, came: &Came) -> bool {
        let is_from = self.from.as_ref().is_none_or(|from| *from == came.from);
        is_from && came.header.starts_with(&self.prefix)
    }
}

impl From<&Came> for Arrival {
    fn from(came: &Came) -> Self {
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
    /// Of this flight.
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

    /// As tools see it; doubts are but words here.
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
    /// Of what both hosts can do, with the longest probe and what is added to each.
    pub fn of(rtt: Duration, (largest, overhead): (u16, u32), hosts: [Calibration; 2]) -> Self {
        Self {
            rtt_us: rtt.as_micros() as u64,
            largest,
            overhead,
            shortest_gap_us: hosts[0].shortest_gap().as_secs_f64() * 1e6,
            is_valid: hosts.iter().all(|host| host.is_valid),
            hosts: hosts.each_ref().map(Found::from),
        }
    }

    /// The round trip.
    pub fn rtt(&self) -> Duration {
        Duration::from_micros(self.rtt_us)
    }

    /// What calibration found of this host, and of the member's.
    pub fn calibrations(&self) -> [Calibration; 2] {
        self.hosts.map(Calibration::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked, String> {
        serde_json::from_str(line).map_err(|why| why.to_string())
    }

    fn train(probes: &str) -> Result<(Train, Vec<Vec<u8>>), String> {
        match asked(&format!(r#"{{"send": {{"to": "fra", "probes": {probes}}}}}"#))? {
            Asked::Send(send) => send.train().map_err(|why| why.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn trains_are_read_as_documented() {
        let (pair, headers) =
            train(r#"[{"size": 1000, "header": "0a0B", "gap_us": 70, "count": 2}]"#).unwrap();
        assert_eq!((pair.probes().len(), pair.takes()), (2, Duration::from_micros(70)));
        assert!(pair.probes()[0].gap.is_zero() && pair.probes()[1].header == 2);
        assert_eq!(headers, [[10, 11], [10, 11]]);
        let (two, _) = train(r#"[{"size": 100}, {"size": 200, "may_carry": true}]"#).unwrap();
        assert_eq!((two.probes()[1].size, two.probes()[1].may_carry), (200, true));
    }

    #[test]
    fn what_is_no_train_is_refused_with_the_reason() {
        let said = |probes| train(probes).unwrap_err();
        assert!(said("[]").contains("at least one probe"));
        assert!(said(r#"[{"size": 100, "header": "abc"}]"#).contains("hexadecimal"));
        let long = format!(r#"[{{"size": 400, "header": "{}"}}]"#, "ab".repeat(257));
        assert!(said(&long).contains("257 bytes: a probe's own are 256 at most"));
        assert!(said(r#"[{"size": 100, "count": 65535}]"#).contains("at most 4096"));
        assert!(said(r#"[{"size": 100, "ttl": 3}]"#).contains("ttl"));
        assert!(
            said(r#"[{"size": 100, "gap_us": 99999999}, {"size": 99, "gap_us": 99999999}]"#)
                .contains("at most 10 s")
        );
        assert!(asked(r#"{"sing": {}}"#).unwrap_err().contains("sing"));
    }

    #[test]
    fn a_program_gets_what_it_asked_for() {
        let head = thalweg_wire::probe::ProbeHead { train: 1, place: 2, sent: 3 };
        let header = vec![0xca, 0xfe, 7];
        let came = Came { from: "nyc".parse().unwrap(), head, size: 99, header, at: 4 };
        let has = |line: &str| match asked(&format!(r#"{{"receive": {line}}}"#)).unwrap() {
            Asked::Receive(receive) => receive.wanted().unwrap().has(&came),
            other => panic!("{other:?}"),
        };
        assert!(has("{}") && has(r#"{"prefix": "CAFE"}"#) && has(r#"{"from": "nyc"}"#));
        assert!(!has(r#"{"prefix": "cafe08"}"#) && !has(r#"{"from": "fra"}"#));
        let said = serde_json::to_string(&Said::Probe(Arrival::from(&came))).unwrap();
        assert_eq!(
            said,
            r#"{"probe":{"from":"nyc","train":1,"place":2,"size":99,"header":"cafe07","sent_ns":3,"arrived_ns":4}}"#
        );
    }
}
