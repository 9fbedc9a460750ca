//! The faults that a URL can name.

use anyhow::{Context, bail};
use thalweg_units::Rate;

/// The help text about faults.
pub const HELP: &str = "\
URLs are /FAULT[,FAULT…]/NAME[?TEXT]; each URL has its own counts. Faults:

  honest              no fault
  rate=8Mbps          all answers together are limited to this rate
  no-validator        no entity tag
  ignore-range        every answer is the whole file with status 200
  change@AT           after this many bytes all connections are reset, and from then on the
                      file is NAME.next, with another entity tag
  length=N[xK]        Content-Length is N less than Content-Range says, and so is the body
  short=N[xK]         the body ends N bytes early, and the connection with it
  long=N[xK]          N bytes of garbage follow the body
  reset@AT[xK]        the connection is reset before the byte at AT
  stall@AT[xK]        no byte is sent from AT on; the connection stays open
  busy=STATUS[:S][xK] the requests after the first one get STATUS, with `Retry-After: S`
  parallel=N:STATUS[:S]
                      likewise for more than N requests at once

AT is a number of bytes, or a part of the file such as 0.99. A fault happens K times; by default
once for `reset` and `stall`, 4 times for `busy`, and always for the others.";

/// A position in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FilePosition {
    /// Bytes from the start.
    Byte(u64),
    /// A fraction of the length, from 0 to 1.
    Part(f64),
}

impl FilePosition {
    /// The position in a file of this length.
    pub fn offset_in(self, length: u64) -> u64 {
        match self {
            Self::Byte(n) => n,
            Self::Part(part) => (length as f64 * part) as u64,
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        if !text.contains('.') {
            return Ok(Self::Byte(text.parse().context("no whole number of bytes")?));
        }
        let part: f64 = text.parse().context("not a part of the file such as 0.99")?;
        if !(0.0..=1.0).contains(&part) {
            bail!("the part is not between 0 and 1");
        }
        Ok(Self::Part(part))
    }
}

/// An error status instead of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    /// The status: 429, 503 …
    pub status: u16,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
}

impl Refusal {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (status, seconds) = match text.split_once(':') {
            Some((status, seconds)) => (status, Some(seconds)),
            None => (text, None),
        };
        let status: u16 = status.parse().context("no status")?;
        if !(400..600).contains(&status) {
            bail!("{status} is not a status that refuses a request");
        }
        let retry_after = seconds.map(str::parse).transpose().context("not a number of seconds")?;
        Ok(Self { status, retry_after })
    }
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// A limit on the rate of all answers together.
    Rate(Rate),
    /// No entity tag.
    NoValidator,
    /// The whole file, ignoring Range.
    IgnoreRange,
    /// Another file after this many bytes.
    Change(FilePosition),
    /// Content-Length and the body are this many bytes less than Content-Range says.
    Length(u64),
    /// The body is this many bytes shorter than Content-Length says.
    Short(u64),
    /// The body is this many bytes longer than Content-Length says.
    Long(u64),
    /// A reset at this position.
    Reset(FilePosition),
    /// No bytes from this position on; the connection stays open.
    Stall(FilePosition),
    /// A refusal of all requests except the first one.
    Busy(Refusal),
    /// A refusal of requests beyond this number of simultaneous ones.
    Parallel(usize, Refusal),
}

/// A fault and how often it happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// How many times it happens; [`u32::MAX`]: always.
    pub times: u32,
}

/// Parses `FAULT[,FAULT…]`.
///
/// # Errors
/// If a fault is invalid; the message names it and says why.
pub fn parse_all(text: &str) -> anyhow::Result<Vec<Fault>> {
    let faults = text.split(',').filter(|f| *f != "honest");
    faults.map(|f| parse(f).with_context(|| format!("`{f}`"))).collect()
}

fn parse(text: &str) -> anyhow::Result<Fault> {
    let at = text.find(['=', '@']);
    let (name, value) = at.map_or((text, ""), |at| (&text[..at], &text[at + 1..]));
    if name == "rate" {
        return Ok(always(FaultKind::Rate(value.parse()?)));
    }
    let (value, times) = match value.split_once('x') {
        Some((value, times)) => (value, Some(times.parse().context("not a number of times")?)),
        None => (value, None),
    };
    let mut fault = match name {
        "no-validator" => always(FaultKind::NoValidator),
        "ignore-range" => always(FaultKind::IgnoreRange),
        "change" => always(FaultKind::Change(FilePosition::parse(value)?)),
        "length" => always(FaultKind::Length(parse_bytes(value)?)),
        "short" => always(FaultKind::Short(parse_bytes(value)?)),
        "long" => always(FaultKind::Long(parse_bytes(value)?)),
        "reset" => Fault { kind: FaultKind::Reset(FilePosition::parse(value)?), times: 1 },
        "stall" => Fault { kind: FaultKind::Stall(FilePosition::parse(value)?), times: 1 },
        "busy" => Fault { kind: FaultKind::Busy(Refusal::parse(value)?), times: 4 },
        "parallel" => {
            let (most, refusal) = value.split_once(':').context("no status")?;
            always(FaultKind::Parallel(most.parse()?, Refusal::parse(refusal)?))
        }
        _ => bail!("unknown fault; see --help"),
    };
    fault.times = times.unwrap_or(fault.times);
    Ok(fault)
}

fn always(kind: FaultKind) -> Fault {
    Fault { kind, times: u32::MAX }
}

fn parse_bytes(text: &str) -> anyhow::Result<u64> {
    text.parse().context("no whole number of bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed() {
        let found = parse_all("honest,reset@0.99x3,busy=503:2,rate=8Mbps,short=10").unwrap();
        let busy = Refusal { status: 503, retry_after: Some(2) };
        let wanted = [
            Fault { kind: FaultKind::Reset(FilePosition::Part(0.99)), times: 3 },
            Fault { kind: FaultKind::Busy(busy), times: 4 },
            always(FaultKind::Rate(Rate::from_bps(8_000_000))),
            always(FaultKind::Short(10)),
        ];
        assert_eq!(found, wanted);
        assert_eq!(
            (FilePosition::Part(0.5).offset_in(10), FilePosition::Byte(7).offset_in(10)),
            (5, 7)
        );
        assert_eq!(parse_all("parallel=2:429").unwrap()[0].times, u32::MAX);
    }

    #[test]
    fn an_invalid_fault_is_named_in_the_error() {
        for bad in ["", "change", "reset@2.0", "busy=200", "long=", "short=1xy", "late@1"] {
            let error = format!("{:#}", parse_all(bad).unwrap_err());
            assert!(error.starts_with(&format!("`{bad}`: ")), "{error}");
        }
    }
}
