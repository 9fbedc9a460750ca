//! The history of a link in bins of time: capacity, bytes by class, queue.

use super::{ClassId, truth::Bin};

/// The most bins of a link: 410 s at 100 ms, and 200 kB with three classes. Beyond it pairs of bins are merged and the
/// width doubles.
pub(super) const BINS_MAX: usize = 4096;

/// The state of a link during an interval without events.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkState {
    /// Bits per second; `None`: no limit; zero: down.
    pub(super) rate: Option<u64>,
    /// The time at which the queue becomes empty, ns.
    pub(super) free_at: u64,
}

/// Bins since the link's start. Times are nanoseconds.
///
/// Nothing is stored until the first use, so that thousands of idle links cost no memory.
#[derive(Clone, Debug)]
pub(super) struct Series {
    start: u64,
    width: u64,
    classes: usize,
    cells: Vec<Cell>,
    /// `bytes[bin · classes + class]`
    bytes: Vec<u64>,
    active: bool,
    /// The time up to which capacity and queue are integrated.
    until: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Bits; infinite without a rate limit.
    capacity: f64,
    /// Byte·nanoseconds in the queue.
    area: f64,
    queue_max: u64,
}

impl Series {
    /// Creates a history from `start` in bins of `width` ns (at least 1) for this many classes.
    pub(super) fn new(start: u64, width: u64, classes: usize) -> Self {
        Self {
            start,
            width: width.max(1),
            classes,
            cells: Vec::new(),
            bytes: Vec::new(),
            active: false,
            until: start,
        }
    }

    /// Starts recording.
    pub(super) fn activate(&mut self) {
        self.active = true;
    }

    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    pub(super) fn width(&self) -> u64 {
        self.width
    }

    /// Integrates capacity and queue up to `now` under the state `stretch`.
    pub(super) fn integrate(&mut self, now: u64, stretch: LinkState) {
        if !self.active {
            return;
        }
        while self.until < now {
            let (from, bin) = (self.until, self.bin(self.until));
            let end =
                self.start.saturating_add((bin as u64 + 1).saturating_mul(self.width)).min(now);
            let cell = &mut self.cells[bin];
            let dt = (end - from) as f64;
            match stretch.rate {
                None => cell.capacity = f64::INFINITY,
                Some(rate) => {
                    cell.capacity += rate as f64 * dt / 1e9;
                    cell.area += area(rate as f64 / 8e9, stretch.free_at, from, end);
                }
            }
            self.until = end;
        }
    }

    /// Counts bytes that left the queue at `at`.
    pub(super) fn count_departure(&mut self, at: u64, len: u32, class: ClassId) {
        let bin = self.bin(at);
        let class = usize::from(class.0).min(self.classes - 1);
        self.bytes[bin * self.classes + class] += u64::from(len);
    }

    /// Records the size of the queue right after a packet entered at `at`.
    pub(super) fn record_queue(&mut self, at: u64, bytes: u64) {
        let bin = self.bin(at);
        let cell = &mut self.cells[bin];
        cell.queue_max = cell.queue_max.max(bytes);
    }

    /// The bins so far.
    pub(super) fn bins(&self) -> Vec<Bin> {
        let bins = self.cells.iter().zip(self.bytes.chunks(self.classes)).enumerate();
        bins.map(|(i, (cell, bytes))| {
            let from = self.start + i as u64 * self.width;
            let covered = self.until.saturating_sub(from).clamp(1, self.width);
            Bin {
                capacity_bits: cell.capacity.is_finite().then(|| cell.capacity.round() as u64),
                bytes: bytes.to_vec(),
                queue_max_bytes: cell.queue_max,
                queue_mean_bytes: cell.area / covered as f64,
            }
        })
        .collect()
    }

    /// The index of the bin that contains `at`. Adds bins if needed.
    fn bin(&mut self, at: u64) -> usize {
        let mut bin = ((at.saturating_sub(self.start)) / self.width) as usize;
        while bin >= BINS_MAX {
            self.coarsen();
            bin /= 2;
        }
        if bin >= self.cells.len() {
            self.cells.resize(bin + 1, Cell::default());
            self.bytes.resize((bin + 1) * self.classes, 0);
        }
        bin
    }

    fn coarsen(&mut self) {
        self.width = self.width.saturating_mul(2);
        let merged = self.cells.chunks(2).map(|pair| {
            pair.iter().fold(Cell::default(), |a, b| Cell {
                capacity: a.capacity + b.capacity,
                area: a.area + b.area,
                queue_max: a.queue_max.max(b.queue_max),
            })
        });
        self.cells = merged.collect();
        let n = self.classes;
        let pairs = self.bytes.chunks(2 * n);
        let sum = |pair: &[u64]| -> Vec<u64> {
            (0..n).map(|c| pair[c] + pair.get(n + c).unwrap_or(&0)).collect()
        };
        self.bytes = pairs.flat_map(sum).collect();
    }
}

/// Byte·nanoseconds of a queue that drains at `rate` bytes/ns and is empty at
/// `free_at`, from `from` to `end`: the difference of two triangles.
fn area(rate: f64, free_at: u64, from: u64, end: u64) -> f64 {
    let height = |t: u64| free_at.saturating_sub(t) as f64;
    let (a, b) = (height(from), height(end));
    rate * (a * a - b * b) / 2.0
}
