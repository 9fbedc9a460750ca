//! The rates between all members in binary form, with what changed since an earlier reply. Pure: time is an argument.
//!
//! A reply is a head and columns, all little-endian:
//!
//! | Bytes | Content |
//! |---|---|
//! | 4 | the length of the head, a multiple of 4 |
//! | … | the head: JSON, filled up with spaces |
//! | 4 each | of a reply with changes only: the indices of the cells, `from * size + to`, ascending |
//! | 4 each | when each cell was measured, s on the clock of the head's `now`; 0: not measured |
//! | 2 each | rate, then spread, round trip, unused rate: see [`Scale`]; 0: unknown |
//! | 1 each | the number of the method in the head's `methods`; 128 more: the rate is a lower bound |

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};
use std::time::Duration;
use thalweg_wire::mesh::{
    Name,
    measure::{LegEntry, PathsReply},
};

/// The most nodes: their cells take 64 MB.
pub const MAX_NODES: usize = 2000;

/// The clock begins here, so that estimates from before the node's start have a time. Plans use none that is older
/// than 14 days.
const CLOCK_BEGINS: Duration = Duration::from_secs(60 * 24 * 3600);

/// Methods beyond these have no number of their own.
const MAX_METHODS: usize = 127;

/// Bit of the byte with the method.
const AT_LEAST: u8 = 0x80;

/// A logarithmic scale of 65,535 steps, from 1 on.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    lowest: f64,
    highest: f64,
}

impl Scale {
    /// Rates, bit/s: a step is 0.05 %.
    pub const RATE: Self = Self { lowest: 1.0, highest: 1e13 };
    /// Round trips, s: a step is 0.03 %.
    pub const RTT: Self = Self { lowest: 1e-6, highest: 1e3 };

    /// The step of a value; those outside the scale are at its ends. 0 stands for no value.
    fn step(self, value: Option<f64>) -> u16 {
        let Some(value) = value.filter(|value| !value.is_nan()) else { return 0 };
        let part = (value / self.lowest).ln() / (self.highest / self.lowest).ln();
        // The cast saturates.
        (1.0 + (part * 65_534.0).round().clamp(0.0, 65_534.0)) as u16
    }

    #[cfg(test)]
    fn value(self, step: u16) -> f64 {
        self.lowest * (self.highest / self.lowest).powf((f64::from(step) - 1.0) / 65_534.0)
    }
}

/// What is known of one leg; all zero: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    measured: u32,
    rate: u16,
    spread: u16,
    rtt: u16,
    available: u16,
    method: u8,
}

impl Cell {
    /// Whether it is the same estimate: its time is computed from an age, which may be rounded.
    fn is_same(&self, other: &Self) -> bool {
        self.measured.abs_diff(other.measured) <= 2
            && Self { measured: 0, ..*self } == Self { measured: 0, ..*other }
    }
}

/// The cells as they were last seen, each with the number of its last change.
#[derive(Debug)]
pub struct PathMatrix {
    /// Tells replies of different runs apart.
    run: u64,
    change: u64,
    /// The change since which the nodes are the same.
    nodes_since: u64,
    nodes: Vec<Name>,
    methods: Vec<String>,
    cells: Vec<Cell>,
    changes: Vec<u64>,
    legs: usize,
    /// What the head tells beside the cells.
    rest: Value,
}

impl PathMatrix {
    /// An empty matrix; `run` differs from that of all earlier ones.
    pub fn new(run: u64) -> Self {
        Self {
            run,
            change: 0,
            nodes_since: 0,
            nodes: Vec::new(),
            methods: Vec::new(),
            cells: Vec::new(),
            changes: Vec::new(),
            legs: 0,
            rest: Value::Null,
        }
    }

    /// The number of the last change, as a text.
    pub fn version(&self) -> String {
        format!("{:016x}-{}", self.run, self.change)
    }

    /// Takes an answer of the oracle that is `since` old, and the document without it; `now` is the time since the node
    /// began to run. Answers with more than [`MAX_NODES`] nodes are refused.
    ///
    /// # Errors
    /// The number of nodes.
    pub fn update(
        &mut self,
        reply: &PathsReply,
        since: Duration,
        rest: &Value,
        now: Duration,
    ) -> Result<(), usize> {
        let is_free = |name: &Name| name.as_str() == PathsReply::FREE;
        let nodes: Vec<Name> = reply.nodes.iter().filter(|name| !is_free(name)).cloned().collect();
        if nodes.len() > MAX_NODES {
            return Err(nodes.len());
        }
        let change = self.change + 1;
        if nodes != self.nodes {
            self.cells = vec![Cell::default(); nodes.len() * nodes.len()];
            self.changes = vec![change; self.cells.len()];
            (self.nodes, self.nodes_since, self.change) = (nodes, change, change);
        }
        let mut next = 0;
        let places = reply.nodes.iter().map(|name| {
            let place = (!is_free(name)).then_some(next);
            next += usize::from(place.is_some());
            place
        });
        let places: Vec<Option<usize>> = places.collect();
        let place = |node: u32| places.get(node as usize).copied().flatten();
        let mut cells = vec![Cell::default(); self.cells.len()];
        for leg in &reply.legs {
            if let (Some(from), Some(to)) = (place(leg.from), place(leg.to)) {
                cells[from * self.nodes.len() + to] = self.cell(leg, since, now);
            }
        }
        self.take(&cells, change);
        self.legs = reply.legs.len();
        if *rest != self.rest {
            (self.rest, self.change) = (rest.clone(), change);
        }
        Ok(())
    }

    /// Takes the cells that differ.
    fn take(&mut self, cells: &[Cell], change: u64) {
        for ((old, new), changed) in self.cells.iter_mut().zip(cells).zip(&mut self.changes) {
            if !old.is_same(new) {
                (*old, *changed, self.change) = (*new, change, change);
            }
        }
    }

    fn cell(&mut self, leg: &LegEntry, since: Duration, now: Duration) -> Cell {
        let measured = (CLOCK_BEGINS + now).saturating_sub(leg.age + since).as_secs();
        let available = leg.available.as_ref().map(|found| found.bps);
        Cell {
            measured: u32::try_from(measured).unwrap_or(u32::MAX).max(1),
            rate: Scale::RATE.step(Some(leg.bps)),
            spread: Scale::RATE.step(leg.spread_bps),
            rtt: Scale::RTT.step(leg.rtt_s),
            available: Scale::RATE.step(available),
            method: self.method(&leg.method) | if leg.at_least { AT_LEAST } else { 0 },
        }
    }

    /// The number of a method.
    fn method(&mut self, name: &str) -> u8 {
        let known = self.methods.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            if self.methods.len() < MAX_METHODS {
                self.methods.push(name.to_owned());
            }
            self.methods.len() - 1
        });
        // Below 127.
        number as u8
    }

    /// The reply to a client that has the version `known`: the changes since then, or all if they are unknown. `now` is
    /// as in [`Self::update`].
    pub fn encode(&self, known: Option<&str>, now: Duration, valid_for: Duration) -> Bytes {
        let since = known.and_then(|known| self.parse(known));
        let since = since.filter(|since| *since >= self.nodes_since);
        let all = 0..self.cells.len();
        let places: Vec<usize> = match since {
            Some(since) => all.filter(|at| self.changes[*at] > since).collect(),
            None => all.collect(),
        };
        let head = json!({
            "version": self.version(),
            "size": self.nodes.len(),
            "nodes": since.is_none().then_some(&self.nodes),
            "changed": since.map(|_| places.len()),
            "methods": self.methods,
            "legs": self.legs,
            "now": (CLOCK_BEGINS + now).as_secs(),
            "valid_for_seconds": valid_for.as_secs_f64(),
            "document": self.rest,
        });
        let mut head = head.to_string().into_bytes();
        head.resize(head.len().next_multiple_of(4), b' ');
        let mut out = BytesMut::with_capacity(4 + head.len() + places.len() * 17);
        // A head is shorter than 4 GB: its texts are those of one reply of the oracle.
        out.put_u32_le(head.len() as u32);
        out.put_slice(&head);
        if since.is_some() {
            places.iter().for_each(|at| out.put_u32_le(*at as u32));
        }
        let cells = || places.iter().map(|at| &self.cells[*at]);
        cells().for_each(|cell| out.put_u32_le(cell.measured));
        let columns: [fn(&Cell) -> u16; 4] =
            [|cell| cell.rate, |cell| cell.spread, |cell| cell.rtt, |cell| cell.available];
        for column in columns {
            cells().for_each(|cell| out.put_u16_le(column(cell)));
        }
        cells().for_each(|cell| out.put_u8(cell.method));
        out.freeze()
    }

    /// The change of a version of this run.
    fn parse(&self, version: &str) -> Option<u64> {
        let (run, change) = version.split_once('-')?;
        let change = change.parse().ok().filter(|change| *change <= self.change)?;
        (u64::from_str_radix(run, 16) == Ok(self.run)).then_some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn leg(from: u32, to: u32, bps: f64, age: u64) -> LegEntry {
        LegEntry {
            from,
            to,
            bps,
            spread_bps: None,
            method: "sampling".to_owned(),
            at_least: false,
            rtt_s: Some(0.02),
            age: Duration::from_secs(age),
            available: None,
        }
    }

    fn reply(names: &[&str], legs: Vec<LegEntry>) -> PathsReply {
        let nodes = names.iter().map(|name| name.parse().unwrap()).collect();
        PathsReply { nodes, legs, ..PathsReply::default() }
    }

    /// The head and the rest of a reply.
    fn read(reply: &Bytes) -> (Value, Bytes) {
        let length = u32::from_le_bytes(reply[..4].try_into().unwrap()) as usize;
        assert_eq!(length % 4, 0);
        (serde_json::from_slice(&reply[4..4 + length]).unwrap(), reply.slice(4 + length..))
    }

    fn u16_at(bytes: &Bytes, at: usize) -> u16 {
        u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
    }

    #[test]
    fn a_client_gets_all_first_and_then_what_changed() {
        let mut matrix = PathMatrix::new(7);
        let names = ["a", "b", "c"];
        let first = reply(&names, vec![leg(0, 1, 8e6, 100), leg(2, 0, 5e6, 50)]);
        matrix.update(&first, SECOND, &json!({ "candidates": [] }), SECOND).unwrap();
        let (head, cells) = read(&matrix.encode(None, 2 * SECOND, 10 * SECOND));
        assert_eq!((&head["size"], &head["nodes"]), (&json!(3), &json!(names)));
        assert_eq!(head["document"], json!({ "candidates": [] }));
        assert_eq!(cells.len(), 9 * 13);
        let measured = u32::from_le_bytes(cells[4..8].try_into().unwrap());
        // The age now is that in the oracle's answer, that of the answer, and the second since.
        assert_eq!(head["now"].as_u64().unwrap() - u64::from(measured), 102);
        let rate = Scale::RATE.value(u16_at(&cells, 36 + 2));
        assert!((rate / 8e6 - 1.0).abs() < 5e-4, "{rate}");
        assert_eq!(u16_at(&cells, 36), 0, "not measured");

        let version = head["version"].as_str().unwrap().to_owned();
        // Ten seconds later all is older, which is no change; one leg was measured again.
        let later = reply(&names, vec![leg(0, 1, 8e6, 110), leg(2, 0, 6e6, 3)]);
        matrix.update(&later, SECOND, &json!({ "candidates": [] }), 11 * SECOND).unwrap();
        let (head, cells) = read(&matrix.encode(Some(&version), 11 * SECOND, 10 * SECOND));
        assert_eq!((&head["changed"], &head["nodes"]), (&json!(1), &Value::Null));
        assert_eq!(u32::from_le_bytes(cells[..4].try_into().unwrap()), 6);
        assert_eq!(cells.len(), 17);

        let version = head["version"].as_str().unwrap().to_owned();
        matrix.update(&later, SECOND, &json!({ "candidates": [] }), 11 * SECOND).unwrap();
        assert_eq!(matrix.version(), version, "nothing changed");
        // A leg whose estimate expired, and a remark.
        matrix
            .update(&reply(&names, vec![leg(0, 1, 8e6, 111)]), SECOND, &json!({}), 12 * SECOND)
            .unwrap();
        let (head, _) = read(&matrix.encode(Some(&version), 12 * SECOND, 10 * SECOND));
        assert_eq!((&head["changed"], &head["document"]), (&json!(1), &json!({})));
    }

    #[test]
    fn unknown_versions_and_other_nodes_get_all() {
        let mut matrix = PathMatrix::new(7);
        let one = reply(&["a", "0.free", "b"], vec![leg(0, 2, 8e6, 1), leg(1, 2, 1.0, 1)]);
        matrix.update(&one, SECOND, &Value::Null, SECOND).unwrap();
        let version = matrix.version();
        let is_all = |matrix: &PathMatrix, known: &str| {
            let (head, cells) = read(&matrix.encode(Some(known), SECOND, SECOND));
            assert_eq!(cells.len() % 13, 0);
            head["nodes"] != Value::Null
        };
        assert!(!is_all(&matrix, &version));
        let (head, _) = read(&matrix.encode(None, SECOND, SECOND));
        assert_eq!(head["nodes"], json!(["a", "b"]));
        for other in ["", "7", "0000000000000008-1", "0000000000000007-9", "x-1", "-", "7-1-1"] {
            assert!(is_all(&matrix, other), "{other}");
        }
        let other = reply(&["a", "b", "c"], Vec::new());
        matrix.update(&other, SECOND, &Value::Null, SECOND).unwrap();
        assert!(is_all(&matrix, &version));
        let names: Vec<String> = (0..=MAX_NODES).map(|n| format!("n{n}")).collect();
        let many = reply(&names.iter().map(String::as_str).collect::<Vec<_>>(), Vec::new());
        assert_eq!(matrix.update(&many, SECOND, &Value::Null, SECOND), Err(MAX_NODES + 1));
    }

    #[test]
    fn values_beyond_the_scale_are_at_its_ends() {
        assert_eq!(Scale::RATE.step(None), 0);
        assert_eq!(Scale::RATE.step(Some(f64::NAN)), 0);
        assert_eq!(Scale::RATE.step(Some(0.0)), 1);
        assert_eq!(Scale::RATE.step(Some(-1.0)), 0, "it has no logarithm");
        assert_eq!(Scale::RATE.step(Some(f64::INFINITY)), u16::MAX);
        for rtt in [2e-5, 0.02, 1.7] {
            let found = Scale::RTT.value(Scale::RTT.step(Some(rtt)));
            assert!((found / rtt - 1.0).abs() < 3e-4, "{found}");
        }
    }
}
