//! The state of all downloads, as text that fits a terminal.

use super::{
    Note,
    messages::{self, DirectSample},
};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};
use thalweg_base::job::{Event, PathRate};

/// The narrowest common terminal has 80 columns; one is left for the cursor.
pub const WIDTH: usize = 79;

/// Rates are averaged over this time: shorter averages flicker.
const WINDOW: Duration = Duration::from_secs(1);

/// The most downloads with a line of their own.
const SHOWN: usize = 8;

/// The state of all downloads.
pub struct DownloadStates {
    started: Instant,
    count: usize,
    open: BTreeMap<usize, Download>,
    finished: usize,
    failed: usize,
    /// Whether the length of a finished or failed download is unknown.
    has_unknown_length: bool,
    /// The sizes of finished downloads, bytes.
    bytes: u64,
    fetched: u64,
}

/// A download in progress.
#[derive(Default)]
struct Download {
    name: String,
    begun: Option<Instant>,
    /// When the server first answered.
    answered: Option<Instant>,
    sampled: Option<DirectSample>,
    total: Option<u64>,
    done: u64,
    rate: MovingMean,
    paths: Vec<PathState>,
}

/// A path of a download.
#[derive(Default)]
struct PathState {
    name: String,
    rate: MovingMean,
    /// Bytes received by this path.
    bytes: u64,
    state: String,
}

/// A mean over [`WINDOW`].
#[derive(Default)]
struct MovingMean(VecDeque<(Instant, u64)>);

impl MovingMean {
    fn add(&mut self, value: u64, now: Instant) {
        self.0.push_back((now, value));
        while self.0.front().is_some_and(|(t, _)| now.saturating_duration_since(*t) >= WINDOW) {
            self.0.pop_front();
        }
    }

    fn value(&self) -> u64 {
        let sum: u64 = self.0.iter().map(|(_, v)| v).sum();
        sum.checked_div(self.0.len() as u64).unwrap_or(0)
    }
}

impl DownloadStates {
    /// Starts without downloads at `now`.
    pub fn new(now: Instant) -> Self {
        let open = BTreeMap::new();
        Self {
            started: now,
            count: 1,
            open,
            finished: 0,
            failed: 0,
            has_unknown_length: false,
            bytes: 0,
            fetched: 0,
        }
    }

    /// Whether there are several downloads.
    pub fn is_several(&self) -> bool {
        self.count > 1
    }

    /// The name of a download, for a line about it.
    pub fn name(&self, item: usize) -> &str {
        self.open.get(&item).map_or("", |d| d.name.as_str())
    }

    /// Whether a download has only one path.
    pub fn has_one_path(&self, item: usize) -> bool {
        self.open.get(&item).is_some_and(|d| d.paths.len() == 1)
    }

    /// How the direct path of a download was sampled, if it was.
    pub fn sampled(&self, item: usize) -> Option<DirectSample> {
        self.open.get(&item)?.sampled
    }

    /// The time since the oldest open download began, if no server has answered any open download; `None` if one has,
    /// or none is open.
    pub fn silence(&self, now: Instant) -> Option<Duration> {
        let silent = |d: &Download| d.answered.is_none().then_some(d.begun?);
        let silent: Option<Vec<Instant>> = self.open.values().map(silent).collect();
        let first = silent?.into_iter().min()?;
        Some(now.saturating_duration_since(first))
    }

    /// The size of all downloads together, once all have begun and their sizes are known.
    fn whole(&self) -> Option<u64> {
        let all = self.finished + self.failed + self.open.len() == self.count;
        let open: Option<u64> = self.open.values().map(|d| d.total).sum();
        open.filter(|_| all && !self.has_unknown_length).map(|open| open + self.bytes)
    }

    /// Applies a note to the download that it is about.
    pub fn update(&mut self, note: &Note, now: Instant) {
        match note {
            Note::Planned { count } => self.count = *count,
            Note::Begun { item, url } => {
                let name = url.rsplit('/').find(|part| !part.is_empty()).unwrap_or(url);
                let (name, begun) = (name.to_owned(), Some(now));
                let download = Download { name, begun, ..Download::default() };
                self.open.insert(*item, download);
            }
            Note::Event { item, event: Event::Finished { bytes, fetched_bytes, .. } } => {
                self.open.remove(item);
                self.finished += 1;
                self.bytes += bytes;
                self.fetched += fetched_bytes;
            }
            Note::Event { item, event } => {
                self.open.entry(*item).or_default().update(event, now);
            }
            Note::Failed { item, .. } => {
                self.open.remove(item);
                self.failed += 1;
                self.has_unknown_length = true;
            }
            // It waits for its next try, not for an answer.
            Note::Again { item, .. } => _ = self.open.remove(item),
            Note::Text(_) | Note::Relays { .. } | Note::Verdict { .. } => {}
        }
    }

    /// Lines of at most [`WIDTH`] columns: a total, and a line per path or download.
    pub fn lines(&self) -> Vec<String> {
        if !self.is_several() {
            return self.open.values().next().map(Download::lines).unwrap_or_default();
        }
        let mut lines = vec![cut(&self.total(), WIDTH)];
        lines.extend(self.open.values().take(SHOWN).map(Download::line));
        if self.open.len() > SHOWN {
            lines.push(format!("  and {} more", self.open.len() - SHOWN));
        }
        lines
    }

    /// The progress in one line; `None` if nothing has begun.
    pub fn line(&self) -> Option<String> {
        match self.is_several() {
            true => Some(self.total()),
            false => self.open.values().next().map(Download::sentence),
        }
    }

    fn total(&self) -> String {
        let bytes = self.bytes + self.open.values().map(|d| d.done).sum::<u64>();
        let rate = self.open.values().map(|d| d.rate.value()).sum();
        let (of, left) = match self.whole() {
            None => (String::new(), String::new()),
            Some(whole) => (
                format!(" of {}", messages::size(whole)),
                format!(", {} left", messages::left(whole.saturating_sub(bytes), rate)),
            ),
        };
        let failed = match self.failed {
            0 => String::new(),
            n => format!(", {n} failed"),
        };
        format!(
            "{} of {} files, {}{of}, {}{left}{failed}",
            self.finished,
            self.count,
            messages::size(bytes),
            messages::rate(rate)
        )
    }

    /// The result of several downloads; `None` for a single one.
    pub fn summary(&self, now: Instant) -> Option<String> {
        let seconds = now.saturating_duration_since(self.started).as_secs_f64();
        let rate = (self.fetched as f64 * 8.0 / seconds.max(1e-9)).round() as u64;
        let failed = match self.failed {
            0 => String::new(),
            n => format!("; {n} failed"),
        };
        self.is_several().then(|| {
            format!(
                "{} of {} files, {} in {seconds:.2} s, {}{failed}",
                self.finished,
                self.count,
                messages::size(self.bytes),
                messages::rate(rate)
            )
        })
    }
}

impl Download {
    fn update(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Started { target, total_bytes, paths, .. } => {
                let name = target.rsplit('/').next().unwrap_or(target);
                self.name = messages::target_name(name).to_owned();
                self.total = *total_bytes;
                self.answered.get_or_insert(now);
                let path = |name: &String| PathState { name: name.clone(), ..PathState::default() };
                self.paths = paths.iter().map(path).collect();
            }
            Event::Resumed { bytes } | Event::Adopted { bytes, .. } => self.done = *bytes,
            Event::Progress { done_bytes, total_bytes, rate_bps, paths } => {
                self.done = *done_bytes;
                self.total = total_bytes.or(self.total);
                self.rate.add(*rate_bps, now);
                paths.iter().for_each(|path| self.progress(path, now));
            }
            Event::PathSampled { path, .. } => self.path(path).state = "sampled".to_owned(),
            Event::Chosen { path, reason } => {
                self.end_sampling(now);
                let was = self.paths.iter_mut().find(|p| p.state.starts_with("chosen"));
                was.into_iter().for_each(|p| p.state = "replaced".to_owned());
                self.path(path).state = format!("chosen: {reason}");
            }
            Event::Reselected { from, .. } => self.path(from).state = "replaced".to_owned(),
            Event::Hedged { path, .. } => self.path(path).state = "helping at the end".to_owned(),
            Event::Busy { path, why, .. } => {
                // That is an answer, too.
                self.answered.get_or_insert(now);
                self.path(path).state = format!("waiting: {why}");
            }
            Event::Corrupt { path, .. } => self.path(path).state = "altered bytes".to_owned(),
            Event::PathFailed { path, why } => self.path(path).state = format!("failed: {why}"),
            _ => {}
        }
    }

    /// Sampling ends when a path is chosen for the first time.
    fn end_sampling(&mut self, now: Instant) {
        let direct = self.paths.iter().find(|p| p.name == "direct" && p.state == "sampled");
        let (Some(answered), Some(direct)) = (self.answered, direct) else { return };
        let time = now.saturating_duration_since(answered);
        self.sampled.get_or_insert(DirectSample { time, bytes: direct.bytes });
    }

    fn progress(&mut self, rate: &PathRate, now: Instant) {
        let path = self.path(&rate.path);
        path.rate.add(rate.rate_bps, now);
        path.bytes = rate.bytes;
    }

    fn path(&mut self, name: &str) -> &mut PathState {
        let at = self.paths.iter().position(|p| p.name == name).unwrap_or_else(|| {
            self.paths.push(PathState { name: name.to_owned(), ..PathState::default() });
            self.paths.len() - 1
        });
        &mut self.paths[at]
    }

    fn of_total(&self) -> String {
        let done = messages::size(self.done);
        self.total.map_or(done.clone(), |total| format!("{done} of {}", messages::size(total)))
    }

    fn left(&self) -> Option<String> {
        let left = self.total?.saturating_sub(self.done);
        Some(messages::left(left, self.rate.value()))
    }

    /// A bar, and a line per path.
    fn lines(&self) -> Vec<String> {
        let rate = messages::rate(self.rate.value());
        let left = self.left().map_or(String::new(), |left| format!("  {left} left"));
        let right = format!("  {}  {rate}{left}", self.of_total());
        let width = WIDTH.saturating_sub(right.chars().count());
        let bar = match self.total {
            Some(total) => bar(self.done, total, width),
            None => format!("{:<width$}", cut(&self.name, width)),
        };
        let widest = self.paths.iter().map(|p| p.name.chars().count()).max().unwrap_or(0);
        let column = widest.clamp(6, 24);
        let path = |p: &PathState| {
            let (bytes, rate) = (messages::size(p.bytes), messages::rate(p.rate.value()));
            let state = if p.state.is_empty() { "trying" } else { p.state.as_str() };
            let name = cut(&p.name, column);
            cut(&format!("  {name:<column$}  {bytes:>8}  {rate:>11}  {state}"), WIDTH)
        };
        std::iter::once(bar + &right).chain(self.paths.iter().map(path)).collect()
    }

    /// One line for one of several downloads.
    fn line(&self) -> String {
        let percent = match self.total {
            Some(total) if total > 0 => format!("{:3} %", self.done.saturating_mul(100) / total),
            _ => "    -".to_owned(),
        };
        let chosen = self.paths.iter().find(|p| p.state.starts_with("chosen"));
        let path = chosen.map_or("", |p| p.name.as_str());
        let (of, rate) = (self.of_total(), messages::rate(self.rate.value()));
        let name = cut(&self.name, 28);
        cut(&format!("  {name:<28} {percent}  {of:<19} {rate:>11}  {path}"), WIDTH)
    }

    /// One line for logs.
    fn sentence(&self) -> String {
        let left = self.left().map_or(String::new(), |left| format!(", {left} left"));
        let path = |p: &PathState| PathRate {
            path: p.name.clone(),
            rate_bps: p.rate.value(),
            bytes: p.bytes,
        };
        let paths: Vec<PathRate> = self.paths.iter().map(path).collect();
        let rate = messages::rate(self.rate.value());
        format!("{}, {rate}{left} ({})", self.of_total(), messages::rates(&paths))
    }
}

/// `[====>    ]` of `width` columns.
fn bar(done: u64, total: u64, width: usize) -> String {
    let inner = width.saturating_sub(2);
    let share = if total == 0 { 1.0 } else { (done as f64 / total as f64).min(1.0) };
    let full = (share * inner as f64) as usize;
    let head = if full < inner && full > 0 { ">" } else { "" };
    let body = format!("{}{head}", "=".repeat(full.saturating_sub(head.len())));
    format!("[{body:<inner$}]")
}

/// The first `width` characters; the last one is `…` if text is cut off.
fn cut(text: &str, width: usize) -> String {
    let one_line = text.lines().next().unwrap_or_default();
    match one_line.chars().count() > width {
        true => one_line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => one_line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(done_bytes: u64, rates: &[(&str, u64)]) -> Event {
        let rate = |(path, rate_bps): &(&str, u64)| PathRate {
            path: (*path).into(),
            rate_bps: *rate_bps,
            bytes: *rate_bps / 10,
        };
        Event::Progress {
            done_bytes,
            total_bytes: Some(40_000_000),
            rate_bps: rates.iter().map(|(_, rate)| rate).sum(),
            paths: rates.iter().map(rate).collect(),
        }
    }

    /// The states after these events, one per quarter of a second.
    fn states(events: Vec<Event>) -> DownloadStates {
        let begun = Instant::now();
        let mut states = DownloadStates::new(begun);
        states.update(&Note::Begun { item: 0, url: "http://a/dir/file.bin".into() }, begun);
        for (i, event) in (1u32..).zip(events) {
            states.update(&Note::Event { item: 0, event }, begun + i * Duration::from_millis(250));
        }
        states
    }

    #[test]
    fn a_single_download_shows_its_paths_and_why_one_is_chosen() {
        let chosen = Event::Chosen { path: "fra".into(), reason: "fastest".into() };
        let long = "no answer for a very, very long time ".repeat(3);
        let rates = [("direct", 1_000_000), ("fra", 9_000_000)];
        let states = states(vec![
            progress(1_000_000, &rates),
            chosen,
            Event::PathFailed { path: "nyc".into(), why: long },
            progress(20_000_000, &rates),
        ]);
        let lines = states.lines();
        assert_eq!(
            lines[0],
            "[==================>                    ]  20 MB of 40 MB  10 Mbit/s  0:16 left"
        );
        assert_eq!(lines[1], "  direct    100 kB     1 Mbit/s  trying");
        assert_eq!(lines[2], "  fra       900 kB     9 Mbit/s  chosen: fastest");
        assert!(lines[3].starts_with("  nyc          0 B      0 bit/s  failed: no answer"));
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:?}");
        let line = states.line().unwrap();
        assert_eq!(line, "20 MB of 40 MB, 10 Mbit/s, 0:16 left (direct 1 Mbit/s, fra 9 Mbit/s)");
    }

    #[test]
    fn rates_are_means_over_a_second() {
        let events = (1..=8).map(|i| progress(i, &[("direct", i * 1_000_000)])).collect();
        let states = states(events);
        assert!(states.line().unwrap().contains("6.5 Mbit/s"), "{:?}", states.line());
    }

    #[test]
    fn many_downloads_show_a_total_and_a_bounded_number_of_lines() {
        let now = Instant::now();
        let mut states = DownloadStates::new(now);
        states.update(&Note::Planned { count: 100 }, now);
        for item in 0..20 {
            let url = format!("http://a/{}-{item}", "long".repeat(30));
            states.update(&Note::Begun { item, url }, now);
            let event = progress(1_000_000, &[("direct", 1_000_000)]);
            states.update(&Note::Event { item, event }, now);
        }
        let lines = states.lines();
        assert_eq!(lines[0], "0 of 100 files, 20 MB, 20 Mbit/s");
        assert_eq!(lines.len(), 2 + SHOWN);
        assert_eq!(lines[1 + SHOWN], "  and 12 more");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:?}");
        assert_eq!(states.summary(now).unwrap(), "0 of 100 files, 0 B in 0.00 s, 0 bit/s");
    }

    #[test]
    fn the_total_size_is_shown_once_it_is_known() {
        let now = Instant::now();
        let mut states = DownloadStates::new(now);
        states.update(&Note::Planned { count: 2 }, now);
        for item in 0..2 {
            assert_eq!(states.whole(), None, "not all have begun");
            states.update(&Note::Begun { item, url: "http://a/b".into() }, now);
            let event = progress(20_000_000, &[("direct", 8_000_000)]);
            states.update(&Note::Event { item, event }, now);
        }
        let line = "0 of 2 files, 40 MB of 80 MB, 16 Mbit/s, 0:20 left";
        assert_eq!(states.line().unwrap(), line);
    }

    #[test]
    fn silence_ends_with_the_first_answer() {
        let begun = Instant::now();
        let later = begun + Duration::from_secs(4);
        let mut states = DownloadStates::new(begun);
        assert_eq!(states.silence(later), None);
        states.update(&Note::Begun { item: 0, url: "http://a/b".into() }, begun);
        assert_eq!(states.silence(later), Some(Duration::from_secs(4)));
        let (path, why) = ("direct".to_owned(), "503".to_owned());
        let event = Event::Busy { path, why, seconds: 1.0 };
        states.update(&Note::Event { item: 0, event }, begun);
        assert_eq!(states.silence(later), None);
    }

    #[test]
    fn bars_keep_their_width() {
        for (done, total) in [(0, 10), (1, 10), (10, 10), (20, 10), (0, 0)] {
            assert_eq!(bar(done, total, 20).chars().count(), 20, "{done} of {total}");
        }
    }
}
