//! A run: found the mesh, start the streams, then run PEAKS against them.

use super::{
    super::mgrp::starved::Starved,
    Args, Media, Tool,
    media::{Decoder, GROUP, PERIOD, STREAMS, frame},
    network,
    nodes::Nodes,
    outcome::{self, Measurement, Outcome, Second},
    padding::Padding,
    video::{self, Frames},
};
use anyhow::{Context as _, ensure};
use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use thalweg_lab::{client::Lab, topology::Topology};
use thalweg_media::TsJoiner;
use thalweg_stream::local::{self, Publisher, Received, Subscriber};
use thalweg_wire::stream::leg::{Announce, Ask, Level, Said, Track, Word};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, sleep_until},
};

/// How long the streams run before counting begins.
const LEAD: Duration = Duration::from_secs(4);

/// The viewers' figures, by second.
pub type Seen = Arc<Mutex<Vec<[Second; 3]>>>;

/// The time from which frames count.
#[derive(Clone, Copy)]
struct Begin(Instant);

/// Runs the experiment and prints the report.
///
/// # Errors
/// When a component does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let begin = args.found + LEAD;
    let topology = Topology::from_toml(&network::topology(args, begin))?;
    let directory = tempfile::TempDir::new().context("cannot make a directory")?;
    let frames = match args.media {
        Media::Table2 => None,
        Media::Picture | Media::Noise => Some(video::encode(args, directory.path())?),
    };
    let lab = Lab::start(&topology)?;
    let since = Instant::now();
    let elapsed = Duration::from_secs_f64(lab.stats(false)?.elapsed_s);
    let nodes = Nodes::found(&lab, directory.path(), args)?;
    let counts_from = (since + begin).checked_sub(elapsed).context("the lab's clock")?;
    ensure!(
        Instant::now() + LEAD <= counts_from,
        "founding the mesh took {:.1} s, more than the {:.1} s of --found; give a longer --found",
        since.elapsed().as_secs_f64(),
        args.found.as_secs_f64()
    );
    let runtime = crate::runtime()?;
    let done = runtime.block_on(run_streams(
        (args, frames),
        &lab,
        &nodes,
        (counts_from, directory.path()),
    ));
    if let Some(kept) = &args.logs {
        for host in ["gs", "m3", "m5"] {
            fs::copy(nodes.log(host), kept.join(format!("{host}.log")))?;
        }
    }
    let mut outcome = Outcome { counts: nodes.counts(&lab, "m3")?, ..done? };
    if args.media != Media::Table2 {
        for number in 0..STREAMS.len() {
            outcome.decoded.push(video::decode(&video::viewer_file(directory.path(), number))?);
        }
    }
    outcome::report(args, &outcome).print().context("cannot print the report")
}

/// Runs the streams from [`LEAD`] before `counts_from` to the end of PEAKS.
async fn run_streams(
    (args, frames): (&Args, Option<Frames>),
    lab: &Lab,
    nodes: &Nodes,
    (counts_from, dir): (Instant, &Path),
) -> anyhow::Result<Outcome> {
    let begin = Begin(counts_from);
    let lead = counts_from.checked_sub(LEAD).context("the clock")?;
    sleep(lead.saturating_duration_since(Instant::now())).await;
    let span = network::span(args);
    let until = counts_from + span;
    let mut sources = JoinSet::new();
    for (number, _) in STREAMS.iter().enumerate() {
        let socket = nodes.socket("m3");
        let source = Source { number, begin, until, latency: args.latency, frames: frames.clone() };
        sources.spawn(source.run(socket));
    }
    let padding = if args.tool == Tool::Padding { Some(Padding::start(lab)?) } else { None };
    sleep(Duration::from_secs(1)).await;
    let seen: Seen = Arc::new(Mutex::new(vec![<[Second; 3]>::default(); span.as_secs() as usize]));
    let mut viewers = JoinSet::new();
    for (number, _) in STREAMS.iter().enumerate() {
        let file = match args.media {
            Media::Table2 => None,
            Media::Picture | Media::Noise => Some(video::create(dir, number)?),
        };
        let (latency, seen) = (args.latency, Arc::clone(&seen));
        let level = padding.as_ref().map(Padding::level);
        let viewer = Viewer { number, begin, latency, seen, file, level };
        viewers.spawn(viewer.run(nodes.socket("m5")));
    }
    sleep(counts_from.saturating_duration_since(Instant::now())).await;
    lab.reset_stats()?;
    let starved = Starved::watch();
    let mut views = Vec::new();
    while Instant::now() < until {
        sleep(Duration::from_secs(1)).await;
        let status = local::status(&nodes.socket("m3")).await?;
        if let Some(padding) = &padding {
            padding.tick(lab, &status)?;
        }
        views.push((counts_from.elapsed().as_secs_f64(), status));
        if let Some(done) = viewers.try_join_next().filter(|_| Instant::now() < until) {
            done??;
            anyhow::bail!("a viewer's stream ended");
        }
    }
    let stats = lab.stats(true)?;
    let starved = starved.end();
    while let Some(done) = sources.join_next().await {
        done??;
    }
    viewers.shutdown().await;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let measurements = match &padding {
        Some(padding) => padding.measurements(counts_from),
        None => read_measurements(&nodes.log("m3"), counts_from)?,
    };
    let truth = stats.link(network::BOTTLENECK).context("the bottleneck")?.clone();
    Ok(Outcome {
        seen,
        views,
        measurements,
        truth,
        counts: serde_json::Value::Null,
        lateness_us: stats.lateness.p99_us as f64,
        starved,
        span,
        decoded: Vec::new(),
    })
}

/// A publisher that sends frames in real time. The three streams' groups begin a third of a group apart.
struct Source {
    number: usize,
    begin: Begin,
    until: Instant,
    latency: Duration,
    /// The frames of a real video; `None`: Table 2's frames.
    frames: Option<Frames>,
}

impl Source {
    async fn run(self, socket: PathBuf) -> anyhow::Result<()> {
        let stream = STREAMS[self.number].parse()?;
        let tracks = vec![Track { label: STREAMS[self.number].to_owned(), rates: [0; 5] }];
        let latency_ms = u32::try_from(self.latency.as_millis())?;
        let announce = Announce { stream, tracks, latency_ms };
        let mut publisher = Publisher::begin(&socket, announce).await?;
        for place in 0.. {
            let frame = match &self.frames {
                None => frame(place),
                Some(all) => match all.get(place as usize) {
                    Some(frame) => frame.clone(),
                    None => break,
                },
            };
            let due = due(self.begin, self.number, frame.time);
            if due >= self.until {
                break;
            }
            sleep_until(due.into()).await;
            publisher.send(&frame).await?;
        }
        publisher.end().await?;
        Ok(())
    }
}

/// When a frame with this decoding time is due.
fn due(begin: Begin, number: usize, time: Duration) -> Instant {
    begin.0 + PERIOD * (number as u32 * GROUP as u32 / 3) + time - LEAD
}

/// A subscriber that decodes.
struct Viewer {
    number: usize,
    begin: Begin,
    latency: Duration,
    seen: Seen,
    /// The file for decodable frames.
    file: Option<File>,
    /// The level to request; `None`: all frames.
    level: Option<watch::Receiver<Level>>,
}

impl Viewer {
    async fn run(mut self, socket: PathBuf) -> anyhow::Result<()> {
        let ask = Ask {
            stream: STREAMS[self.number].parse()?,
            level: Level::All,
            tracks: Vec::new(),
            latency_ms: u32::try_from(self.latency.as_millis())?,
            after: None,
            from: Some("m3".parse()?),
            hops: 0,
        };
        let mut subscriber = Subscriber::begin(&socket, ask).await?;
        let (mut decoder, mut joiner) = (Decoder::default(), TsJoiner::default());
        let latency_ms = u32::try_from(self.latency.as_millis())?;
        loop {
            if let Some(level) = &mut self.level
                && level.has_changed()?
            {
                let level = *level.borrow_and_update();
                subscriber.send(&Word::Want { level, tracks: Vec::new(), latency_ms }).await?;
            }
            match subscriber.next().await? {
                Received::Frame(head, frame) => {
                    let due = due(self.begin, self.number, frame.time);
                    let age = due.elapsed();
                    let in_time = age <= self.latency;
                    let is_decoded = decoder.receive(head.sequence, &frame, in_time);
                    if let Some(file) = self.file.as_mut().filter(|_| is_decoded) {
                        let mut packets = Vec::new();
                        joiner.push(&frame, &mut packets);
                        file.write_all(&packets)?;
                    }
                    let at = due.saturating_duration_since(self.begin.0).as_secs_f64();
                    self.update_second(due, |second| {
                        second.ages.push(age);
                        let is_picture = u32::from(frame.class.is_video());
                        second.came += is_picture;
                        second.late += u32::from(!in_time);
                        second.broken += u32::from(in_time && !is_decoded);
                        if is_decoded {
                            second.decoded += is_picture;
                            second.decoded_due.push(at);
                            second.bytes += frame.bytes.len() as u64;
                        }
                    });
                }
                Received::Said(Said::Lost(lost)) => {
                    lost.iter().for_each(|lost| decoder.receive_lost(lost))
                }
                Received::Said(Said::End(_)) => return Ok(()),
                Received::Said(_) => {}
            }
        }
    }

    /// Updates the second in which a frame was due.
    fn update_second(&self, due: Instant, change: impl FnOnce(&mut Second)) {
        let Some(since) = due.checked_duration_since(self.begin.0) else { return };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(second) = seen.get_mut(since.as_secs() as usize) {
            change(&mut second[self.number]);
        }
    }
}

/// Reads the measurements from a node's log.
fn read_measurements(log: &Path, counts_from: Instant) -> anyhow::Result<Vec<Measurement>> {
    let zero = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64()
        - counts_from.elapsed().as_secs_f64();
    let text = fs::read_to_string(log)?;
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let lines = lines.filter(|line: &serde_json::Value| line["event"] == "stream_measured");
    let read = |line: serde_json::Value| {
        let number = |key: &str| line[key].as_f64();
        Measurement {
            at: number("unix_ms").unwrap_or(0.0) / 1e3 - zero,
            took: number("ms").unwrap_or(0.0) / 1e3,
            bytes: number("bytes").unwrap_or(0.0),
            found: number("low_bps").zip(number("high_bps")),
        }
    };
    Ok(lines.map(read).filter(|one| one.at >= 0.0).collect())
}
