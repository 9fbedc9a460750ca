//! Real video: encoded by ffmpeg before a run, received by `thalweg stream subscribe`, decoded and compared with the
//! source by ffmpeg after it.

use super::{Args, Media, network};
use anyhow::{Context as _, ensure};
use std::{
    collections::BTreeSet,
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};
use thalweg_media::{Frame, PACKET, TsSplitter};

/// A stream's frames in sending order.
pub type Frames = Arc<Vec<Frame>>;

/// Pictures a second.
const PICTURES: f64 = 30.0;

/// The clock of transport streams, Hz.
const CLOCK: f64 = 90_000.0;

/// An encoded video.
#[derive(Clone, Debug)]
pub struct Video {
    /// The transport stream.
    pub file: PathBuf,
    /// The same as frames.
    pub frames: Frames,
    /// The decoding time of its first picture.
    begins: u64,
}

/// The result of one viewer.
#[derive(Clone, Debug, Default)]
pub struct DecodedVideo {
    /// The positions in the source of the pictures that ffmpeg decoded.
    pub pictures: BTreeSet<usize>,
    /// Lines of errors of ffmpeg.
    pub errors: usize,
    /// For each picture of the source, the SSIM of the newest picture that the viewer had decoded by then; none before
    /// the viewer's first picture.
    pub ssim: Vec<(usize, f64)>,
}

impl Video {
    /// Encodes video: 30 pictures a second at about the rate of Table 2's streams, groups of half a second, disposable
    /// B pictures.
    ///
    /// # Errors
    /// When ffmpeg is missing or fails.
    pub fn encode(args: &Args, dir: &Path) -> anyhow::Result<Self> {
        let noise = if args.media == Media::Noise { ",noise=alls=12:allf=t" } else { "" };
        Self::encode_for(network::span(args).as_secs() + 8, noise, dir)
    }

    fn encode_for(seconds: u64, filter: &str, dir: &Path) -> anyhow::Result<Self> {
        let input = format!("testsrc2=s=640x360:r={PICTURES}:d={seconds}{filter}");
        let file = dir.join("source.ts");
        let mut command = ffmpeg();
        command.args(["-f", "lavfi", "-i", &input, "-c:v", "libx264", "-preset", "veryfast"]);
        command.args(["-b:v", "1080k", "-maxrate", "1160k", "-bufsize", "580k", "-g", "15"]);
        command.args(["-bf", "2", "-x264-params", "b-pyramid=none:scenecut=0"]);
        command.args(["-pix_fmt", "yuv420p", "-f", "mpegts"]).arg(&file);
        let status = command.status().context("cannot run ffmpeg")?;
        ensure!(status.success(), "ffmpeg failed to encode the source");
        let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
        splitter.push(&std::fs::read(&file)?, &mut frames);
        splitter.end(&mut frames);
        let first = frames.iter().find_map(decoding_time);
        let begins = first.context("ffmpeg encoded no pictures")?;
        Ok(Self { file, frames: Arc::new(frames), begins })
    }

    /// The time of a received picture since the first one of the source.
    pub fn time_of(&self, frame: &Frame) -> Option<Duration> {
        let since = decoding_time(frame)?.checked_sub(self.begins)?;
        Some(Duration::from_secs_f64(since as f64 / CLOCK))
    }

    /// The number of pictures.
    pub fn pictures(&self) -> usize {
        self.frames.iter().filter(|frame| frame.class.is_video()).count()
    }

    /// Decodes what a viewer received, and compares it with the source.
    ///
    /// # Errors
    /// When ffmpeg cannot be run.
    pub fn compare(&self, received: &Path) -> anyhow::Result<DecodedVideo> {
        let (times, errors) = decode(received)?;
        let (of_source, _) = decode(&self.file)?;
        let first = of_source.first().context("the source has no pictures")?;
        let position = |time: &f64| ((time - first) * PICTURES).round().max(0.0) as usize;
        let pictures: BTreeSet<usize> = times.iter().map(position).collect();
        let ssim = match pictures.first() {
            Some(first) => self.ssim(received, *first)?,
            None => Vec::new(),
        };
        Ok(DecodedVideo { pictures, errors, ssim })
    }

    /// Compares each picture of the source from `first` on with what a viewer shows at its time.
    fn ssim(&self, received: &Path, first: usize) -> anyhow::Result<Vec<(usize, f64)>> {
        let mut command = ffmpeg();
        command.arg("-copyts").arg("-i").arg(&self.file).arg("-copyts").arg("-i").arg(received);
        command.args(["-lavfi", "[0:v][1:v]ssim=f=-", "-f", "null", "-"]).stderr(Stdio::null());
        let output = command.output().context("cannot run ffmpeg")?;
        let text = String::from_utf8_lossy(&output.stdout);
        // `n:1 Y:0.9 U:0.9 V:0.9 All:0.9 (10.0)`; n counts pictures from the viewer's first one on.
        let read = |line: &str| {
            let number: usize = line.strip_prefix("n:")?.split(' ').next()?.parse().ok()?;
            let all = line.split("All:").nth(1)?.split(' ').next()?.parse().ok()?;
            Some((first + number.checked_sub(1)?, all))
        };
        let all: Vec<_> = text.lines().filter_map(read).collect();
        ensure!(!all.is_empty(), "ffmpeg did not compare {} with the source", received.display());
        Ok(all)
    }
}

fn ffmpeg() -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-y"]).stdin(Stdio::null());
    command
}

/// Decodes a file: the presentation times of its pictures in s, and the number of lines of errors.
fn decode(file: &Path) -> anyhow::Result<(Vec<f64>, usize)> {
    let mut command = ffmpeg();
    command.args(["-err_detect", "explode", "-copyts", "-i"]).arg(file);
    command.args(["-fps_mode", "passthrough", "-f", "framemd5", "-"]);
    let output = command.output().context("cannot run ffmpeg")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let base = text.lines().find_map(|line| line.strip_prefix("#tb 0: ")?.split_once('/'));
    let base = base.and_then(|(above, below)| {
        Some(above.parse::<f64>().ok()? / below.trim().parse::<f64>().ok()?)
    });
    let pictures = text.lines().filter(|line| !line.starts_with('#'));
    let times = pictures.filter_map(|line| line.split(',').nth(2)?.trim().parse::<f64>().ok());
    let times = times.map(|time| time * base.unwrap_or(f64::NAN)).collect();
    Ok((times, String::from_utf8_lossy(&output.stderr).lines().count()))
}

/// The decoding time of a picture, in ticks of the clock.
fn decoding_time(frame: &Frame) -> Option<u64> {
    let packet = frame.bytes.get(..PACKET).filter(|_| frame.class.is_video())?;
    let has_adaptation = packet[3] & 0x20 != 0;
    let payload = packet.get(if has_adaptation { 5 + usize::from(packet[4]) } else { 4 }..)?;
    let head = payload.strip_prefix(&[0, 0, 1])?;
    // ISO 13818-1, 2.4.3.6: after six bytes the flags, then PTS and perhaps DTS.
    let at = if head.get(4)? & 0x40 != 0 { 11 } else { 6 };
    let field: &[u8; 5] = head.get(at..at + 5)?.try_into().ok()?;
    let [a, b, c, d, e] = field.map(u64::from);
    Some((a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1)
}

/// The file of a viewer's stream.
pub fn viewer_file(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("viewer-{number}.ts"))
}

/// Creates the file of a viewer's stream.
///
/// # Errors
/// When the file cannot be created.
pub fn create(dir: &Path, number: usize) -> anyhow::Result<File> {
    Ok(File::create(viewer_file(dir, number))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_media::{FrameClass, TsJoiner};

    #[test]
    fn what_is_missing_at_a_viewer_is_seen() {
        if Command::new("ffmpeg").arg("-version").output().is_err() {
            eprintln!("skipped: no ffmpeg");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let video = Video::encode_for(3, "", dir.path()).unwrap();
        assert_eq!(video.pictures(), 90);
        let keys: Vec<&Frame> =
            video.frames.iter().filter(|frame| frame.class == FrameClass::Key).collect();
        assert_eq!(video.time_of(keys[2]), Some(Duration::from_secs(1)));
        // Without the first group, and without all but the key frame of the third.
        let (mut joiner, mut bytes) = (TsJoiner::default(), Vec::new());
        for frame in video.frames.iter() {
            let time = frame.time.as_secs_f64();
            let is_lost = time < 0.49 || (time > 1.01 && time < 1.49);
            match is_lost && frame.class.is_video() {
                true => joiner.record_loss(frame.track, frame.class),
                false => joiner.push(frame, &mut bytes),
            }
        }
        joiner.end(&mut bytes);
        let received = dir.path().join("received.ts");
        std::fs::write(&received, bytes).unwrap();
        let shown = video.compare(&received).unwrap();
        let expected: BTreeSet<usize> = (15..=30).chain(45..90).collect();
        assert_eq!((shown.pictures, shown.errors), (expected, 0));
        let of = |from: usize, until: usize| {
            let within = shown.ssim.iter().filter(|(at, _)| (from..until).contains(at));
            within.map(|(_, ssim)| *ssim).collect::<Vec<f64>>()
        };
        assert!(of(0, 15).is_empty());
        let same = [of(15, 30), of(45, 90)].concat();
        assert!(same.len() == 60 && same.iter().all(|ssim| *ssim == 1.0), "{same:?}");
        let frozen = of(31, 45);
        assert!(frozen.len() == 14 && frozen.iter().all(|ssim| *ssim < 0.999), "{frozen:?}");
    }
}
