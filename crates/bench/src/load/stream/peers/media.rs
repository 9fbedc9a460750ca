//! The stream that all systems get, and its pace.

use anyhow::{Context as _, ensure};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use thalweg_media::{Frame, FrameClass, Output, PACKET, TsJoiner, TsSplitter};

/// A rendition.
#[derive(Clone, Copy, Debug)]
pub struct Rendition {
    pub width: u32,
    pub height: u32,
    /// The video's rate, kbit/s.
    pub rate: u32,
}

/// The ladder: PEAKS leave 6, 2 or 3 Mbit/s of the bottleneck.
pub const LADDER: [Rendition; 3] = [
    Rendition { width: 640, height: 360, rate: 4000 },
    Rendition { width: 480, height: 270, rate: 1500 },
    Rendition { width: 320, height: 180, rate: 600 },
];

/// About the rate of one of Table 2's streams.
pub const SINGLE: [Rendition; 1] = [Rendition { width: 640, height: 360, rate: 1100 }];

/// Pictures a second.
pub const FPS: u32 = 30;

/// Datagrams of transport streams hold seven packets. srt-live-transmit waits for that many, so each frame is filled up
/// with null packets, as multiplexers of a constant rate do. Pipes pass this length undivided.
const CHUNK: usize = 7 * PACKET;

/// A packet that receivers ignore.
const NULL: [u8; PACKET] = {
    let mut packet = [0xff; PACKET];
    packet[0] = 0x47;
    packet[1] = 0x1f;
    packet[3] = 0x10;
    packet
};

/// A picture of the source.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// When it is due, since the first one.
    pub due: Duration,
    /// Its size in each rendition, bytes.
    pub sizes: Vec<usize>,
}

/// The stream.
#[derive(Debug)]
pub struct EncodedStream {
    /// In sending order.
    pub frames: Vec<Frame>,
    /// Pictures by their decoding time stamps.
    pub pictures: BTreeMap<u64, Picture>,
}

/// Encodes the renditions with key frames each second, or reads what an earlier run has encoded in `cache`.
///
/// # Errors
/// When ffmpeg is missing or fails.
pub fn encode(
    renditions: &[Rendition],
    length: Duration,
    cache: &Path,
) -> anyhow::Result<EncodedStream> {
    let seconds = length.as_secs() + 2;
    let file = cache.join(format!("peers-{}-{seconds}.ts", renditions.len()));
    if !file.exists() {
        let new = tempfile::NamedTempFile::with_suffix_in(".ts", cache)?;
        run_ffmpeg(renditions, seconds, new.path())?;
        new.persist(&file).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let source = EncodedStream::read(&bytes, renditions.len());
    ensure!(!source.pictures.is_empty(), "ffmpeg encoded no pictures");
    Ok(source)
}

fn run_ffmpeg(renditions: &[Rendition], seconds: u64, file: &Path) -> anyhow::Result<()> {
    // Camera noise, without which the test picture does not need the rates.
    let input = format!("testsrc2=s=640x360:r={FPS}:d={seconds},noise=alls=20:allf=t");
    let mut graph = format!("[0:v]split={}", renditions.len());
    (0..renditions.len()).for_each(|n| graph.push_str(&format!("[s{n}]")));
    for (n, of) in renditions.iter().enumerate() {
        graph.push_str(&format!(";[s{n}]scale={}:{}[v{n}]", of.width, of.height));
    }
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-y", "-f", "lavfi", "-i", &input]);
    command.args(["-filter_complex", &graph]);
    for (n, of) in renditions.iter().enumerate() {
        let rate = format!("{}k", of.rate);
        command.args(["-map", &format!("[v{n}]"), &format!("-b:v:{n}"), &rate]);
        command.args([&format!("-maxrate:v:{n}"), &rate, &format!("-bufsize:v:{n}"), &rate]);
    }
    command.args(["-c:v", "libx264", "-preset", "veryfast", "-g", "30", "-bf", "2"]);
    command.args(["-x264-params", "b-pyramid=none:scenecut=0", "-pix_fmt", "yuv420p"]);
    command.args(["-f", "mpegts"]).arg(file).stdin(Stdio::null());
    let status = command.status().context("cannot run ffmpeg")?;
    ensure!(status.success(), "ffmpeg failed to encode the source");
    Ok(())
}

impl EncodedStream {
    fn read(bytes: &[u8], renditions: usize) -> Self {
        let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
        splitter.push(bytes, &mut frames);
        splitter.end(&mut frames);
        let mut pictures: BTreeMap<u64, Picture> = BTreeMap::new();
        for frame in frames.iter().filter(|frame| frame.class.is_video()) {
            let Some(dts) = frame.dts() else { continue };
            let picture = pictures.entry(dts).or_default();
            picture.due = frame.time;
            picture.sizes.resize(renditions, 0);
            if let Some(size) = picture.sizes.get_mut(usize::from(frame.track)) {
                *size = frame.bytes.len();
            }
        }
        Self { frames, pictures }
    }

    /// The largest rate of a rendition over segments of this duration, bit/s.
    pub fn peak_rate(&self, rendition: usize, segment: Duration) -> f64 {
        let mut sums: BTreeMap<u64, usize> = BTreeMap::new();
        for picture in self.pictures.values() {
            let at = (picture.due.as_secs_f64() / segment.as_secs_f64()) as u64;
            *sums.entry(at).or_default() += picture.sizes[rendition];
        }
        let most = sums.values().copied().max().unwrap_or_default();
        most as f64 * 8.0 / segment.as_secs_f64()
    }
}

/// A thread that writes the stream at its own pace.
pub struct Feed(JoinHandle<io::Result<()>>);

impl Feed {
    /// Writes frames that are due before `until`; the first one is due at `first`.
    pub fn start(
        source: &Arc<EncodedStream>,
        (first, until): (Instant, Instant),
        mut to: impl Write + Send + 'static,
    ) -> Self {
        let source = Arc::clone(source);
        Self(thread::spawn(move || {
            let mut joiner = TsJoiner::new(Output::AsSent);
            let mut packets = Vec::new();
            for frame in &source.frames {
                let due = first + frame.time;
                if due >= until {
                    break;
                }
                joiner.push(frame, &mut packets);
                // Tables travel with the picture behind them.
                if frame.class == FrameClass::Tables {
                    continue;
                }
                super::pause_until(due);
                while !packets.len().is_multiple_of(CHUNK) {
                    packets.extend_from_slice(&NULL);
                }
                packets.chunks(CHUNK).try_for_each(|chunk| to.write_all(chunk))?;
                to.flush()?;
                packets.clear();
            }
            Ok(())
        }))
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// When the sender stopped reading.
    pub fn end(self) -> anyhow::Result<()> {
        match self.0.join() {
            Ok(Err(why)) if why.kind() == ErrorKind::BrokenPipe => {
                anyhow::bail!("the sender has ended; its log says why (--logs)")
            }
            Ok(done) => done.context("cannot write the stream to its sender"),
            Err(_) => anyhow::bail!("the thread that writes the stream failed"),
        }
    }
}
