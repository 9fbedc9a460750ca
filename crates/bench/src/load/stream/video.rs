//! Real video, encoded by ffmpeg before a run and decoded after it.

use super::{Args, Media, network};
use anyhow::{Context as _, ensure};
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};
use thalweg_media::{Frame, TsSplitter};

/// A stream's frames in sending order.
pub type Frames = Arc<Vec<Frame>>;

/// Encodes video: 30 pictures a second at about the rate of Table 2's streams, groups of half a second, disposable
/// B pictures.
///
/// # Errors
/// When ffmpeg is missing or fails.
pub fn encode(args: &Args, dir: &Path) -> anyhow::Result<Frames> {
    let seconds = network::span(args).as_secs() + 8;
    let noise = if args.media == Media::Noise { ",noise=alls=12:allf=t" } else { "" };
    let input = format!("testsrc2=s=640x360:r=30:d={seconds}{noise}");
    let file = dir.join("source.ts");
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-f", "lavfi", "-i", &input]);
    command.args(["-c:v", "libx264", "-preset", "veryfast", "-b:v", "1080k", "-maxrate", "1160k"]);
    command.args([
        "-bufsize",
        "580k",
        "-g",
        "15",
        "-bf",
        "2",
        "-x264-params",
        "b-pyramid=none:scenecut=0",
    ]);
    command.args(["-pix_fmt", "yuv420p", "-f", "mpegts"]).arg(&file).stdin(Stdio::null());
    let status = command.status().context("cannot run ffmpeg")?;
    ensure!(status.success(), "ffmpeg failed to encode the source");
    let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
    splitter.push(&std::fs::read(&file)?, &mut frames);
    splitter.end(&mut frames);
    ensure!(!frames.is_empty(), "ffmpeg encoded no pictures");
    Ok(Arc::new(frames))
}

/// Decodes a viewer's file with ffmpeg: the number of pictures, and of lines of errors.
///
/// # Errors
/// When ffmpeg cannot be run.
pub fn decode(file: &Path) -> anyhow::Result<(usize, usize)> {
    let output = Command::new("ffmpeg")
        .args(["-hide_banner", "-loglevel", "error", "-err_detect", "explode", "-i"])
        .arg(file)
        .args(["-fps_mode", "passthrough", "-f", "framemd5", "-"])
        .stdin(Stdio::null())
        .output()
        .context("cannot run ffmpeg")?;
    let pictures = String::from_utf8_lossy(&output.stdout);
    let pictures = pictures.lines().filter(|line| !line.starts_with('#')).count();
    let complaints = String::from_utf8_lossy(&output.stderr).lines().count();
    Ok((pictures, complaints))
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
