//! HLS: ffmpeg writes segments of the ladder without encoding it again, nginx serves them, and hls.js plays them in
//! headless Chromium.

use super::{
    Args,
    media::{EncodedStream, Feed, LADDER},
    mesh::Sender,
    outcome::Sample,
};
use crate::load::{browser::Browser, mgrp::program::Program};
use anyhow::{Context as _, ensure};
use std::{
    env,
    fmt::Write as _,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};
use thalweg_experiment::run::installed_programs;
use thalweg_lab::client::Lab;

/// The web server's port.
const PORT: u16 = 8080;

/// The time between two samples of the player.
pub const EVERY: Duration = Duration::from_millis(250);

/// Transport stream packets have heads.
const OVERHEAD: f64 = 1.03;

/// Server and browser.
pub struct Hls<'a> {
    args: &'a Args,
    lab: &'a Lab,
    www: PathBuf,
    dir: PathBuf,
    browser: Browser,
    _nginx: Program,
}

impl<'a> Hls<'a> {
    /// Starts both; the page is not open yet.
    ///
    /// # Errors
    /// When a program does not start, or hls.js is not installed.
    pub fn start(
        args: &'a Args,
        lab: &'a Lab,
        dir: &Path,
        source: &EncodedStream,
    ) -> anyhow::Result<Self> {
        let www = dir.join("www");
        fs::create_dir(&www)?;
        let script = installed_programs::find("hls.js");
        let script = script.context("hls.js is not in PATH; scripts/peer-hls installs it")?;
        fs::copy(script, www.join("hls.js"))?;
        fs::write(www.join("index.html"), include_str!("page.html"))?;
        fs::write(www.join("master.m3u8"), master(source, args.segment))?;
        let nginx = start_nginx(lab, dir)?;
        let browser = Browser::start(lab.command("m5", "sh"), dir)?;
        Ok(Self { args, lab, www, dir: dir.to_owned(), browser, _nginx: nginx })
    }

    /// Starts the segmenter and the stream.
    ///
    /// # Errors
    /// When ffmpeg does not start.
    pub fn feed(
        &self,
        source: &Arc<EncodedStream>,
        first: Instant,
        until: Instant,
    ) -> anyhow::Result<Feed> {
        let mut command = self.lab.command("m3", "ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-probesize", "500k"]);
        command.args(["-analyzeduration", "500k", "-f", "mpegts", "-i", "pipe:0"]);
        for n in 0..LADDER.len() {
            command.args(["-map", &format!("0:v:{n}")]);
        }
        command.args(["-c", "copy", "-f", "hls", "-hls_list_size", "6"]);
        command.args(["-hls_time", &self.args.segment.as_secs_f64().to_string()]);
        command.args(["-hls_flags", "delete_segments+independent_segments"]);
        let variants: Vec<String> = (0..LADDER.len()).map(|n| format!("v:{n}")).collect();
        command.args(["-var_stream_map", &variants.join(" "), "-hls_segment_filename"]);
        command.arg(self.www.join("%v-%d.ts")).arg(self.www.join("%v.m3u8"));
        command.stderr(File::create(self.dir.join("ffmpeg.log"))?);
        Ok(Feed::start(source, (first, until), Sender::start(command)?))
    }

    /// Opens the page at this time.
    ///
    /// # Errors
    /// When the browser has ended.
    pub fn open_page(&mut self, at: Instant) -> anyhow::Result<()> {
        super::pause_until(at);
        let query = if self.args.close { "?close" } else { "" };
        self.browser.open(&format!("http://{}:{PORT}/index.html{query}", self.lab.address("m3")))
    }

    /// Samples the player until then.
    ///
    /// # Errors
    /// When the browser has ended or the page does not play.
    pub fn watch(&mut self, until: Instant) -> anyhow::Result<Vec<Sample>> {
        let mut samples = Vec::new();
        let mut errors = String::new();
        while Instant::now() < until {
            let value = self.browser.evaluate("sample()")?;
            errors = value["errors"].to_string();
            let unix =
                Duration::from_millis(value["now"].as_u64().context("the sample has no time")?);
            let ago = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            let at = Instant::now()
                .checked_sub(ago.saturating_sub(unix))
                .context("the clock has no such time")?;
            let number = |key: &str| value[key].as_f64();
            if let (Some(segment), Some(within), Some(height)) =
                (number("segment"), number("within"), number("height"))
            {
                let position = segment * self.args.segment.as_secs_f64() + within;
                let rendition = LADDER.iter().position(|of| f64::from(of.height) == height);
                let rendition = rendition.context("the player shows an unknown rendition")?;
                let dropped = number("dropped").unwrap_or_default();
                samples.push(Sample { at, position, rendition, dropped });
            }
            thread::sleep(EVERY);
        }
        fs::write(self.dir.join("page.log"), &errors)?;
        ensure!(!samples.is_empty(), "hls.js has played nothing; its errors: {errors}");
        Ok(samples)
    }
}

/// The list of renditions: ffmpeg does not know the rates of what it copies.
fn master(source: &EncodedStream, segment: Duration) -> String {
    let mut text = "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-INDEPENDENT-SEGMENTS\n".to_owned();
    for (n, of) in LADDER.iter().enumerate() {
        let (peak, mean) = (source.peak_rate(n, segment), f64::from(of.rate) * 1e3);
        _ = write!(
            text,
            "#EXT-X-STREAM-INF:BANDWIDTH={:.0},AVERAGE-BANDWIDTH={:.0},RESOLUTION={}x{},FRAME-RATE=30,\
             CODECS=\"avc1.64001e\"\n{n}.m3u8\n",
            peak,
            mean * OVERHEAD,
            of.width,
            of.height
        );
    }
    text
}

/// Starts nginx at m3, with all its files in `dir`.
fn start_nginx(lab: &Lab, dir: &Path) -> anyhow::Result<Program> {
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temps: String =
        kinds.iter().map(|kind| format!("{kind}_temp_path {}/{kind};\n", dir.display())).collect();
    let (pid, log) = (dir.join("nginx.pid"), dir.join("nginx.log"));
    let text = format!(
        "user root;\ndaemon off;\nmaster_process off;\nerror_log {} error;\npid {};\n\
         events {{ worker_connections 256; }}\n\
         http {{\naccess_log off;\n{temps}\
         types {{ text/html html; text/javascript js; application/vnd.apple.mpegurl m3u8; video/mp2t ts; }}\n\
         server {{ listen {PORT}; root {}/www; add_header Cache-Control no-cache; }}\n}}\n",
        log.display(),
        pid.display(),
        dir.display()
    );
    let file = dir.join("nginx.conf");
    fs::write(&file, text)?;
    let nginx = installed_programs::find("nginx").context("nginx is not installed")?;
    let mut command = lab.command("m3", nginx);
    command.arg("-p").arg(dir).arg("-e").arg(&log).arg("-c").arg(&file).env("HOME", dir);
    command.env("PATH", env::var_os("PATH").unwrap_or_default());
    let nginx = Program::start(command, "nginx".to_owned())?;
    // It writes this file after it listens.
    let began = Instant::now();
    while !pid.exists() {
        let log = fs::read_to_string(&log).unwrap_or_default();
        ensure!(began.elapsed() < Duration::from_secs(10), "nginx did not start: {log}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(nginx)
}
