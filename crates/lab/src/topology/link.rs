//! Links: as written in a topology, and as the emulator gets them.

use super::{Loss, Probability, Steps, TopologyError, text};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr, time::Duration};
use thalweg_units::{ByteSize, ParseError, Rate, parse_duration};

/// A link as written in a topology; absent properties have defaults.
///
/// Duplex unless `simplex`: two directions with the same properties, except those given in `rev`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Bits per second; absent: no limit and no queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The drop-tail queue; default 1 BDP of 100 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// One-way propagation delay; default 0.
    #[serde(default, with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Random loss after the queue; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Reordering; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Probability of duplication; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Probability>,
    /// Probability that one bit after the IP header is flipped; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Probability>,
    /// Whether the link is up; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Whether the link has only the forward direction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simplex: bool,
    /// The rate over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Steps>,
    /// The properties that differ in the reverse direction. A `rate` here replaces the `trace` of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rev: Option<Box<LinkSpec>>,
}

/// The size of a drop-tail queue; as text `"100 kB"`, `"50 packets"` or `"1 BDP of 40 ms"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    Bytes(ByteSize),
    /// A number of packets of any size, as in Dummynet's default of 50 slots; the packet in service counts.
    Packets(u32),
    /// A multiple of the bandwidth-delay product of the link's rate and a round-trip time.
    Bdp {
        /// The multiple, ≥ 0.
        times: f64,
        /// The round-trip time.
        rtt: Duration,
    },
}

/// Reordering: packets are held back so that others overtake them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// The probability that a packet is held back.
    pub probability: Probability,
    /// How long it is held back.
    #[serde(with = "text::duration")]
    pub by: Duration,
}

/// One direction of a link with all defaults applied, as the emulator gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bits per second, > 0; `None`: no limit and no queue, so that only the senders bound the packets in flight. A
    /// link that carries floods needs a rate.
    pub rate: Option<Rate>,
    /// The drop-tail queue, sized for `rate` or, without a rate, for the peak of `trace`.
    pub queue: Queue,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Random loss after the queue.
    pub loss: Loss,
    pub reorder: Reorder,
    pub duplicate: Probability,
    /// Probability of a flipped bit.
    pub corrupt: Probability,
    /// Whether the link is up.
    pub up: bool,
    /// The rate over time, all rates > 0.
    pub trace: Option<Steps>,
}

/// The size of a full packet.
const PACKET_BYTES: u64 = 1500;
/// The smallest queue from a BDP: with less than two full-size packets every back-to-back pair would lose one.
const QUEUE_MIN_BYTES: u64 = QUEUE_MIN_PACKETS as u64 * PACKET_BYTES;
/// The smallest queue, packets.
const QUEUE_MIN_PACKETS: u32 = 2;

impl Queue {
    /// `times` bandwidth-delay products of a round trip of `rtt`.
    pub const fn bdp(times: f64, rtt: Duration) -> Self {
        Self::Bdp { times, rtt }
    }

    /// Rejects a queue that would drop every full-size packet; the packet in service counts as queued.
    pub(super) fn check(&self, key: &str) -> Result<(), TopologyError> {
        match self {
            Self::Bytes(size) if size.as_bytes() < PACKET_BYTES => {
                let why = "a queue below 1500 B drops every full-size packet";
                Err(TopologyError::value(key, size, why))
            }
            Self::Packets(count) if *count < QUEUE_MIN_PACKETS => {
                let why = "a queue of less than 2 packets drops one of every back-to-back pair";
                Err(TopologyError::value(key, self, why))
            }
            _ => Ok(()),
        }
    }

    /// The size in bytes at this rate. A BDP is at least two packets of 1500 bytes; packets are of 1500 bytes each.
    pub fn bytes(&self, rate: Rate) -> u64 {
        match self {
            Self::Bytes(size) => size.as_bytes(),
            Self::Packets(count) => u64::from(*count) * PACKET_BYTES,
            Self::Bdp { times, rtt } => {
                let bytes = rate.as_bps() as f64 * rtt.as_secs_f64() / 8.0 * times;
                (bytes.round() as u64).max(QUEUE_MIN_BYTES)
            }
        }
    }

    /// The most packets; `None`: only bytes are limited.
    pub fn packets(&self) -> Option<usize> {
        match self {
            Self::Packets(count) => usize::try_from(*count).ok(),
            Self::Bytes(_) | Self::Bdp { .. } => None,
        }
    }
}

impl Default for Queue {
    /// 1 BDP of 100 ms: the rule of thumb for a router port.
    fn default() -> Self {
        Self::bdp(1.0, Duration::from_millis(100))
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // `ByteSize` prints rounded values; whole bytes are exact.
            Self::Bytes(size) => write!(f, "{} B", size.as_bytes()),
            Self::Packets(count) => write!(f, "{count} packets"),
            Self::Bdp { times, rtt } => write!(f, "{times} BDP of {}", text::exact_duration(*rtt)),
        }
    }
}

impl FromStr for Queue {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, ParseError> {
        let fail = |why| ParseError {
            what: "queue",
            text: s.to_owned(),
            why,
            example: "\"100 kB\", \"50 packets\" or \"1 BDP of 40 ms\"",
        };
        if let Some(count) = s.strip_suffix("packets") {
            let count =
                count.trim().parse().map_err(|_| fail("no whole number before `packets`"))?;
            return Ok(Self::Packets(count));
        }
        let Some((times, rtt)) = s.split_once("BDP of") else {
            return s.parse().map(Self::Bytes).map_err(|e: ParseError| fail(e.why));
        };
        let times = times.trim().parse::<f64>().map_err(|_| fail("no number before `BDP`"))?;
        if !(0.0..=1e6).contains(&times) {
            return Err(fail("out of range"));
        }
        Ok(Self::Bdp { times, rtt: parse_duration(rtt)? })
    }
}

impl Serialize for Queue {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

impl LinkSpec {
    /// A link with this rate and delay, and defaults for the rest.
    pub fn new(rate: Rate, delay: Duration) -> Self {
        Self { rate: Some(rate), delay: Some(delay), ..Self::default() }
    }

    /// This link with its properties overridden by those of `over`, as by `rev`.
    ///
    /// A `rate` without a `trace` in `over` also removes the trace of this link.
    pub fn overlaid(&self, over: &Self) -> Self {
        let (a, b) = (self, over);
        let trace = if b.rate.is_some() { None } else { a.trace.clone() };
        Self {
            rate: b.rate.or(a.rate),
            queue: b.queue.or(a.queue),
            delay: b.delay.or(a.delay),
            loss: b.loss.or(a.loss),
            reorder: b.reorder.or(a.reorder),
            duplicate: b.duplicate.or(a.duplicate),
            corrupt: b.corrupt.or(a.corrupt),
            up: b.up.or(a.up),
            simplex: b.simplex || a.simplex,
            trace: b.trace.clone().or(trace),
            rev: b.rev.clone().or_else(|| a.rev.clone()),
        }
    }

    /// The two directions: forward, and reverse unless simplex. `key` names the link in errors.
    ///
    /// # Errors
    /// If a rate is zero, a trace is out of order, a queue is too small, or `rev` is given for a simplex link.
    pub(crate) fn halves(
        &self,
        key: &str,
    ) -> Result<(LinkConfig, Option<LinkConfig>), TopologyError> {
        let forward = self.config(key)?;
        match &self.rev {
            Some(_) if self.simplex => {
                Err(TopologyError::conflict(key, "a simplex link has no `rev`; omit one of them"))
            }
            Some(rev) if rev.rev.is_some() || rev.simplex => {
                let why = "`rev` must not contain `rev` or `simplex`";
                Err(TopologyError::conflict(key, why))
            }
            None if self.simplex => Ok((forward, None)),
            None => Ok((forward.clone(), Some(forward))),
            Some(rev) => Ok((forward, Some(self.overlaid(rev).config(&format!("{key}.rev"))?))),
        }
    }

    fn config(&self, key: &str) -> Result<LinkConfig, TopologyError> {
        let trace_rates = self.trace.iter().flat_map(|t| t.steps.iter().map(|s| s.1));
        if self.rate.into_iter().chain(trace_rates).any(|r| r == Rate::ZERO) {
            let why = "must not be zero; write `up = false` to stop traffic";
            return Err(TopologyError::value(format!("{key}.rate"), Rate::ZERO, why));
        }
        if let Some(trace) = &self.trace {
            trace.check(&format!("{key}.trace"))?;
        }
        if let Some(queue) = &self.queue {
            queue.check(&format!("{key}.queue"))?;
        }
        Ok(LinkConfig {
            rate: self.rate,
            queue: self.queue.unwrap_or_default(),
            delay: self.delay.unwrap_or_default(),
            loss: self.loss.unwrap_or_default(),
            reorder: self.reorder.unwrap_or_default(),
            duplicate: self.duplicate.unwrap_or_default(),
            corrupt: self.corrupt.unwrap_or_default(),
            up: self.up.unwrap_or(true),
            trace: self.trace.clone(),
        })
    }
}

impl LinkConfig {
    /// The largest rate that the link has without changes at run time; `None` if it is unlimited at any time.
    ///
    /// If the first step of the trace is not at 0, `rate` applies before it.
    pub fn peak_rate(&self) -> Option<Rate> {
        let Some(trace) = &self.trace else { return self.rate };
        let covered = trace.steps.first().is_some_and(|s| s.0.is_zero());
        match (covered, self.rate) {
            (true, _) => trace.peak(),
            (false, rate) => rate.map(|r| trace.peak().map_or(r, |p| p.max(r))),
        }
    }

    /// The rate for which the queue is sized.
    pub fn nominal_rate(&self) -> Option<Rate> {
        self.rate.or_else(|| self.trace.as_ref().and_then(Steps::peak))
    }
}

impl Default for LinkConfig {
    /// No limit, no delay, no impairment, up.
    fn default() -> Self {
        Self {
            rate: None,
            queue: Queue::default(),
            delay: Duration::ZERO,
            loss: Loss::None,
            reorder: Reorder::default(),
            duplicate: Probability::NEVER,
            corrupt: Probability::NEVER,
            up: true,
            trace: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_parsed_as_bytes_or_as_a_bdp() {
        let rate = Rate::from_mbps(8.0);
        let bytes = |text: &str| text.parse::<Queue>().map(|q| q.bytes(rate));
        assert_eq!(bytes("100 kB"), Ok(100_000));
        assert_eq!(bytes("1 BDP of 40 ms"), Ok(40_000));
        assert_eq!(bytes("50 packets"), Ok(75_000));
        assert!(bytes("1.5 packets").is_err());
        assert_eq!(bytes("0.5BDP of 40ms"), Ok(20_000));
        assert_eq!(bytes("1 BDP of 1 ms"), Ok(QUEUE_MIN_BYTES));
        assert_eq!(Queue::default().bytes(rate), 100_000);
        assert!(bytes("1 BDP of 40").is_err());
        assert!(bytes("-1 BDP of 40 ms").is_err());
        assert!(bytes("100").unwrap_err().to_string().contains("1 BDP of 40 ms"));
    }

    #[test]
    fn the_reverse_direction_differs_only_in_given_properties() {
        let mut link = LinkSpec::new(Rate::from_mbps(20.0), Duration::from_millis(10));
        link.loss = Some(Loss::random(0.01));
        let rev = LinkSpec { rate: Some(Rate::from_mbps(2.0)), ..LinkSpec::default() };
        link.rev = Some(Box::new(rev));
        let (fwd, rev) = link.halves("link.x").unwrap();
        let rev = rev.unwrap();
        assert_eq!((fwd.rate, rev.rate), (link.rate, Some(Rate::from_mbps(2.0))));
        assert_eq!((fwd.delay, fwd.loss), (rev.delay, rev.loss));
        link.simplex = true;
        assert!(link.halves("link.x").is_err());
        link.rev = None;
        assert_eq!(link.halves("link.x").unwrap().1, None);
    }

    #[test]
    fn a_rate_of_zero_is_rejected() {
        let link = LinkSpec::new(Rate::ZERO, Duration::ZERO);
        let e = link.halves("link.core").unwrap_err().to_string();
        assert!(e.contains("link.core.rate") && e.contains("up = false"), "{e}");
    }
}
