//! The names of methods in command-line options.

use super::Method;
use std::{fmt, str::FromStr, time::Duration};
use thalweg_plan::collection::{Direct, Rule};
use thalweg_units::{format_duration, parse_duration};
use thiserror::Error;

/// A method's name. `path-delay` uses the plan's slot length, which is known only later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MethodName {
    /// `fluid`: our own method.
    Fluid,
    /// `path-sync=X`: PathSyncX, with X in per cent.
    PathSync(f64),
    /// `path-delay`, or `path-delay=TIME` with a slot length different from the plan's.
    PathDelay(Option<Duration>),
    /// `best-path`: the paper's non-coordinated method.
    BestPath,
    /// `all-at-once`, `one-by-one`, `spread-in-time=G,T`, `concurrent=G`.
    Direct(Direct),
    /// `all-at-once=N`: with N connections to each source.
    AllAtOnce(u32),
}

/// The text names no method.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MethodNameError {
    #[error(
        "`{0}` is not a method; the methods are fluid, path-sync[=PERCENT], path-delay[=TIME], \
         best-path, all-at-once[=CONNECTIONS], one-by-one, spread-in-time=G,TIME and concurrent=G"
    )]
    Name(String),
    /// A known name with an invalid value.
    #[error("`{text}` is invalid: write {form}")]
    Value {
        /// The method as it was given.
        text: String,
        /// The syntax of this method, and the allowed values.
        form: &'static str,
    },
}

/// The maximum number of connections to one source; more gain nothing.
const MOST_CONNECTIONS: u32 = 64;

impl MethodName {
    /// Returns the name of a method.
    pub fn of(method: Method) -> Self {
        match method {
            Method::Fluid => Self::Fluid,
            Method::Scheduled(Rule::Sync(share)) => Self::PathSync(share * 100.0),
            Method::Scheduled(Rule::Delay(slot)) => Self::PathDelay(Some(slot)),
            Method::Scheduled(Rule::Chain) | Method::BestPath => Self::BestPath,
            Method::Direct(direct) => Self::Direct(direct),
        }
    }

    /// Returns the method, for a plan with slots of this length.
    pub fn method(self, slot: Duration) -> Method {
        match self {
            Self::Fluid => Method::Fluid,
            Self::PathSync(percent) => Method::Scheduled(Rule::Sync(percent / 100.0)),
            Self::PathDelay(other) => Method::path_delay(other.unwrap_or(slot)),
            Self::BestPath => Method::BestPath,
            Self::Direct(direct) => Method::Direct(direct),
            Self::AllAtOnce(_) => Method::Direct(Direct::AllAtOnce),
        }
    }

    /// Returns the number of connections per source of a direct method.
    pub fn connections(self) -> u32 {
        if let Self::AllAtOnce(connections) = self { connections } else { 1 }
    }
}

impl FromStr for MethodName {
    type Err = MethodNameError;

    fn from_str(text: &str) -> Result<Self, MethodNameError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let parsed = match (name, value) {
            ("fluid", None) => Some(Self::Fluid),
            ("path-sync", None) => Some(Self::PathSync(95.0)),
            ("path-sync", Some(percent)) => percent_of(percent).map(Self::PathSync),
            ("path-delay", None) => Some(Self::PathDelay(None)),
            ("path-delay", Some(slot)) => time_of(slot).map(|slot| Self::PathDelay(Some(slot))),
            ("best-path", None) => Some(Self::BestPath),
            ("all-at-once", None) => Some(Self::Direct(Direct::AllAtOnce)),
            ("all-at-once", Some(n)) => connections(n).map(Self::AllAtOnce),
            ("one-by-one", None) => Some(Self::Direct(Direct::OneByOne)),
            ("spread-in-time", Some(both)) => spread(both).map(Self::Direct),
            ("concurrent", Some(group)) => {
                group_of(group).map(|group| Self::Direct(Direct::Concurrent(group)))
            }
            _ => None,
        };
        let (text, form) = (text.to_owned(), form(name));
        parsed.ok_or(match form {
            Some(form) => MethodNameError::Value { text, form },
            None => MethodNameError::Name(text),
        })
    }
}

/// Describes the syntax of the method with this name.
fn form(name: &str) -> Option<&'static str> {
    Some(match name {
        "fluid" => "fluid, without a value",
        "best-path" => "best-path, without a value",
        "one-by-one" => "one-by-one, without a value",
        "path-sync" => "path-sync or path-sync=PERCENT, from 0 to 100",
        "path-delay" => "path-delay or path-delay=TIME with a TIME above 0, e.g. path-delay=2s",
        "all-at-once" => "all-at-once or all-at-once=CONNECTIONS, from 1 to 64",
        "concurrent" => "concurrent=G, where G is the number of sources at a time, at least 1",
        "spread-in-time" => {
            "spread-in-time=G,TIME, where G sources begin in each TIME, e.g. spread-in-time=2,30s"
        }
        _ => return None,
    })
}

fn percent_of(text: &str) -> Option<f64> {
    text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent))
}

fn connections(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| (1..=MOST_CONNECTIONS).contains(n))
}

fn group_of(text: &str) -> Option<usize> {
    text.parse().ok().filter(|group| *group > 0)
}

fn spread(text: &str) -> Option<Direct> {
    let (group, slot) = text.split_once(',')?;
    Some(Direct::SpreadInTime { group: group_of(group)?, slot: time_of(slot)? })
}

/// Parses a time with a unit, or in plain seconds.
fn time_of(text: &str) -> Option<Duration> {
    let plain = text.trim().bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let text = if plain { format!("{text} s") } else { text.to_owned() };
    parse_duration(&text).ok().filter(|time| !time.is_zero())
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: &Duration| format_duration(*time).replace(' ', "");
        match self {
            Self::Fluid => write!(f, "fluid"),
            Self::PathSync(percent) => write!(f, "path-sync={percent}"),
            Self::PathDelay(None) => write!(f, "path-delay"),
            Self::PathDelay(Some(slot)) => write!(f, "path-delay={}", time(slot)),
            Self::BestPath => write!(f, "best-path"),
            Self::AllAtOnce(n) => write!(f, "all-at-once={n}"),
            Self::Direct(Direct::AllAtOnce) => write!(f, "all-at-once"),
            Self::Direct(Direct::OneByOne) => write!(f, "one-by-one"),
            Self::Direct(Direct::SpreadInTime { group, slot }) => {
                write!(f, "spread-in-time={group},{}", time(slot))
            }
            Self::Direct(Direct::Concurrent(group)) => write!(f, "concurrent={group}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_format_consistently() {
        for (text, name) in [
            ("fluid", "fluid"),
            ("path-sync", "path-sync=95"),
            ("path-sync=100", "path-sync=100"),
            ("path-delay", "path-delay"),
            ("path-delay=2", "path-delay=2s"),
            ("best-path", "best-path"),
            ("all-at-once", "all-at-once"),
            ("all-at-once=4", "all-at-once=4"),
            ("one-by-one", "one-by-one"),
            ("spread-in-time=2,30 s", "spread-in-time=2,30s"),
            ("concurrent=3", "concurrent=3"),
        ] {
            let read: MethodName = text.parse().unwrap();
            assert_eq!(read.to_string(), name);
            assert_eq!(name.parse::<MethodName>().unwrap(), read);
        }
    }

    #[test]
    fn an_unknown_method_is_answered_with_the_known_ones() {
        let says = |text: &str, what: &str| {
            let error = text.parse::<MethodName>().unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        };
        says("", "spread-in-time=G,TIME");
        says("best", "spread-in-time=G,TIME");
        says("concurrent=0", "at least 1");
        says("all-at-once=65", "from 1 to 64");
        for text in [
            "fluid=1",
            "path-sync=101",
            "path-sync=-1",
            "path-sync=nan",
            "path-delay=0",
            "all-at-once=0",
            "all-at-once=65",
            "concurrent",
            "concurrent=0",
            "spread-in-time=2",
            "spread-in-time=0,3s",
        ] {
            says(text, "is invalid: write");
        }
    }
}
