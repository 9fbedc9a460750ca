//! A run: found the mesh, start the streams, then run PEAKS against them.

use super::{
    super::mgrp::starved::Starved,
    Args, Media, StreamTool,
    media::{Decoder, GROUP, PERIOD, STREAMS, frame},
    network,
    nodes::StreamNodes,
    outcome::{self, FrameSecond, LegMeasurement, StreamOutcome},
    padding::Padding,
    process::StreamProcess,
    video::{self, Video},
};
use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::ChildStdout,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use thalweg_lab::{client::Lab, topology::Topology};
use thalweg_media::{Frame, TsSplitter};
use thalweg_stream::{
    Chains,
    local::{self, Publisher, ReceivedItem, Subscriber},
};
use thalweg_wire::stream::leg::{
    ChildMessage, Level, ParentMessage, PublishRequest, SubscribeRequest, Track,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, sleep_until},
};

/// How long the streams run before counting begins.
pub const LEAD: Duration = Duration::from_secs(4);

/// The viewers' figures, by second.
pub type SecondCounts = Arc<Mutex<Vec<[FrameSecond; 3]>>>;

/// The time from which frames count.
#[derive(Clone, Copy)]
struct CountingStart(Instant);

/// Runs the experiment and prints the report.
///
/// # Errors
/// When a component does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let begin = args.found + LEAD;
    let topology = Topology::from_toml(&network::topology(args, begin))?;
    let directory = tempfile::TempDir::new().context("cannot create a directory")?;
    let video = match args.media {
        Media::Table2 => None,
        Media::Picture | Media::Noise => Some(Video::encode(args, directory.path())?),
    };
    let chooses_levels = args.tool == StreamTool::Padding;
    ensure!(!chooses_levels || video.is_none(), "--tool padding requires --media table2");
    let lab = Lab::start(&topology)?;
    let since = Instant::now();
    let elapsed = Duration::from_secs_f64(lab.stats(false)?.elapsed_s);
    let nodes = StreamNodes::create(&lab, directory.path(), args)?;
    let counts_from =
        (since + begin).checked_sub(elapsed).context("the lab's clock has no such time")?;
    ensure!(
        Instant::now() + LEAD <= counts_from,
        "founding the mesh took {:.1} s, more than the {:.1} s of --found; give a longer --found",
        since.elapsed().as_secs_f64(),
        args.found.as_secs_f64()
    );
    let runtime = crate::runtime()?;
    let done = runtime.block_on(run_streams(
        (args, video.as_ref()),
        &lab,
        &nodes,
        (counts_from, directory.path()),
    ));
    if let Some(kept) = &args.logs {
        for host in ["gs", "m3", "m5"] {
            fs::copy(nodes.log(host), kept.join(format!("{host}.log")))?;
        }
    }
    let mut outcome = StreamOutcome { counts: nodes.counts(&lab, "m3")?, ..done? };
    if let Some(video) = &video {
        outcome.sent_pictures = video.pictures();
        for number in 0..STREAMS.len() {
            outcome.shown.push(video.compare(&video::viewer_file(directory.path(), number))?);
        }
    }
    outcome::report(args, &outcome)?.print().context("cannot print the report")
}

/// Runs the streams from [`LEAD`] before `counts_from` to the end of PEAKS.
async fn run_streams(
    (args, video): (&Args, Option<&Video>),
    lab: &Lab,
    nodes: &StreamNodes,
    (counts_from, dir): (Instant, &Path),
) -> anyhow::Result<StreamOutcome> {
    let begin = CountingStart(counts_from);
    let lead = counts_from.checked_sub(LEAD).context("the clock has no such time")?;
    sleep(lead.saturating_duration_since(Instant::now())).await;
    let span = network::span(args);
    let until = counts_from + span;
    let mut sources = start_sources((args, video), nodes, begin, until);
    let padding = if args.tool == StreamTool::Padding { Some(Padding::start(lab)?) } else { None };
    sleep(Duration::from_secs(1)).await;
    let seen: SecondCounts =
        Arc::new(Mutex::new(vec![<[FrameSecond; 3]>::default(); span.as_secs() as usize]));
    let level = padding.as_ref().map(Padding::level);
    let watch = ViewerContext { args, begin, seen: &seen, level };
    let (mut viewers, programs) = match video {
        None => (watch.frames(nodes), Vec::new()),
        Some(video) => watch.video(lab, nodes, video, dir)?,
    };
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
    if video.is_some() {
        // The last frames are on their way.
        sleep(args.latency).await;
    }
    drop(programs);
    viewers.shutdown().await;
    let seen = seen.lock().clone();
    let measurements = match &padding {
        Some(padding) => padding.measurements(counts_from),
        None => read_measurements(&nodes.log("m3"), counts_from)?,
    };
    let truth =
        stats.link(network::BOTTLENECK).context("the lab has no record of the bottleneck")?.clone();
    Ok(StreamOutcome {
        seen,
        views,
        measurements,
        truth,
        counts: serde_json::Value::Null,
        lateness_us: stats.lateness.p99_us as f64,
        starved,
        span,
        sent_pictures: 0,
        shown: Vec::new(),
    })
}

/// Starts the source of each stream at its node.
fn start_sources(
    (args, video): (&Args, Option<&Video>),
    nodes: &StreamNodes,
    begin: CountingStart,
    until: Instant,
) -> JoinSet<anyhow::Result<()>> {
    let mut sources = JoinSet::new();
    for (number, _) in STREAMS.iter().enumerate() {
        let source =
            StreamPublisher { number, begin, until, latency: args.latency, video: video.cloned() };
        sources.spawn(source.run(nodes.socket("m3")));
    }
    sources
}

/// What all viewers have in common.
struct ViewerContext<'a> {
    args: &'a Args,
    begin: CountingStart,
    seen: &'a SecondCounts,
    /// The level to request; `None`: all frames.
    level: Option<watch::Receiver<Level>>,
}

/// The viewers' tasks.
type Viewers = JoinSet<anyhow::Result<()>>;

impl ViewerContext<'_> {
    fn viewer(&self, number: usize) -> StreamViewer {
        let (latency, seen) = (self.args.latency, Arc::clone(self.seen));
        StreamViewer { number, begin: self.begin, latency, seen }
    }

    /// Starts the viewers of Table 2's frames.
    fn frames(&self, nodes: &StreamNodes) -> Viewers {
        let mut viewers = JoinSet::new();
        for number in 0..STREAMS.len() {
            viewers.spawn(self.viewer(number).run(nodes.socket("m5"), self.level.clone()));
        }
        viewers
    }

    /// Starts the viewers of a real video, each with its program.
    fn video(
        &self,
        lab: &Lab,
        nodes: &StreamNodes,
        video: &Video,
        dir: &Path,
    ) -> anyhow::Result<(Viewers, Vec<StreamProcess>)> {
        let (mut viewers, mut programs) = (JoinSet::new(), Vec::new());
        for (number, stream) in STREAMS.iter().enumerate() {
            let (video, file) = (video.clone(), video::create(dir, number)?);
            let (program, output) = nodes.subscribe(lab, stream, self.args.latency)?;
            programs.push(program);
            let viewer = self.viewer(number);
            viewers.spawn_blocking(move || viewer.read(output, file, &video));
        }
        Ok((viewers, programs))
    }
}

/// A publisher that sends frames in real time. The three streams' groups begin a third of a group apart.
struct StreamPublisher {
    number: usize,
    begin: CountingStart,
    until: Instant,
    latency: Duration,
    /// A real video; `None`: Table 2's frames.
    video: Option<Video>,
}

impl StreamPublisher {
    async fn run(self, socket: PathBuf) -> anyhow::Result<()> {
        let stream = STREAMS[self.number].parse()?;
        let tracks = vec![Track { label: STREAMS[self.number].to_owned(), rates: [0; 5] }];
        let latency_ms = u32::try_from(self.latency.as_millis())?;
        let request = PublishRequest { stream, tracks, latency_ms };
        let mut publisher = Publisher::begin(&socket, request).await?;
        for place in 0.. {
            let frame = match &self.video {
                None => frame(place),
                Some(video) => match video.frames.get(place as usize) {
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
fn due(begin: CountingStart, number: usize, time: Duration) -> Instant {
    begin.0 + PERIOD * (number as u32 * GROUP as u32 / 3) + time - LEAD
}

/// A viewer of one stream.
struct StreamViewer {
    number: usize,
    begin: CountingStart,
    latency: Duration,
    seen: SecondCounts,
}

impl StreamViewer {
    /// Subscribes and follows references. Requests the level of `level`; `None`: all frames.
    async fn run(
        self,
        socket: PathBuf,
        mut level: Option<watch::Receiver<Level>>,
    ) -> anyhow::Result<()> {
        let request = SubscribeRequest {
            latency_ms: u32::try_from(self.latency.as_millis())?,
            from: Some("m3".parse()?),
            ..SubscribeRequest::for_stream(STREAMS[self.number].parse()?)
        };
        let mut subscriber = Subscriber::begin(&socket, request).await?;
        let mut decoder = Decoder::default();
        let latency_ms = u32::try_from(self.latency.as_millis())?;
        loop {
            if let Some(level) = &mut level
                && level.has_changed()?
            {
                let level = *level.borrow_and_update();
                subscriber
                    .send(&ChildMessage::Want { level, tracks: Vec::new(), latency_ms })
                    .await?;
            }
            match subscriber.next().await? {
                ReceivedItem::Frame(head, frame) => {
                    let due = due(self.begin, self.number, frame.time);
                    let age = due.elapsed();
                    let is_decoded = decoder.receive(head.sequence, &frame, age <= self.latency);
                    self.record(&frame, due, age, is_decoded);
                }
                ReceivedItem::Message(ParentMessage::Lost(lost)) => {
                    lost.iter().for_each(|lost| decoder.receive_lost(lost))
                }
                ReceivedItem::Message(ParentMessage::End(_)) => return Ok(()),
                ReceivedItem::Message(_) => {}
            }
        }
    }

    /// Copies the output of `thalweg stream subscribe` to the file, and records its pictures. The program leaves out
    /// those that cannot be decoded; a picture is complete when the next one begins.
    fn read(self, mut from: ChildStdout, mut file: File, video: &Video) -> anyhow::Result<()> {
        let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
        let (mut chains, mut buffer) = (Chains::default(), vec![0; 64 << 10]);
        loop {
            let read = from.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            file.write_all(&buffer[..read])?;
            splitter.push(&buffer[..read], &mut frames);
            for frame in frames.drain(..) {
                let Some(time) = video.time_of(&frame) else { continue };
                let due = due(self.begin, self.number, time);
                let age = due.elapsed();
                let is_decoded = match age <= self.latency {
                    true => chains.accept(frame.track, frame.class),
                    false => {
                        chains.record_loss(frame.track, frame.class);
                        false
                    }
                };
                self.record(&frame, due, age, is_decoded);
            }
        }
    }

    /// Records a frame in the second in which it was due.
    fn record(&self, frame: &Frame, due: Instant, age: Duration, is_decoded: bool) {
        let at = due.saturating_duration_since(self.begin.0).as_secs_f64();
        let is_in_time = age <= self.latency;
        self.update_second(due, |second| {
            second.ages.push(age);
            let is_picture = u32::from(frame.class.is_video());
            second.came += is_picture;
            second.late += u32::from(!is_in_time);
            second.broken += u32::from(is_in_time && !is_decoded);
            if is_decoded {
                second.decoded += is_picture;
                second.decoded_due.push(at);
                second.bytes += frame.bytes.len() as u64;
            }
        });
    }

    /// Updates the second in which a frame was due.
    fn update_second(&self, due: Instant, change: impl FnOnce(&mut FrameSecond)) {
        let Some(since) = due.checked_duration_since(self.begin.0) else { return };
        let mut seen = self.seen.lock();
        if let Some(second) = seen.get_mut(since.as_secs() as usize) {
            change(&mut second[self.number]);
        }
    }
}

/// Reads the measurements from a node's log.
fn read_measurements(log: &Path, counts_from: Instant) -> anyhow::Result<Vec<LegMeasurement>> {
    let zero = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64()
        - counts_from.elapsed().as_secs_f64();
    let text = fs::read_to_string(log)?;
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let lines = lines.filter(|line: &serde_json::Value| line["event"] == "stream_measured");
    let read = |line: serde_json::Value| {
        let number = |key: &str| line[key].as_f64();
        LegMeasurement {
            at: number("unix_ms").unwrap_or(0.0) / 1e3 - zero,
            took: number("ms").unwrap_or(0.0) / 1e3,
            bytes: number("bytes").unwrap_or(0.0),
            found: number("low_bps").zip(number("high_bps")),
        }
    };
    Ok(lines.map(read).filter(|one| one.at >= 0.0).collect())
}
